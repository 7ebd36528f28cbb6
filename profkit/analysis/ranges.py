"""Which of the program's own ranges the idle time falls in: a garbage collection, a data loader, a layer."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import union
from profkit.analysis.spans import innermost_timeline, nested_ranges
from profkit.model import Ints
from profkit.schema import SPAN_KINDS
from profkit.stages import parse_name

_NAMED = [SPAN_KINDS.index(kind) for kind in ("push_pop", "annotation")]


def idle_by_range(analysis: Analysis, gaps: Ints) -> list[tuple[str, int]]:
    """(name, idle ns) of the innermost ranges of the deciding threads during these gaps, most time first.

    ``gaps`` are positions in ``analysis.idle``. A stage goes by its own name, whatever prefix and payload it carries.
    """
    trace, idle = analysis.trace, analysis.idle
    call = analysis.work.call[idle.ends_at[gaps]]
    gaps, call = gaps[call >= 0], call[call >= 0]
    thread = trace.array("calls", "track")[call] if len(call) else call
    totals: dict[str, int] = {}
    for track in np.unique(thread).tolist():
        mine = gaps[thread == track]
        covered = union(idle.start[mine], idle.end[mine])
        kind_fits = np.isin(trace.array("spans", "kind"), _NAMED)
        ranges = nested_ranges(trace, np.flatnonzero(kind_fits & (trace.array("spans", "track") == track)))
        pieces = innermost_timeline(ranges)
        inside = covered.covered(pieces.start, pieces.end)
        hit = np.flatnonzero(inside)
        names = trace.array("spans", "name")[ranges.row[pieces.owner[hit]]]
        sums = np.bincount(names, inside[hit]) if len(hit) else np.zeros(0)
        for row in np.flatnonzero(sums).tolist():
            text = trace.name(row)
            stage = parse_name(text)
            name = stage.name if stage is not None else text
            totals[name] = totals.get(name, 0) + int(sums[row])
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))
