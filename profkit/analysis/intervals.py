"""Interval arithmetic on int64 arrays: unions, coverage, states over time. Half-open intervals; touching ones are one.

Everything that sums time goes through here, so that no time is ever counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.arrays import CHUNK_ROWS, chunks
from profkit.model import Array, Ints

_LIMIT = 1 << 62
NEVER = -_LIMIT
"""Before any time of a trace."""
_EXACT = 1 << 53
_FEW_GROUPS = 1 << 12
_LOW_BITS = 20
_LOW = (1 << _LOW_BITS) - 1


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in order, none empty, none touching the next."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """Summed length, ns."""
        return int((self.end - self.start).sum())

    def covered(self, start: Ints, end: Ints) -> Ints:
        """How much of each query [start, end) lies inside, ns; empty queries give 0."""
        if not len(self):
            return np.zeros(len(start), np.int64)
        before = np.concatenate(([0], np.cumsum(self.end - self.start)))
        return np.where(end > start, self._until(before, end) - self._until(before, start), 0)

    def _until(self, before: Ints, at: Ints) -> Ints:
        index = np.searchsorted(self.start, at, side="right") - 1
        inside = np.maximum(index, 0)
        part = np.minimum(at, self.end[inside]) - self.start[inside]
        return np.where(index >= 0, before[inside] + part, 0)


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints) -> Intervals:
    """Merge intervals of any order; empty ones vanish."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    if len(start) > 1 and (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return Intervals(start[first], reach[last])


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """The part of the intervals inside [start, end)."""
    low, high = np.maximum(intervals.start, start), np.minimum(intervals.end, end)
    keep = high > low
    return Intervals(low[keep], high[keep])


@dataclass(frozen=True)
class StateLine:
    """A code that changes at instants: ``code[i]`` holds from ``at[i]`` until ``at[i + 1]``, the last one for ever.

    ``at`` ascends strictly, and begins before any time that is asked for.
    """

    at: Ints
    code: Array

    def cut(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Array]:
        """(query, start, end, code) of every piece of the queries [start, end), by query and time; empty ones vanish.

        The queries may come in any order and overlap each other.
        """
        first = np.searchsorted(self.at, start, side="right") - 1
        count = np.where(end > start, np.searchsorted(self.at, end, side="left") - first, 0)
        query = np.repeat(np.arange(len(start)), count)
        step = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count) + first[query]
        until = np.append(self.at[1:], _LIMIT)[step]
        return query, np.maximum(self.at[step], start[query]), np.minimum(until, end[query]), self.code[step]


def state_line(layers: Sequence[tuple[Array, Ints, Ints]], codes: Array) -> StateLine:
    """When which layers were active: ``codes[mask]`` names a set of layers, with bit ``1 << layer`` for each of them.

    Each of ``layers`` is (layer of each interval, start, end). Intervals of one layer do not overlap; those of
    different layers may.
    """
    parts = [(np.left_shift(1, layer.astype(np.int32)), start, end) for layer, start, end in layers if len(start)]
    if not parts:
        return StateLine(np.asarray([NEVER]), codes[:1])
    times = np.concatenate([_interleaved(start, end) for _, start, end in parts])
    change = np.concatenate([_interleaved(bit, -bit) for bit, _, _ in parts])
    if len(times) > 1 and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, change = times[order], change[order]
    code = codes[np.cumsum(change, dtype=np.int32)]
    last = np.append(times[1:] > times[:-1], True)  # of the changes at one instant the last one counts
    at, code = np.append(NEVER, times[last]), np.append(codes[:1], code[last])
    new = np.append(True, code[1:] != code[:-1])
    return StateLine(at[new], code[new])


def _interleaved(first: Array, second: Array) -> Array:
    """first[0], second[0], first[1], ...: times that are in order stay so."""
    out = np.empty(2 * len(first), first.dtype)
    out[::2], out[1::2] = first, second
    return out


def sum_by(group: Array, values: Ints, groups: int) -> Ints:
    """Sum of the values of each group 0..groups-1, exact at any size: a float sum in parts that floats hold."""
    if groups <= _FEW_GROUPS and len(values) > CHUNK_ROWS:  # then a part at a time takes little more
        total: Ints = np.asarray([sum_by(group[at], values[at], groups) for at in chunks(len(values))]).sum(axis=0)
        return total
    if not len(values) or max(int(values.max()), -int(values.min())) < _EXACT // len(values):
        return np.bincount(group, values, groups).astype(np.int64)
    low, high = values & _LOW, values >> _LOW_BITS
    return sum_by(group, low, groups) + (sum_by(group, high, groups) << _LOW_BITS)


def union_by_group(start: Ints, end: Ints, group: Array, groups: int) -> Ints:
    """Length of the union of the intervals of each group 0..groups-1, ns."""
    if not len(start):
        return np.zeros(groups, np.int64)
    low = int(start.min())
    width = int(end.max()) - low + 1
    if groups * width >= _LIMIT:
        merged, owner = merge_by_group(start, end, group)
        return sum_by(owner, merged.end - merged.start, groups)
    lift = group * np.int64(width) - low
    start, end = start + lift, end + lift
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end, group = start[order], end[order], group[order]
    # Of each interval what reaches beyond all before it; those of another group lie on another stretch.
    reach = np.maximum.accumulate(end)
    np.maximum(start[1:], reach[:-1], out=start[1:])
    return sum_by(group, np.maximum(end - start, 0), groups)


def merge_by_group(start: Ints, end: Ints, group: Array) -> tuple[Intervals, Ints]:
    """Unions within each group, ordered by (group, start), and the group of each.

    Each group is lifted to a stretch of time of its own, so that one union serves them all.
    """
    group = group.astype(np.int64)
    low = int(start.min()) if len(start) else 0
    width = (int(end.max()) - low + 1) if len(start) else 1
    dense = np.arange(int(group.max()) + 1) if len(group) else np.zeros(0, np.int64)
    number = group
    if len(dense) * width >= _LIMIT:
        dense, number = np.unique(group, return_inverse=True)
    if len(dense) == 1:
        merged = union(start, end)
        return merged, np.full(len(merged), dense[0], np.int64)
    if len(dense) * width >= _LIMIT:  # some 10^9 groups of a second: halve until the lifted times fit
        half = dense[len(dense) // 2]
        left, right = group < half, group >= half
        a, owner_a = merge_by_group(start[left], end[left], group[left])
        b, owner_b = merge_by_group(start[right], end[right], group[right])
        return Intervals(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end))), np.concatenate(
            (owner_a, owner_b)
        )
    lift = number * width - low
    merged = union(start + lift, end + lift)
    owner = merged.start // width
    return Intervals(merged.start - owner * width + low, merged.end - owner * width + low), dense[owner]


def percentiles(values: Array, percents: Sequence[int]) -> list[int | None]:
    """Several of them, by one pass over the values."""
    n = len(values)
    if not n:
        return [None] * len(percents)
    ranks = [max((percent * n + 99) // 100, 1) - 1 for percent in percents]
    found = np.partition(values, ranks)
    return [int(found[rank]) for rank in ranks]


def percentile(values: Array, percent: int) -> int | None:
    """Nearest-rank percentile, an element of ``values``; None where there is none."""
    return percentiles(values, (percent,))[0]
