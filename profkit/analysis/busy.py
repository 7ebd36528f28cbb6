"""Busy and idle time of each device: unions of intervals, never sums over streams or processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import union
from profkit.analysis.work import COPIES, GRAPHS, KERNELS, Work
from profkit.model import Array, Ints, Window


@dataclass(frozen=True)
class Runs:
    """Stretches of time in which a device worked without a pause, in order; none is empty, none touches the next.

    ``first`` is the row of Work that begins each.
    """

    device: int
    start: Ints
    end: Ints
    first: Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """Summed length, ns."""
        return int((self.end - self.start).sum())


@dataclass(frozen=True)
class DeviceTime:
    """Times of one device inside the window, ns; busy + idle = window.

    ``kernel_ns``, ``copy_ns`` and ``graph_ns`` are unions of their own kind: where they overlap they add up to more
    than ``busy_ns``. ``kernel_sum_ns`` is the sum of kernel lengths over streams.
    """

    device: int
    busy_ns: int
    kernel_ns: int
    copy_ns: int
    graph_ns: int
    idle_ns: int
    kernel_sum_ns: int
    window_ns: int

    @property
    def busy_share(self) -> float | None:
        """Of the window; None for an empty window."""
        return self.busy_ns / self.window_ns if self.window_ns else None


def device_runs(work: Work) -> list[Runs]:
    """One entry a device that has work, by row of devices; rows without a length make no run."""
    devices = np.unique(work.device)
    lasts = bool((work.end > work.start).all())
    out = []
    for device in devices.tolist():
        rows: Array | slice = slice(None)
        if len(devices) > 1 or not lasts:
            rows = np.flatnonzero((work.device == device) & (work.end > work.start)).astype(work.row.dtype)
        start, end = work.start[rows], work.end[rows]
        # Rows of Work are in order of start: a run begins where nothing before reaches.
        reach = np.maximum.accumulate(end)
        first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
        last = np.append(first[1:] - 1, len(start) - 1)[: len(first)]
        out.append(Runs(device, start[first], reach[last], (first if isinstance(rows, slice) else rows[first])))
    return out


def device_times(work: Work, runs: Sequence[Runs], window: Window) -> list[DeviceTime]:
    """One entry a device that has work, by row of devices."""
    out = []
    for run in runs:
        mine = work.device == run.device
        by_table = []
        for kind in (KERNELS, COPIES, GRAPHS):
            rows = np.flatnonzero(mine & (work.table == kind))
            start, end = work.start[rows], work.end[rows]
            by_table.append(union(start, end).total)
            if kind == KERNELS:
                kernel_sum = int((end - start).sum())
        busy = run.total
        out.append(
            DeviceTime(
                device=run.device,
                busy_ns=busy,
                kernel_ns=by_table[KERNELS],
                copy_ns=by_table[COPIES],
                graph_ns=by_table[GRAPHS],
                idle_ns=window.dur_ns - busy,
                kernel_sum_ns=kernel_sum,
                window_ns=window.dur_ns,
            )
        )
    return out
