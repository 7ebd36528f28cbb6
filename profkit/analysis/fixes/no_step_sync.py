"""Waits for the device inside every step: what they read back is looked at a step later, from pinned memory.

The host still does not run more than a step ahead: in each step it waits for what the step before waited for.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import COPY, SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import D2H, copies, is_pageable, step_of_calls, usual_submit, waiting_calls
from profkit.analysis.fixes.pinned_copies import pinned_lengths
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import WAIT, Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    inside = step_of_calls(analysis, model) >= 0
    if not inside.any():  # without steps every wait counts
        inside = np.ones(len(model.calls), bool)
    ops, kind, size = copies(analysis, model)
    waits = waiting_calls(model) | (model.calls.kind == SYNC)
    read = (kind == D2H) & waits[model.call[ops]] & (model.calls.kind[model.call[ops]] == COPY)
    ops, kind, size = ops[read], kind[read], size[read]
    ops, kind, size = (part[inside[model.call[ops]]] for part in (ops, kind, size)) if len(ops) else (ops, kind, size)
    syncs = np.flatnonzero(inside & (model.calls.kind == SYNC))
    if not len(syncs) and not len(ops):
        return None
    pageable = is_pageable(analysis, model, ops)
    length, assumed = pinned_lengths(analysis, model, ops[pageable], kind[pageable], size[pageable])
    reads = np.unique(model.call[ops])
    submit = np.minimum(usual_submit(model), model.calls.end[reads] - model.calls.start[reads])
    return Found(
        count=len(syncs) + len(reads),
        free=partial(_free, syncs=syncs, reads=reads, ops=ops),
        fixed=partial(
            _fixed, syncs=syncs, reads=reads, submit=submit, ops=ops[pageable], length=length,
            later=_a_step_later(analysis, model, np.concatenate((syncs, reads))),
        ),
        assumed=(*assumed, "the host looks at the result of a step while the next one runs"),
        facts={"syncs": len(syncs), "read_backs": len(reads)},
    )


def _free(model: Model, *, syncs: Ints, reads: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.without_calls(model, np.concatenate((syncs, reads))), ops)


def _fixed(
    model: Model, *, syncs: Ints, reads: Ints, submit: Ints, ops: Ints, length: Ints, later: tuple[Ints, Ints, Ints]
) -> Model:
    model = edits.without_calls(model, syncs)
    model = edits.with_own(edits.without_waits(model, reads), reads, submit)
    return edits.with_constraint(edits.with_length(model, ops, length), *later, WAIT)


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


FIX = Fix("no-step-sync", "PK303", "Do not wait for the device in each step", find)
