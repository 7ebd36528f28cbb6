"""Threads that take turns: one waits until another has done its part, as autograd's thread and the one that called it.

No export records who woke whom. Two threads of a process took turns where one fell silent as the other began, after a
pause that is long for it: then what the second one did in its pause was waiting for the first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.replay.model import HANDOFF, Calls, Edges
from profkit.model import Ints, Trace

LONG_NS = 20_000
"""A pause between two calls that is shorter, or less than five usual ones of its thread, is no turn."""
_MOST_AFTER_NS = 100_000


def find_handoffs(trace: Trace, calls: Calls) -> tuple[Calls, Edges]:
    """(calls whose pause before a turn is what they did after it began, a constraint for each turn)."""
    n = len(calls)
    process = trace.process_of(calls.track)
    long = _long_pause(calls)
    order = np.lexsort((calls.start, process))
    before, after = order[:-1], order[1:]  # neighbours in time
    turns = (process[before] == process[after]) & (calls.track[before] != calls.track[after])
    turns &= calls.end[before] <= calls.start[after]
    before, after = before[turns], after[turns]
    waited = np.where(calls.fixed[after], np.iinfo(np.int64).max, calls.gap[after])
    following = np.minimum(before + 1, max(n - 1, 0))
    is_last = (before + 1 >= n) | (calls.track[following] != calls.track[before])
    silent = np.where(is_last, np.iinfo(np.int64).max, calls.start[following] - calls.end[before])
    since = calls.start[after] - calls.end[before]
    keep = (waited >= long[after]) & (silent >= long[before]) & (since < waited)
    keep &= since <= np.maximum(_MOST_AFTER_NS, waited // 2)
    before, after, since = before[keep], after[keep], since[keep]
    gap = calls.gap.copy()
    gap[after] = np.minimum(gap[after], since)
    edges = Edges(
        src=2 * before + 1,
        dst=2 * after,
        weight=since,
        kind=np.full(len(since), HANDOFF, np.int8),
        bound=np.ones(len(since), bool),
        usual=since,
    )
    return replace(calls, gap=gap), edges


def _long_pause(calls: Calls) -> Ints:
    """For each call what is a long pause of its thread, ns."""
    out = np.full(len(calls), LONG_NS, np.int64)
    for track in np.unique(calls.track).tolist():
        mine = slice(*np.searchsorted(calls.track, (track, track + 1)))
        gaps = calls.gap[mine][~calls.fixed[mine]]
        if len(gaps):
            out[mine] = min(max(LONG_NS, 5 * int(np.median(gaps))), np.iinfo(np.int64).max)
    return out
