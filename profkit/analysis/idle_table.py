"""Idle time as a table, by step and by stage: sums of the same pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import EVERY
from profkit.model import Ints
from profkit.schema import STAGES, TABLES


def idle_table(analysis: Analysis) -> pa.Table:
    """The derived table ``idle``, by device and time. Lengths of a device add up to its idle time."""
    idle, pieces = analysis.idle, analysis.idle.pieces
    order = np.lexsort((pieces.start, pieces.device))
    # The last entry is for pieces of no gap. Rows of ``launches`` are of the whole trace, whatever is selected.
    step = np.append(_step_of_gap(analysis), -1)
    launch = np.append(analysis.whole_row(idle.ends_at), -1)
    gap = pieces.gap[order]
    words = pa.DictionaryArray.from_arrays(pa.array(pieces.cause[order]), pa.array(EVERY)).cast(pa.string())
    columns = [pieces.device[order], pieces.start[order], pieces.length[order], words, step[gap], launch[gap]]
    schema = TABLES["idle"].schema
    arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def idle_by_step(analysis: Analysis) -> dict[str, Ints]:
    """Idle time by cause and step, ns: an array with one entry a step and a last one for time of no step.

    Idle time belongs to the step whose operation ends it.
    """
    return analysis.idle.by_group(_step_of_gap(analysis), len(analysis.steps))


def idle_by_stage(analysis: Analysis) -> dict[str, dict[str, int]]:
    """Idle time by stage and cause, ns, without what is 0; the stage "" has the time of no stage.

    Idle time belongs to the innermost stage of the operation that ends it.
    """
    owner = analysis.owner[analysis.idle.ends_at]
    stage = np.append(analysis.ranges.stage, -1)[owner]
    by_cause = analysis.idle.by_group(stage, len(STAGES))
    out = {}
    for code, name in enumerate((*STAGES, "")):
        sums = {cause: int(values[code]) for cause, values in by_cause.items() if values[code]}
        if sums:
            out[name] = sums
    return out


def _step_of_gap(analysis: Analysis) -> Ints:
    """Step of the operation that ends each gap, -1 for none."""
    of_work, rows = analysis.steps.of_work, analysis.idle.ends_at
    return of_work[rows] if len(of_work) else np.full(len(rows), -1, np.int64)
