"""The launch queue: a device takes 1,024 submissions ahead, then the call that would add one more waits."""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, LAUNCH
from profkit.analysis.replay.model import Calls
from profkit.analysis.work import Work
from profkit.model import Ints

LENGTH = 1_024
"""Submissions that a device takes ahead: in exports of an A100 a call waits once 1,021 of them have not begun."""
DEPTH = 256
"""With fewer outstanding submissions a long launch call waits for something else."""
SLOW_LAUNCH_NS = 20_000
_EVERY = 32
"""Where no call was seen to wait, the limit is kept at every so many submissions: a replay needs no more."""

Points = tuple[Ints, Ints, Ints]
"""(calls, points that each waits for, the recorded times of these points)."""


def full_queues(calls: Calls, work: Work, call: Ints) -> Points:
    """Launch calls that found the queue of their device full, and the limit for all the others."""
    op = np.flatnonzero(call >= 0)
    parts: list[Points] = []
    is_launch = np.isin(calls.kind[call[op]], (LAUNCH, GRAPH_LAUNCH)) if len(op) else np.zeros(0, bool)
    usual = int(np.median((calls.end - calls.start)[call[op[is_launch]]])) if is_launch.any() else 0
    owner = work.device[op].astype(np.int64) * (int(work.process.max()) + 2) + work.process[op] + 1 if len(op) else op
    for queue in np.unique(owner).tolist():
        mine = op[owner == queue]
        order = mine[np.argsort(calls.start[call[mine]], kind="stable")]
        parts.append(_waited(calls, work, call, order, max(SLOW_LAUNCH_NS, 4 * usual)))
        parts.append(_limit(calls, work, call, order))
    none = np.zeros(0, np.int64)
    at, src, since = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
    return at, src, since


def _waited(calls: Calls, work: Work, call: Ints, order: Ints, slow: int) -> Points:
    """Slow launches with many operations outstanding, and the operation that began or ended last before each returned.

    ``order`` are the operations of one queue in the order of their submission.
    """
    is_slow = (calls.end - calls.start)[call[order]] > slow
    is_slow &= np.isin(calls.kind[call[order]], (LAUNCH, GRAPH_LAUNCH))
    place = np.flatnonzero(is_slow)
    at = calls.end[call[order[place]]]
    by_start = order[np.argsort(work.start[order], kind="stable")]
    by_end = order[np.argsort(work.end[order], kind="stable")]
    begun = np.searchsorted(work.start[by_start], at, side="right")
    deep = (begun > 0) & (place - begun >= DEPTH)
    place, at, begun = place[deep], at[deep], begun[deep]
    done = np.searchsorted(work.end[by_end], at, side="right")
    last_begun, last_done = by_start[begun - 1], by_end[np.maximum(done - 1, 0)]
    ended = (done > 0) & (work.end[last_done] >= work.start[last_begun])
    which = np.where(ended, last_done, last_begun)
    since = np.where(ended, work.end[which], work.start[which])
    return call[order[place]], 2 * len(calls) + 2 * which + ended, since


def _limit(calls: Calls, work: Work, call: Ints, order: Ints) -> Points:
    """Every so many submissions: the one LENGTH before must have begun. Nothing where the record says otherwise."""
    place = np.arange(LENGTH, len(order), _EVERY)
    at, before = call[order[place]], order[place - LENGTH]
    if len(place) and (calls.end[at] < work.start[before]).any():
        return at[:0], at[:0], at[:0]
    return at, 2 * len(calls) + 2 * before, work.start[before]
