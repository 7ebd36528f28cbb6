"""Waits of every step, of two kinds: for a copy to the host, and for nothing that the host then reads."""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import COPY, SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._find import D2H, copies, step_of_calls
from profkit.analysis.replay.model import WAIT, Model
from profkit.model import Ints, Mask


def in_steps(analysis: Analysis, model: Model) -> Mask:
    """Calls inside of steps; all calls where a trace has none."""
    inside = step_of_calls(analysis, model) >= 0
    return inside if inside.any() else np.ones(len(model.calls), bool)


def read_backs(analysis: Analysis, model: Model) -> tuple[Ints, Ints]:
    """(copies to the host that the host waits for inside of steps, all calls that wait for one of them).

    A call waits for a copy where that is the last thing it waits for: the copy's own call, or a synchronisation.
    """
    ops, kind, _ = copies(analysis, model)
    is_read = np.zeros(len(model.work), bool)
    is_read[ops[(kind == D2H) & (model.calls.kind[model.call[ops]] == COPY)]] = True
    edges = model.edges
    waits = np.flatnonzero((edges.kind == WAIT) & (edges.dst < model.first_op) & (edges.src >= model.first_op))
    op, call = (edges.src[waits] - model.first_op) // 2, edges.dst[waits] // 2
    latest = np.full(len(model.calls), -(1 << 60))
    np.maximum.at(latest, call, model.work.end[op])
    last = (model.work.end[op] == latest[call]) & is_read[op] & in_steps(analysis, model)[call]
    return np.unique(op[last]), np.unique(call[last])


def other_syncs(analysis: Analysis, model: Model) -> Ints:
    """Synchronisations inside of steps that read nothing back."""
    _, reading = read_backs(analysis, model)
    syncs = np.flatnonzero((model.calls.kind == SYNC) & in_steps(analysis, model))
    return np.setdiff1d(syncs, reading)
