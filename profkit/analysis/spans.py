"""Stage ranges as a tree, the GPU work that each launched, and who was innermost when.

GPU work belongs to the range that was open on the launching thread during the whole call. Host and GPU times of a
range are inclusive; self times go to the innermost stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import union_by_group
from profkit.analysis.work import Work
from profkit.arrays import depths, distinct, index_type, innermost, numbered, parents
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import NOT_WHOLE, SPAN_KINDS, STAGES

_START_END = SPAN_KINDS.index("start_end")
_REQUEST = STAGES.index("request")
_ROWS_AT_A_TIME = 1 << 21


@dataclass(frozen=True)
class Ranges:
    """Ranges that nest on their threads, sorted by (start, -length). ``row`` is their row of ``spans``."""

    row: Ints
    start: Ints
    end: Ints
    track: Array
    stage: Array
    whole: Mask
    parent: Ints
    """Position of the enclosing one among these ranges, -1 for none."""

    def __len__(self) -> int:
        return len(self.row)


def nested_ranges(trace: Trace, rows: Ints) -> Ranges:
    """The ranges of these rows of ``spans`` (in row order), as a tree of their own."""
    start = trace.array("spans", "start_ns")[rows]
    end = start + trace.array("spans", "dur_ns")[rows]
    track = trace.array("spans", "track")[rows]
    return Ranges(
        row=rows,
        start=start,
        end=end,
        track=track,
        stage=trace.array("spans", "stage")[rows],
        whole=(trace.array("spans", "flags")[rows] & NOT_WHOLE) == 0,
        parent=parents(start, end, track),
    )


def stage_ranges(trace: Trace) -> Ranges:
    """All stage ranges that nest on a thread.

    Requests that overlap each other own no GPU work of their own: a batch works for all of them. They are left out,
    as are ranges that end on another thread.
    """
    stage = trace.array("spans", "stage")
    rows = np.flatnonzero((stage >= 0) & (trace.array("spans", "end_track") == trace.array("spans", "track")))
    is_request = stage[rows] == _REQUEST
    keep = is_request | (trace.array("spans", "kind")[rows] != _START_END)
    requests = rows[is_request]
    start = trace.array("spans", "start_ns")[requests]
    process = trace.process_of(trace.array("spans", "track")[requests])
    shared = overlapping(process, start, start + trace.array("spans", "dur_ns")[requests])
    keep[is_request] = ~shared
    return nested_ranges(trace, rows[keep])


def overlapping(group: Array, start: Ints, end: Ints) -> Mask:
    """Which rows, in order of start, share time with another one of their group."""
    out = np.zeros(len(start), bool)
    for owner in np.unique(group).tolist():
        rows = np.flatnonzero(group == owner)
        reach = np.maximum.accumulate(end[rows])
        out[rows[1:]] |= start[rows[1:]] < reach[:-1]
        out[rows[:-1]] |= end[rows[:-1]] > start[rows[1:]]
    return out


def owners(trace: Trace, ranges: Ranges, work: Work) -> Array:
    """For each device row the innermost range around its whole call, as a position in ``ranges``; -1 for none."""
    out = np.full(len(work), -1, index_type(len(ranges)))
    known = work.call >= 0
    if not known.any() or not len(ranges):
        return out
    rows: Ints | slice = slice(None) if known.all() else np.flatnonzero(known)
    calls = work.call[rows]
    back: Ints | slice = slice(None)
    if (calls[1:] == calls[:-1]).any():  # a graph launch owns many rows: ask once
        calls, _, back = numbered(calls)
    start = trace.array("calls", "start_ns")[calls]
    end = start + trace.array("calls", "dur_ns")[calls]
    track = trace.array("calls", "track")[calls]
    out[rows] = innermost(ranges.start, ranges.end, ranges.track, ranges.parent, start, end, track)[back]
    return out


def ancestors(ranges: Ranges) -> Iterator[Array]:
    """For each depth, outermost last: the range of that depth around each range (or itself), -1 for none."""
    number = index_type(len(ranges))
    depth = depths(ranges.parent)
    at = np.arange(len(ranges), dtype=number)
    for level in range(int(depth.max(initial=-1)), -1, -1):
        yield np.where(depth[at] == level, at, number(-1))
        at = np.where((depth[at] == level) & (level > 0), ranges.parent[at].astype(number), at)


def gpu_time_by_range(work: Work, ranges: Ranges, owner: Array) -> Ints:
    """Union of the work launched inside of each whole range, of whatever depth; ns, -1 where nothing was.

    ``owner`` is the innermost range of each row of Work. A range lies at one depth, so a row counts once for each.
    """
    out = np.full(len(ranges), -1, np.int64)
    if not ranges.whole.all():
        whole, number = _whole_ranges(ranges)
        out[ranges.whole] = gpu_time_by_range(work, whole, np.append(number, -1)[owner])
        return out
    for around in ancestors(ranges):
        group = np.append(around, around.dtype.type(-1))[owner]  # the last one is for rows of no range
        rows = np.flatnonzero(group >= 0).astype(work.row.dtype)
        group = group[rows]
        found = distinct(group)
        out[found] = gpu_time_by_group(work, rows, group, len(ranges))[found]
    return out


def _whole_ranges(ranges: Ranges) -> tuple[Ranges, Ints]:
    """(those that were seen from start to end, the nearest of them around each range or itself, -1 for none).

    A program that never closes its ranges puts each one into the one before it: as deep as they are many.
    """
    near = np.where(ranges.whole, np.arange(len(ranges)), ranges.parent)
    while True:
        open_ones = np.flatnonzero((near >= 0) & ~ranges.whole[near])
        if not len(open_ones):
            break
        near[open_ones] = near[near[open_ones]]
    rows = np.flatnonzero(ranges.whole)
    number = np.append(np.cumsum(ranges.whole) - 1, -1)[near]
    parent = np.append(number, -1)[ranges.parent[rows]]
    whole = Ranges(
        row=ranges.row[rows],
        start=ranges.start[rows],
        end=ranges.end[rows],
        track=ranges.track[rows],
        stage=ranges.stage[rows],
        whole=ranges.whole[rows],
        parent=parent,
    )
    return whole, number


def gpu_time_by_group(work: Work, rows: Array, group: Array, groups: int) -> Ints:
    """Union of the rows of each group, per device, summed over devices; ns. Some groups at a time, to save memory."""
    total = np.zeros(groups, np.int64)
    if not len(rows):
        return total
    width = int(work.device.max()) + 1
    until = np.cumsum(np.bincount(group, minlength=groups))
    low = 0
    while low < groups:
        before = int(until[low - 1]) if low else 0
        high = max(int(np.searchsorted(until, before + _ROWS_AT_A_TIME, side="right")), low + 1)
        some = slice(None) if high - low == groups else np.flatnonzero((group >= low) & (group < high))
        mine = rows[some]
        key = (group[some].astype(np.int64) - low) * width + work.device[mine]
        merged = union_by_group(work.start[mine], work.end[mine], key, (high - low) * width)
        total[low:high] = merged.reshape(high - low, width).sum(axis=1)
        low = high
    return total


@dataclass(frozen=True)
class Timeline:
    """Which range is innermost, cut at every border: [start, end) on ``track`` belongs to position ``owner``."""

    start: Ints
    end: Ints
    track: Array
    owner: Ints


def innermost_timeline(ranges: Ranges) -> Timeline:
    """Cut each thread's time at the borders of its ranges; only pieces inside some range are listed."""
    lasts = np.flatnonzero(ranges.end > ranges.start)  # a range without a length is innermost nowhere
    n = len(lasts)
    at = np.concatenate((ranges.start[lasts], ranges.end[lasts]))
    opens = np.concatenate((np.ones(n, np.int8), np.zeros(n, np.int8)))
    who = np.concatenate((lasts, lasts))
    track = np.concatenate((ranges.track[lasts], ranges.track[lasts]))
    # At one instant: ends before starts, inner ends first, outer starts first; positions grow inwards.
    order = np.lexsort((np.where(opens == 1, who, -who), opens, at, track))
    after = np.where(opens[order] == 1, who[order], ranges.parent[who[order]] if n else who[order])
    start, track = at[order], track[order]
    keep = np.flatnonzero((after[:-1] >= 0) & (start[1:] > start[:-1]) & (track[1:] == track[:-1])) if n else who
    return Timeline(start[keep], start[keep + 1] if n else start, track[keep], after[keep])
