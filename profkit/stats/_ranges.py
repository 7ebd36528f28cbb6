"""NVTX ranges as the reports see them: names with domains, styles, ends, and the range around each on its thread.

Annotations of the PyTorch profiler nest on their thread as push/pop ranges do, and are listed as such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import text
from profkit.arrays import depths, innermost, key_of, numbered, pack, parents
from profkit.model import Array, Ints, Trace
from profkit.schema import FLAG_OPEN_END, SPAN_KINDS
from profkit.stats._slices import Chain, chains, range_min, slices
from profkit.stats._summary import name_texts

STYLES = ("PushPop", "StartEnd")
PUSH_POP, START_END = range(2)
_MARK = SPAN_KINDS.index("mark")
_STYLE = {"push_pop": PUSH_POP, "annotation": PUSH_POP, "start_end": START_END}


@dataclass(frozen=True)
class Ranges:
    """Ranges in order of (start, longest first)."""

    id: Ints
    """Column ``id`` of ``spans``."""
    start: Ints
    end: Ints
    track: Array
    style: Array
    """Position in STYLES."""
    name: Ints
    """Position in ``names``."""
    names: list[str]
    """``domain:text``; the default domain has no name: ``:text``."""
    remarks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.id)

    @property
    def dur(self) -> Ints:
        return self.end - self.start


def find_ranges(trace: Trace, *styles: int, one_thread: bool = False, whole: bool = False) -> Ranges:
    """Ranges of these styles (all if none is given).

    With ``one_thread`` only those that end where they began. Ranges that were never closed end with the last NVTX
    event, as in nsys; with ``whole`` they are left out: they have no length of their own.
    """
    kind = trace.array("spans", "kind")
    style = np.full(len(SPAN_KINDS), -1, np.int8)
    for word, code in _STYLE.items():
        style[SPAN_KINDS.index(word)] = code
    style_of = style[kind]
    keep = np.isin(style_of, styles or (PUSH_POP, START_END))
    remarks = []
    track = trace.array("spans", "track")
    if one_thread:
        elsewhere = keep & (trace.array("spans", "end_track") != track)
        keep &= ~elsewhere
        if elsewhere.any():
            said = text.count(int(elsewhere.sum()), "range")
            remarks.append(f"{said} left out: ended on another thread")
    is_open = (trace.array("spans", "flags") & FLAG_OPEN_END) != 0
    if whole:
        unseen = int((keep & is_open).sum())
        if unseen:
            remarks.append(f"{text.count(unseen, 'unclosed range')} left out: not seen to end")
        keep &= ~is_open
    rows = np.flatnonzero(keep)
    start, end, unclosed = _ends(trace, kind, style_of, rows)
    if unclosed:
        remarks.append(f"{text.count(unclosed, 'unclosed range')}: counted to the last NVTX event, as nsys does")
    order = np.lexsort((rows, -end, start)) if unclosed else np.arange(len(rows))
    names, labels = _names(trace, rows)
    return Ranges(
        id=trace.array("spans", "id")[rows][order],
        start=start[order],
        end=end[order],
        track=track[rows][order],
        style=style_of[rows][order],
        name=names[order],
        names=labels,
        remarks=tuple(remarks),
    )


def _ends(trace: Trace, kind: Array, style: Array, rows: Ints) -> tuple[Ints, Ints, int]:
    """(start, end, how many were never closed); those end at the last time stamp of any range or mark."""
    start_all = trace.array("spans", "start_ns")
    end_all = start_all + trace.array("spans", "dur_ns")
    is_open = (trace.array("spans", "flags") & FLAG_OPEN_END) != 0
    start, end, open_rows = start_all[rows], end_all[rows], is_open[rows]
    count = int(open_rows.sum())
    if count:
        seen = (style >= 0) | (kind == _MARK)
        last = int(np.where(is_open, start_all, end_all)[seen].max())
        end = np.where(open_rows, last, end)
    return start, end, count


def _names(trace: Trace, rows: Ints) -> tuple[Ints, list[str]]:
    domain, name = trace.array("spans", "domain")[rows], trace.array("spans", "name")[rows]
    _, first, codes = numbered(key_of(domain, name))
    pairs = zip(name_texts(trace, domain[first]), name_texts(trace, name[first]), strict=True)
    # Two rows of names never hold one text, but "a" with "b:c" and "a:b" with "c" are listed as one.
    distinct: dict[str, int] = {}
    lookup = [distinct.setdefault(f"{where}:{what}", len(distinct)) for where, what in pairs]
    return np.asarray(lookup, np.int64)[codes] if lookup else codes, list(distinct)


@dataclass(frozen=True)
class Tree:
    """The tightest range around each range on its thread."""

    parent: Ints
    """Position in the ranges, -1 for none."""
    level: Ints

    def children(self, counted: Array) -> Ints:
        """Number of direct children of each range among those that ``counted`` marks."""
        has = counted & (self.parent >= 0)
        return np.bincount(self.parent[has], minlength=len(self.parent))

    def sum_children(self, values: Ints) -> Ints:
        """Sum of a value over the direct children of each range."""
        total = np.zeros(len(self.parent), np.int64)
        has = self.parent >= 0
        np.add.at(total, self.parent[has], values[has])
        return total


def tree(ranges: Ranges) -> Tree:
    """Who stands around whom: of all ranges of the thread that cover a range, the shortest.

    Among push/pop ranges, which nest, that is the nearest one. Start/end ranges may overlap anything: what covers a
    range is a slice of each of their chains, and the shortest of a slice is looked up.
    """
    parent = parents(ranges.start, ranges.end, ranges.track)
    free = np.flatnonzero(ranges.style == START_END)
    if len(free):
        parent = _shorter(ranges, parent, _nested_around(ranges))
        for chain in chains(ranges.start[free], ranges.end[free], ranges.track[free]):
            parent = _shorter(ranges, parent, _shortest_of(ranges, free[chain.rows], chain))
    return Tree(parent, depths(parent))


def _shorter(ranges: Ranges, parent: Ints, other: Ints) -> Ints:
    """The shorter one of two candidates, -1 for none; of two equally short ones the inner, which is the later one."""
    far = np.iinfo(np.int64).max
    dur = np.append(ranges.dur, far)
    better = (dur[other] < dur[parent]) | ((dur[other] == dur[parent]) & (other > parent))
    return np.where(better, other, parent)


def _nested_around(ranges: Ranges) -> Ints:
    """The push/pop range around each range."""
    nested = np.flatnonzero(ranges.style == PUSH_POP)
    start, end, track = ranges.start[nested], ranges.end[nested], ranges.track[nested]
    inside = np.append(parents(start, end, track), -1)
    found = innermost(start, end, track, inside[:-1], ranges.start, ranges.end, ranges.track)
    # Of two ranges with the same ends the earlier one is the outer: a range is never inside itself or a later one.
    position = np.append(nested, -1)
    own = np.arange(len(ranges))
    while (position[found] >= own).any():
        found = np.where(position[found] >= own, inside[found], found)
    return position[found]


def _shortest_of(ranges: Ranges, members: Ints, chain: Chain) -> Ints:
    """The shortest member of a chain of start/end ranges around each range, -1 for none."""
    low, high = slices(chain, ranges.start, ranges.end, ranges.track, covering=True)
    # Members stand in order of (track, position): what comes before the range itself is a slice, too.
    own, at = pack([[ranges.track[members], ranges.track], [members, np.arange(len(ranges))]])
    high = np.minimum(high, np.searchsorted(own, at, side="left"))
    asked = np.flatnonzero(high > low)
    by_length = np.lexsort((-members, ranges.dur[members]))
    rank = np.empty(len(members), np.int64)
    rank[by_length] = np.arange(len(members))
    out = np.full(len(ranges), -1, np.int64)
    out[asked] = members[by_length[range_min(rank, low[asked], high[asked])]]
    return out


def numbers(ranges: Ranges) -> Ints:
    """RangeId of each range: its ``id`` in ``spans`` counted from 1, which survives filters."""
    return ranges.id + 1


def stacks(ids: Ints, found: Tree) -> pa.Array:
    """RangeStack of each range: the ids from the outermost range to itself, as in ``:1:4:7``."""
    own = pa.array(ids).cast(pa.large_string())
    order = np.argsort(found.level, kind="stable")
    place = np.empty(len(order), np.int64)
    borders = np.searchsorted(found.level[order], np.arange(int(found.level.max(initial=-1)) + 2))
    parts = [pa.array([], pa.large_string())]
    for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        rows = order[low:high]
        ahead = parts[-1].take(pa.array(place[found.parent[rows]])) if low else pa.array([""] * len(rows), own.type)
        parts.append(pc.binary_join_element_wise(ahead, own.take(pa.array(rows)), pa.scalar(":", own.type)))
        place[rows] = np.arange(len(rows))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(back))
