"""Kernels that were launched during ranges: by the range's own thread, and by other threads of its process.

A range owns what its own thread launches. Where a framework launches from a worker thread (autograd's backward pass),
a range around it owns nothing although the GPU worked for it: then it is said which threads launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from profkit.analysis.work import KERNELS, Work
from profkit.arrays import distinct
from profkit.model import Array, Ints, Trace


@dataclass(frozen=True)
class RangeKernels:
    """Kernels launched during the ranges of one name."""

    own: int
    """By calls that lie inside of a range of the same thread."""
    others: int = 0
    """Where ``own`` is 0: by calls of other threads of the process that begin during a range."""
    threads: tuple[int, ...] = ()
    """Those threads, by their ids."""


@dataclass(frozen=True)
class Launches:
    """The call of each kernel, by track and by process, in order of time."""

    start: Ints
    end: Ints
    track: Array
    process: Array


def kernel_launches(trace: Trace, work: Work) -> Launches:
    """One row a kernel whose call was recorded."""
    call = work.call[(work.table == KERNELS) & (work.call >= 0)]
    start = trace.array("calls", "start_ns")[call]
    order = np.argsort(start, kind="stable")
    call, start = call[order], start[order]
    end = start + trace.array("calls", "dur_ns")[call]
    return Launches(start, end, trace.array("calls", "track")[call], trace.array("calls", "process")[call])


def range_kernels(trace: Trace, launches: Launches, groups: list[Ints]) -> list[RangeKernels]:
    """For each group of rows of ``spans`` its kernels."""
    if not len(launches.start) or not groups:
        return [RangeKernels(0) for _ in groups]
    rows = np.concatenate(groups)
    low = trace.array("spans", "start_ns")[rows]
    high = low + trace.array("spans", "dur_ns")[rows]
    track = trace.array("spans", "track")[rows]
    edges = np.cumsum([0, *(len(group) for group in groups)])
    # The calls of one thread follow each other: those inside end by the range's end and did not begin before it.
    inside = _count_until(launches.track, launches.end, track, high, "right")
    inside -= _count_until(launches.track, launches.start, track, low, "left")
    own = np.add.reduceat(np.maximum(inside, 0), edges[:-1]) if len(rows) else np.zeros(len(groups), np.int64)
    out = []
    for i, group in enumerate(groups):
        if own[i] or not len(group):
            out.append(RangeKernels(int(own[i])))
            continue
        part = slice(edges[i], edges[i + 1])
        out.append(_by_others(trace, launches, low[part], high[part], track[part]))
    return out


def _by_others(trace: Trace, launches: Launches, low: Ints, high: Ints, track: Array) -> RangeKernels:
    process = trace.array("tracks", "process")
    found: dict[int, int] = {}
    for other in distinct(launches.track).tolist():
        of_process = (process[track] == process[other]) & (track != other)
        if not of_process.any():
            continue
        start = launches.start[launches.track == other]
        first = np.searchsorted(start, low[of_process], side="left")
        # Ranges of one name may lie in each other: a kernel counts once.
        covered = np.zeros(len(start) + 1, np.int64)
        np.add.at(covered, first, 1)
        np.add.at(covered, np.searchsorted(start, high[of_process], side="right"), -1)
        count = int((np.cumsum(covered)[:-1] > 0).sum())
        if count:
            found[other] = count
    tids = trace.array("tracks", "tid")
    return RangeKernels(0, sum(found.values()), tuple(sorted(int(tids[other]) for other in found)))


def _count_until(group: Array, time: Ints, at_group: Array, at: Ints, side: Literal["left", "right"]) -> Ints:
    """How many of a group's times lie before each of ``at`` (with side right: or at it)."""
    count = np.zeros(len(at), np.int64)
    for one in distinct(at_group).tolist():
        mine = group == one
        times = time if mine.all() else time[mine]
        asked = np.flatnonzero(at_group == one)
        in_order = not (times[1:] < times[:-1]).any()
        count[asked] = np.searchsorted(times if in_order else np.sort(times), at[asked], side=side)
    return count
