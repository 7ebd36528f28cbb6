"""Ranges that are written as two events: begin and end of a thread (B, E), or of any thread by an id (b, e)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.ingest.kineto.records import AsyncBegin, AsyncEnd, End, Half
from profkit.ingest.kineto.times import ABSENT, to_ns
from profkit.model import Array, Ints


@dataclass(frozen=True)
class Paired:
    """Ranges by their begin event; ``dur_ns`` -1 has no end. Counts of what was left out."""

    begins: list[Half]
    start_ns: Ints
    dur_ns: Ints
    ends_alone: int
    without_time: int
    """Ranges of which one side has no time or the time 0."""

    @property
    def open(self) -> int:
        return int((self.dur_ns < 0).sum())


def pair_threads(halves: list[Half]) -> Paired:
    """Pair B and E events: an end closes the last open begin of its process and thread."""
    return _pair(halves, [(half.pid, half.tid) for half in halves], zero_is_a_time=True)


def pair_async(halves: list[Half]) -> Paired:
    """Pair b and e events of one category and id; pairs with a side at time 0 are broken and left out."""
    return _pair(halves, [(half.cat, half.id) for half in halves], zero_is_a_time=False)


def _pair(halves: list[Half], keys: list[tuple[object, object]], zero_is_a_time: bool) -> Paired:
    number: dict[tuple[object, object], int] = {}
    group = np.fromiter((number.setdefault(key, len(number)) for key in keys), np.int64, len(keys))
    begins = np.fromiter((not isinstance(half, End | AsyncEnd) for half in halves), bool, len(halves))
    time = to_ns([half.ts for half in halves])
    timeless = (time == ABSENT) if zero_is_a_time else (time == ABSENT) | (time == 0)
    broken = np.zeros(len(number), bool)
    if zero_is_a_time:
        sound = ~timeless
    else:
        broken[group[timeless]] = True
        sound = ~broken[group]
    without_time = int((begins & ~sound).sum())
    rows = np.flatnonzero(sound)
    order = rows[np.lexsort((rows, time[rows], group[rows]))]
    partner = _partners(group[order], begins[order])
    mine = begins[order]
    start = time[order][mine]
    end = np.where(partner[mine] >= 0, time[order][np.maximum(partner[mine], 0)], start - 1)
    closed = np.zeros(len(order), bool)
    closed[partner[mine & (partner >= 0)]] = True
    return Paired(
        begins=[halves[row] for row in order[mine].tolist()],
        start_ns=start,
        dur_ns=end - start,
        ends_alone=int((~mine & ~closed).sum()),
        without_time=without_time,
    )


def _partners(group: Array, begin: Array) -> Ints:
    """For each begin the position of its end, -1 for none; rows are sorted by group and time.

    A begin lifts the number of open ranges to its level, an end leaves its level. Between two crossings of one level
    in one direction lies one in the other, so the rows of a level alternate: a begin's end is the next of its level.
    """
    change = np.where(begin, 1, -1)
    after = np.cumsum(change)
    level = np.where(begin, after, after + 1)
    order = np.lexsort((np.arange(len(group)), level, group))
    following = np.full(len(group), -1, np.int64)
    here, then = order[:-1], order[1:]
    paired = (group[here] == group[then]) & (level[here] == level[then]) & begin[here] & ~begin[then]
    following[here[paired]] = then[paired]
    return following


def kinds_of(halves: list[Half]) -> tuple[list[Half], list[Half]]:
    """(begin and end events of threads, those by an id)."""
    own = [half for half in halves if not isinstance(half, AsyncBegin | AsyncEnd)]
    return own, [half for half in halves if isinstance(half, AsyncBegin | AsyncEnd)]
