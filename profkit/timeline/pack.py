"""Levels of detail: what of a lane is drawn, for a window and a number of pixel columns.

Pure: arrays in, arrays out. A slice that is wide enough is drawn as itself; of everything narrower a column says which
share of its time is covered. Nothing is dropped unseen: what is not drawn one by one is in the shares.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from profkit.analysis.intervals import Intervals, merge_by_group, union
from profkit.model import Array, Ints, Mask, Window


@dataclass(frozen=True)
class Lane:
    """Intervals of one lane in order of start; ``category`` indexes ``categories``, ``row`` is the sub-row (depth).

    ``kind`` is stream, calls, ranges or requests; ``name`` are rows of ``names``, -1 where the category says it all;
    ``group`` is the device or process it belongs to, in words; ``device`` and ``track`` are rows, -1 for none.
    """

    kind: str
    group: str
    label: str
    start: Ints
    end: Ints
    category: Ints
    categories: tuple[str, ...]
    name: Ints
    row: Ints
    device: int = -1
    track: int = -1
    still_open: Array = field(default_factory=lambda: np.zeros(0, bool))
    """Which intervals were never closed, drawn to the end of the capture; empty where none can be."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def rows(self) -> int:
        """Number of sub-rows."""
        return int(self.row.max()) + 1 if len(self) else 0

    def where(self, keep: Mask | Ints) -> Lane:
        """The lane with only these intervals."""
        return replace(
            self,
            start=self.start[keep],
            end=self.end[keep],
            category=self.category[keep],
            name=self.name[keep],
            row=self.row[keep],
            still_open=self.still_open[keep] if len(self.still_open) else self.still_open,
        )

    def within(self, window: Window) -> Lane:
        """What of the lane can be seen in a window; intervals keep their whole length."""
        last = int(np.searchsorted(self.start, window.end_ns, side="left"))
        return self.where(np.flatnonzero(self.end[:last] > window.start_ns))


@dataclass(frozen=True)
class Slices:
    """A lane in a window: ``drawn`` one by one, and ``shares`` of the rest by (row, category, column).

    Slices keep their own start and end, also outside of the window. ``drawn`` is laid out in sub-rows so that no two
    slices of a row overlap; ``rest`` is how many slices are only in the shares, ``crowded`` how many of these are wide
    enough to be drawn and found no row.
    """

    drawn: Lane
    shares: Array
    rest: int
    crowded: int

    @property
    def rows(self) -> int:
        """Number of sub-rows that the lane needs, at least one."""
        return int(self.shares.shape[0])


def column_edges(window: Window, columns: int) -> Ints:
    """Borders of the columns in ns: ``columns`` + 1 of them, fewer where a column would be under 1 ns."""
    count = max(min(columns, window.dur_ns), 1)
    # In Python's integers: a window of days times a thousand columns leaves int64.
    return np.asarray([window.start_ns + window.dur_ns * i // count for i in range(count + 1)], np.int64)


def covered_shares(intervals: Intervals, window: Window, columns: int) -> Array:
    """Share of each column that the intervals cover, 0..1."""
    edges = column_edges(window, columns)
    width = np.maximum(edges[1:] - edges[:-1], 1)
    shares: Array = intervals.covered(edges[:-1], edges[1:]) / width
    return shares


def density(lane: Lane, window: Window, columns: int) -> Array:
    """Share of each column in which anything ran, split by category: an array (categories, columns).

    The sum over categories is the share of the union; where categories overlap in time, each takes its part of the
    union in proportion.
    """
    seen = lane.within(window)
    out = np.zeros((len(lane.categories), len(column_edges(window, columns)) - 1))
    if not len(seen):
        return out
    total = covered_shares(union(seen.start, seen.end), window, columns)
    merged, owner = merge_by_group(seen.start, seen.end, seen.category)
    for code in np.unique(owner).tolist():
        mine = owner == code
        out[code] = covered_shares(Intervals(merged.start[mine], merged.end[mine]), window, columns)
    summed = out.sum(axis=0)
    scale = np.divide(total, summed, out=np.zeros_like(summed), where=summed > 0)
    scaled: Array = out * scale
    return scaled


def slices(
    lane: Lane, window: Window, columns: int, *, narrowest: float = 1.0, most: int = 400, rows: int = 4
) -> Slices:
    """A lane in a window: slices of at least ``narrowest`` columns one by one, the longest ``most`` of them.

    Lanes of streams and requests get sub-rows where slices overlap, at most ``rows``. Other lanes keep their depth;
    what is deeper than ``rows`` goes to the shares of the last row.
    """
    seen = lane.within(window)
    low, high = np.maximum(seen.start, window.start_ns), np.minimum(seen.end, window.end_ns)
    length = high - low
    wide = length / window.dur_ns * columns >= narrowest
    nested = lane.kind in ("ranges", "calls")
    if nested:
        wide &= seen.row < rows
    picked = np.flatnonzero(wide & (length > 0))
    if len(picked) > most:
        longest = np.argpartition(-length[picked], most - 1)[:most]
        picked = np.sort(picked[longest])
    crowded = 0
    row = np.minimum(seen.row, rows - 1)
    if not nested:
        row = np.zeros(len(seen), np.int64)
        laid = sub_rows(low[picked], high[picked], rows)
        crowded = int((laid < 0).sum())
        row[picked] = np.maximum(laid, 0)
        picked = picked[laid >= 0]
    alone = np.zeros(len(seen), bool)
    alone[picked] = True
    count = int(row.max()) + 1 if len(seen) else 1
    laid_out = replace(seen, row=row)
    rest = laid_out.where(~alone)
    shares = np.zeros((count, len(lane.categories), len(column_edges(window, columns)) - 1))
    for number in range(count):
        shares[number] = density(rest.where(rest.row == number), window, columns)
    return Slices(laid_out.where(alone), shares, len(rest), crowded)


def sub_rows(start: Ints, end: Ints, most: int) -> Ints:
    """The lowest row in which each interval (in order of start) overlaps none; -1 where ``most`` are not enough."""
    out = np.full(len(start), -1, np.int64)
    free = list(range(most))
    busy: list[tuple[int, int]] = []
    for i, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
            out[i] = row
            heapq.heappush(busy, (ends, row))
    return out


def dominant(shares: Array) -> tuple[Ints, Array]:
    """(category that covers most of each column, share that all cover together) of an array (categories, columns)."""
    total: Array = shares.sum(axis=0)
    return shares.argmax(axis=0), total


def runs(values: Array) -> list[tuple[int, int, int]]:
    """Stretches of equal values as (first, one past the last, value)."""
    if not len(values):
        return []
    cut = np.flatnonzero(values[1:] != values[:-1]) + 1
    first = np.concatenate(([0], cut))
    last = np.concatenate((cut, [len(values)]))
    return list(zip(first.tolist(), last.tolist(), values[first].tolist(), strict=True))


def ticks(window: Window, most: int = 10) -> list[int]:
    """Round times inside a window, at most ``most``: multiples of 1, 2 or 5 times a power of ten ns."""
    step = next(s for e in range(19) for s in (10**e, 2 * 10**e, 5 * 10**e) if window.dur_ns // s < most)
    first = -(-window.start_ns // step) * step
    return list(range(first, window.end_ns + 1, step))
