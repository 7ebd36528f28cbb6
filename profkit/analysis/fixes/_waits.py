"""Waits of every step, of two kinds: for a copy to the host, and for nothing that the host then reads."""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import COPY, GRAPH_LAUNCH, LAUNCH, SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._find import D2H, copies, named, step_of_calls
from profkit.analysis.replay.model import WAIT, Model
from profkit.model import Ints, Mask


def in_steps(analysis: Analysis, model: Model) -> Mask:
    """Calls inside of steps; all calls where a trace has none."""
    inside = step_of_calls(analysis, model) >= 0
    return inside if inside.any() else np.ones(len(model.calls), bool)


def read_backs(analysis: Analysis, model: Model) -> tuple[Ints, Ints]:
    """(copies to the host that the host waits for inside of steps, all calls that wait for one of them).

    A call waits for a copy where that is the last thing it waits for: the copy's own call, or a synchronisation. One
    that comes in a later step, behind launches of that, reads later already.
    """
    op, call = _waiting_for_reads(analysis, model)
    now = ~_a_step_later(analysis, model, op, call)
    return np.unique(op[now]), np.unique(call[now])


def _waiting_for_reads(analysis: Analysis, model: Model) -> tuple[Ints, Ints]:
    """(copy, call) where a call inside of a step waits for a copy to the host, last of all that it waits for."""
    ops, kind, _ = copies(analysis, model)
    is_read = np.zeros(len(model.work), bool)
    is_read[ops[(kind == D2H) & (model.calls.kind[model.call[ops]] == COPY)]] = True
    edges = model.edges
    waits = np.flatnonzero((edges.kind == WAIT) & (edges.dst < model.first_op) & (edges.src >= model.first_op))
    op, call = (edges.src[waits] - model.first_op) // 2, edges.dst[waits] // 2
    latest = np.full(len(model.calls), -(1 << 60))
    np.maximum.at(latest, call, model.work.end[op])
    last = (model.work.end[op] == latest[call]) & is_read[op] & in_steps(analysis, model)[call]
    return op[last], call[last]


def _a_step_later(analysis: Analysis, model: Model, op: Ints, call: Ints) -> Mask:
    """Waits in a later step than the one that submitted their copy, with launches of the thread in between."""
    copied = model.call[op]
    step = step_of_calls(analysis, model)
    launches = np.append(0, np.cumsum(np.isin(model.calls.kind, (LAUNCH, GRAPH_LAUNCH))))
    between = launches[call] - launches[np.minimum(copied + 1, call)]
    later: Mask = (copied >= 0) & (step[copied] >= 0) & (step[call] > step[copied]) & (between > 0)
    later &= model.calls.track[copied] == model.calls.track[call]
    return later


def other_syncs(analysis: Analysis, model: Model) -> Ints:
    """Synchronisations inside of steps that wait for no copy to the host, and for nothing that reads one later."""
    reading = _waiting_for_reads(analysis, model)[1]
    syncs = np.flatnonzero((model.calls.kind == SYNC) & in_steps(analysis, model))
    return np.setdiff1d(syncs, np.union1d(reading, _may_read(analysis, model, syncs)))


def _may_read(analysis: Analysis, model: Model, syncs: Ints) -> Ints:
    """Of these calls those that wait for an event nobody recorded, where copies to the host could be what it is for."""
    kind = copies(analysis, model)[1]
    if analysis.trace.rows("gpu_events") or not (kind == D2H).any():
        return syncs[:0]
    return np.intersect1d(syncs, named(analysis, model, "EventSynchronize"))
