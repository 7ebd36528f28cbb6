"""Busy and idle time of each device: unions of intervals, never sums over streams or processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import Intervals, gaps, union
from profkit.analysis.work import COPIES, GRAPHS, KERNELS, Work
from profkit.model import Window


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


def device_times(work: Work, window: Window) -> list[DeviceTime]:
    """One entry a device that has work, by row of devices."""
    out = []
    for device in np.unique(work.device).tolist():
        rows = np.flatnonzero(work.device == device)
        start, end, table = work.start[rows], work.end[rows], work.table[rows]
        busy = union(start, end).total
        by_table = [union(start[table == kind], end[table == kind]).total for kind in (KERNELS, COPIES, GRAPHS)]
        kernels = table == KERNELS
        out.append(
            DeviceTime(
                device=int(device),
                busy_ns=busy,
                kernel_ns=by_table[KERNELS],
                copy_ns=by_table[COPIES],
                graph_ns=by_table[GRAPHS],
                idle_ns=window.dur_ns - busy,
                kernel_sum_ns=int((end[kernels] - start[kernels]).sum()),
                window_ns=window.dur_ns,
            )
        )
    return out


def device_gaps(work: Work, window: Window, device: int) -> Intervals:
    """When a device did nothing, inside the window."""
    rows = work.device == device
    return gaps(union(work.start[rows], work.end[rows]), window.start_ns, window.end_ns)
