"""Stage ranges as a tree, the GPU work that each launched, and who was innermost when.

GPU work belongs to the range that was open on the launching thread during the whole call. Host and GPU times of a
range are inclusive; self times go to the innermost stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import union_by_group
from profkit.analysis.work import Work
from profkit.arrays import innermost, numbered, parents
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import NOT_WHOLE, SPAN_KINDS, STAGES

_START_END = SPAN_KINDS.index("start_end")
_REQUEST = STAGES.index("request")


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


def owners(trace: Trace, ranges: Ranges, work: Work) -> Ints:
    """For each device row the innermost range around its whole call, as a position in ``ranges``; -1 for none."""
    out = np.full(len(work), -1, np.int64)
    rows = np.flatnonzero(work.call >= 0)
    if not len(rows) or not len(ranges):
        return out
    calls, _, back = numbered(work.call[rows])
    start = trace.array("calls", "start_ns")[calls]
    end = start + trace.array("calls", "dur_ns")[calls]
    track = trace.array("calls", "track")[calls]
    found = innermost(ranges.start, ranges.end, ranges.track, ranges.parent, start, end, track)
    out[rows] = found[back]
    return out


def inclusive(ranges: Ranges, owner: Ints) -> tuple[Ints, Ints]:
    """Pairs (device row, range) for every range around a row's call: the innermost one and all of its ancestors."""
    rows = np.flatnonzero(owner >= 0)
    at = owner[rows]
    row_parts, range_parts = [rows], [at]
    while len(at):
        at = ranges.parent[at]
        rows, at = rows[at >= 0], at[at >= 0]
        row_parts.append(rows)
        range_parts.append(at)
    return np.concatenate(row_parts), np.concatenate(range_parts)


def gpu_time_by_group(work: Work, rows: Ints, group: Array, groups: int) -> Ints:
    """Union of the rows of each group, per device, summed over devices; ns."""
    width = int(work.device.max()) + 1 if len(work) else 1
    merged = union_by_group(work.start[rows], work.end[rows], group * width + work.device[rows], groups * width)
    total: Ints = merged.reshape(groups, width).sum(axis=1)
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
    n = len(ranges)
    at = np.concatenate((ranges.start, ranges.end))
    opens = np.concatenate((np.ones(n, np.int8), np.zeros(n, np.int8)))
    who = np.concatenate((np.arange(n), np.arange(n)))
    track = np.concatenate((ranges.track, ranges.track))
    # At one instant: ends before starts, inner ends first, outer starts first; positions grow inwards.
    order = np.lexsort((np.where(opens == 1, who, -who), opens, at, track))
    after = np.where(opens[order] == 1, who[order], ranges.parent[who[order]] if n else who[order])
    start, track = at[order], track[order]
    keep = np.flatnonzero((after[:-1] >= 0) & (start[1:] > start[:-1]) & (track[1:] == track[:-1])) if n else who
    return Timeline(start[keep], start[keep + 1] if n else start, track[keep], after[keep])
