"""Copies to the host that each step waits for: from pinned memory, looked at a step later.

The host does not run more than a step ahead: in each step it waits for what the step before read.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import COPY
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import copies, is_pageable, step_of_calls, usual_start, usual_submit
from profkit.analysis.fixes._waits import read_backs
from profkit.analysis.fixes.pinned_copies import pinned_lengths
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import WAIT, Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    ops, waits = read_backs(analysis, model)
    if not len(ops):
        return None
    every, kind, size = copies(analysis, model)
    mine = np.isin(every, ops) & is_pageable(analysis, model, every)
    length, assumed = pinned_lengths(analysis, model, every[mine], kind[mine], size[mine])
    reads = np.unique(model.call[ops])
    reads = reads[model.calls.kind[reads] == COPY]
    submit = np.minimum(usual_submit(model), model.calls.end[reads] - model.calls.start[reads])
    syncs = np.setdiff1d(waits, reads)
    change = partial(_changed, ops=every[mine], length=length, reads=reads, submit=submit, syncs=syncs)
    return Found(
        count=len(waits),
        free=partial(_free, calls=np.union1d(waits, reads), ops=ops),
        fixed=partial(change, lag=usual_start(model), later=_a_step_later(analysis, model, waits)),
        assumed=(*assumed, "the host looks at the result of a step while the next one runs"),
        facts={"read_backs": len(ops), "syncs": len(syncs)},
        calls=waits,
        ops=ops,
    )


def _free(model: Model, *, calls: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.gone(model, calls), ops)


def _changed(
    model: Model, *, ops: Ints, length: Ints, reads: Ints, submit: Ints, syncs: Ints, lag: int,
    later: tuple[Ints, Ints, Ints],
) -> Model:  # fmt: skip
    model = edits.gone(model, syncs)
    model = edits.with_own(edits.without_waits(model, reads), reads, submit)
    model = edits.without_staging(edits.with_length(model, ops, length), ops, lag)
    return edits.with_constraint(model, *later, WAIT)


def _a_step_later(analysis: Analysis, model: Model, calls: Ints) -> tuple[Ints, Ints, Ints]:
    """(points, ends of calls, lags): the last wait of each step waits for what that of the step before was for."""
    edges = model.edges
    chosen = np.zeros(len(model.calls), bool)
    chosen[calls] = True
    at = np.flatnonzero((edges.kind == WAIT) & (edges.dst < model.first_op))
    at = at[chosen[edges.dst[at] // 2]]
    step = step_of_calls(analysis, model)[edges.dst[at] // 2]
    at, step = at[step >= 0], step[step >= 0]
    recorded = model.recorded()
    order = np.lexsort((recorded[edges.src[at]], recorded[edges.dst[at]], step))
    at, step = at[order], step[order]
    last = np.append(step[1:] != step[:-1], True) if len(at) else np.zeros(0, bool)
    at, step = at[last], step[last]
    process = analysis.steps.process[step]
    same = process[1:] == process[:-1]
    before, after = at[:-1][same], at[1:][same]
    return edges.src[before], edges.dst[after], np.minimum(edges.weight[before], edges.usual[before])


FIX = Fix("read-later", "PK303", "Look at read-backs a step later", find)
