"""A rank that comes late to collectives: what its host or its kernels take more than those of the others, gone."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.analysis.replay.peers import matched_collectives
from profkit.model import Ints, Mask

MOST = 0.6
"""Part of the time that ranks wait for the last one that must be due to a rank for it to be the late one."""
LEAST_NS = 5_000
"""A rank that is later than the others by less is not late."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """Between two collectives, what the late rank's host or kernels take more than the median of the others."""
    sets = matched_collectives(analysis.trace, model.work)
    if not sets:
        return None
    every = np.concatenate(sets, axis=1) if len({len(s) for s in sets}) == 1 else max(sets, key=lambda s: s.shape[1])
    every = every[:, np.argsort(model.work.start[every].min(axis=0), kind="stable")]
    start = model.work.start[every]
    last = start.argmax(axis=0)
    late_by = np.sort(start, axis=0)[-1] - np.sort(start, axis=0)[-2]
    waited = np.bincount(last, weights=late_by, minlength=len(every))
    late = int(waited.argmax())
    if waited[late] < MOST * max(int(late_by.sum()), 1):
        return None
    known: Mask = np.logical_and.reduce(model.call[every] >= 0, axis=0)
    known[1:] &= known[:-1]  # the stretch before a collective begins with the one before it
    at = np.flatnonzero((last == late) & (late_by >= LEAST_NS) & known)
    if not len(at):
        return None
    calls, gaps = _host_excess(model, every, late, at)
    ops, durs = _kernel_excess(model, every, late, at)
    if not len(calls) and not len(ops):
        return None
    even = partial(_even, calls=calls, gaps=gaps, ops=ops, durs=durs)
    device = analysis.device_name(int(model.work.device[every[late, 0]]))
    return Found(
        count=len(at),
        free=even,
        fixed=even,
        assumed=(f"{text.printable(device)} takes as long between collectives as the others do",),
        facts={"collectives": every.shape[1], "late": len(at), "late_by_p50_ns": int(np.median(late_by[at]))},
        ops=every[late, at],
    )


def _host_excess(model: Model, every: Ints, late: int, at: Ints) -> tuple[Ints, Ints]:
    """(calls of the late rank, what is left of the host work before each of them).

    In each stretch between two collectives the longest host work gives way by what the stretch takes more than the
    median of the others.
    """
    total = np.cumsum(model.calls.gap)
    call = model.call[every]
    spent = total[call]
    spent[:, 1:] -= total[call[:, :-1]]
    spent[:, 0] = 0
    others = np.delete(spent, late, axis=0)
    excess = spent[late] - np.median(others, axis=0).astype(np.int64)
    calls, gaps = [], []
    for number in at[(at > 0) & (excess[at] >= LEAST_NS)].tolist():
        low, high = call[late, number - 1] + 1, call[late, number] + 1
        if low >= high:
            continue
        longest = low + int(model.calls.gap[low:high].argmax())
        calls.append(longest)
        gaps.append(max(int(model.calls.gap[longest] - excess[number]), 0))
    return np.asarray(calls, np.int64), np.asarray(gaps, np.int64)


def _kernel_excess(model: Model, every: Ints, late: int, at: Ints) -> tuple[Ints, Ints]:
    """(operations of the late rank, their new lengths): the longest one of each stretch, likewise."""
    spent = np.zeros(every.shape, np.int64)
    order = []
    for rank in range(len(every)):
        mine = np.flatnonzero(model.work.track == model.work.track[every[rank, 0]])
        total = np.concatenate(([0], np.cumsum(model.dur[mine])))
        # Not each collective is on the stream of the first one.
        place, behind = (np.searchsorted(mine, every[rank], side=side) for side in ("left", "right"))
        spent[rank, 1:] = total[place[1:]] - total[behind[:-1]]
        order.append((mine, place, behind))
    excess = spent[late] - np.median(np.delete(spent, late, axis=0), axis=0).astype(np.int64)
    mine, place, behind = order[late]
    ops, durs = [], []
    for number in at[(at > 0) & (excess[at] >= LEAST_NS)].tolist():
        part = mine[behind[number - 1] : place[number]]
        if len(part):
            longest = int(part[model.dur[part].argmax()])
            ops.append(longest)
            durs.append(max(int(model.dur[longest] - excess[number]), 0))
    return np.asarray(ops, np.int64), np.asarray(durs, np.int64)


def _even(model: Model, *, calls: Ints, gaps: Ints, ops: Ints, durs: Ints) -> Model:
    # Another fix may have taken more of them: no more than is left there.
    gaps, durs = np.minimum(model.calls.gap[calls], gaps), np.minimum(model.dur[ops], durs)
    return edits.with_length(edits.with_gap(model, calls, gaps), ops, durs)


FIX = Fix("even-ranks", "PK602", "Let no rank come late to collectives", find)
