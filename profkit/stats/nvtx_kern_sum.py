"""Kernels by the NVTX ranges around their launch calls: each kernel counts in every one of them.

Kernels of a thread are sorted by the start of their call, so that those of a range stand side by side. Ranges of one
name are taken together, and as many names at a time as PAIRS allows: memory does not grow with the depth of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profkit.arrays import key_of, numbered, pack
from profkit.model import Array, Ints, Trace
from profkit.stats import KERNEL_NAMES, Arguments, Column, Listing, Report
from profkit.stats._kernels import calls_of, threads
from profkit.stats._ranges import STYLES, Ranges, find_ranges
from profkit.stats._slices import covered
from profkit.stats._summary import by_label, known, spread, spread_columns, summarize, whole_rows, words

NO_CALL = -2
PAIRS = 4_000_000
"""Pairs of a range and a kernel that are in memory at a time, unless the ranges of one name have more."""


@dataclass(frozen=True)
class _Kernels:
    """Kernels in order of (thread, start of their call)."""

    call_start: Ints
    call_end: Ints
    track: Array
    """Lane of the thread, NO_CALL where no call was recorded: that is no lane of any range."""
    dur: Ints
    name: Ints


@dataclass(frozen=True)
class _Part:
    """Rows of the listing: a range name of a thread and a kernel name each; name and style are -1 outside any range."""

    name: Ints
    style: Ints
    track: Ints
    kernel: Ints
    ranges: Ints
    kernels: Ints
    total: Ints
    spread: tuple[Array, ...]


def build(trace: Trace, arguments: Arguments) -> Listing:
    ranges = find_ranges(trace, one_thread=True)
    whole, remarks = whole_rows(trace, "kernels")
    kernels, kernel_names = _kernels(trace, np.flatnonzero(whole), arguments)
    low, high = _slices(kernels, ranges)
    parts = [_outside(kernels, ranges)]
    parts += [_inside(kernels, ranges, rows, low, high) for rows in _batches(ranges, low, high)]
    part = _joined(parts)
    pid, tid = threads(trace, np.maximum(part.track, -1))
    columns = [
        (Column("NVTX Range", "nvtx_range"), words(part.name, ranges.names)),
        (Column("Style", "style"), words(part.style, STYLES)),
        (Column("PID", "pid"), known(pid)),
        (Column("TID", "tid"), known(tid)),
        (Column("NVTX Inst", "nvtx_instances"), pa.array(part.ranges)),
        (Column("Kern Inst", "kernel_instances"), pa.array(part.kernels)),
        (Column("Total Time (ns)", "total_time_ns"), pa.array(part.total)),
        *zip(spread_columns(), (pa.array(values) for values in part.spread), strict=True),
        (Column("Kernel Name", "kernel_name"), words(part.kernel, kernel_names)),
    ]
    by_name = np.append(_ranks(ranges.names), -1)
    order = pa.array(np.lexsort((-part.total, tid, pid, by_name[part.name])))
    return Listing(
        tuple(column for column, _ in columns),
        tuple(values.take(order) for _, values in columns),
        (*ranges.remarks, *remarks),
    )


def _kernels(trace: Trace, rows: Ints, arguments: Arguments) -> tuple[_Kernels, list[str]]:
    call = calls_of(trace, "kernels")[rows]
    start = np.append(trace.array("calls", "start_ns"), 0)[call]
    end = start + np.append(trace.array("calls", "dur_ns"), 0)[call]
    track = np.append(trace.array("calls", "track"), NO_CALL)[call]
    names, labels = by_label(trace, trace.array("kernels", "name")[rows], column=arguments.kernel_name)
    order = np.lexsort((start, track))
    dur = trace.array("kernels", "dur_ns")[rows]
    return _Kernels(start[order], end[order], track[order], dur[order], names[order]), labels


def _slices(kernels: _Kernels, ranges: Ranges) -> tuple[Ints, Ints]:
    """Slice of the kernels whose call began inside each range; the last ones may have ended outside."""
    key, low, high = pack(
        [
            [kernels.track, ranges.track, ranges.track],
            [kernels.call_start, ranges.start, ranges.end],
        ]
    )
    low, high = np.searchsorted(key, low, side="left"), np.searchsorted(key, high, side="right")
    return low, np.maximum(low, high)


def _batches(ranges: Ranges, low: Ints, high: Ints) -> Iterator[Ints]:
    """Ranges with kernels, all of one name, style and thread together, up to PAIRS pairs at a time."""
    rows = np.flatnonzero(high > low)
    if not len(rows):
        return
    group = _group_key(ranges, rows)
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    pairs = np.add.reduceat((high - low)[rows], first)
    batch = (np.cumsum(pairs) - pairs) // PAIRS
    cuts = first[np.flatnonzero(np.diff(batch, prepend=-1))]
    yield from np.split(rows, cuts[1:])


def _group_key(ranges: Ranges, rows: Ints) -> Ints:
    """Equal for ranges of one name, style and thread."""
    return key_of(ranges.name[rows], ranges.style[rows], ranges.track[rows])


def _inside(kernels: _Kernels, ranges: Ranges, rows: Ints, low: Ints, high: Ints) -> _Part:
    """Kernels of these ranges by (range name, style, thread, kernel name)."""
    count = (high - low)[rows]
    owner = np.repeat(np.arange(len(rows)), count)
    kernel = np.arange(len(owner)) + np.repeat(low[rows] - (np.cumsum(count) - count), count)
    held = kernels.call_end[kernel] <= ranges.end[rows][owner]
    if not held.all():
        owner, kernel = owner[held], kernel[held]
    group = _group_key(ranges, rows)
    group = np.cumsum(np.diff(group, prepend=group[0]) != 0)  # ranges of one group stand together
    width = int(kernels.name.max(initial=0)) + 1
    keys, first, codes = numbered(group[owner] * width + kernels.name[kernel])
    groups = summarize(codes, kernels.dur[kernel])
    at = rows[owner[first]]
    return _Part(
        name=ranges.name[at],
        style=ranges.style[at].astype(np.int64),
        track=ranges.track[at].astype(np.int64),
        kernel=keys % width,
        ranges=_distinct(codes, owner, len(first)),
        kernels=_distinct(codes, kernel, len(first)),
        total=groups.total,
        spread=spread(groups),
    )


def _outside(kernels: _Kernels, ranges: Ranges) -> _Part:
    """Kernels in no range, by (thread, kernel name): nsys lists them without a range."""
    held = covered(ranges.start, ranges.end, ranges.track, kernels.call_start, kernels.call_end, kernels.track)
    rows = np.flatnonzero(~held)
    _, first, codes = numbered(key_of(kernels.track[rows], kernels.name[rows]))
    groups = summarize(codes, kernels.dur[rows])
    absent = np.full(len(first), -1, np.int64)
    return _Part(
        name=absent,
        style=absent,
        track=kernels.track[rows][first].astype(np.int64),
        kernel=kernels.name[rows][first],
        ranges=np.zeros(len(first), np.int64),
        kernels=groups.count,
        total=groups.total,
        spread=spread(groups),
    )


def _distinct(codes: Ints, values: Ints, groups: int) -> Ints:
    """Number of distinct values of each group; values are small and not negative."""
    width = int(values.max(initial=0)) + 1
    if groups * width < 1 << 62:
        key = np.sort(codes * width + values)
        return np.bincount(key[np.flatnonzero(np.diff(key, prepend=-1))] // width, minlength=groups)
    order = np.lexsort((values, codes))
    fresh = (np.diff(codes[order], prepend=-1) != 0) | (np.diff(values[order], prepend=-1) != 0)
    return np.bincount(codes[order][fresh], minlength=groups)


def _joined(parts: list[_Part]) -> _Part:
    def of(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    columns = zip(*(part.spread for part in parts), strict=True)
    return _Part(
        of("name"), of("style"), of("track"), of("kernel"), of("ranges"), of("kernels"), of("total"),
        tuple(np.concatenate(column) for column in columns),
    )  # fmt: skip


def _ranks(names: list[str]) -> Ints:
    """Place of each name in alphabetical order."""
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return rank


REPORT = Report(
    name="nvtx_kern_sum",
    former_name="nvtxkernsum",
    title="NVTX Range Kernel Summary",
    what="GPU kernels in NVTX ranges",
    tables=("kernels",),
    together=("spans", "calls", "kernels"),
    build=build,
    arguments=KERNEL_NAMES,
)
