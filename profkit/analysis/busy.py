"""Busy and idle time of each device: unions of intervals, never sums over streams or processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import NEVER
from profkit.analysis.work import COPIES, GRAPHS, KERNELS, Work
from profkit.arrays import chunks, distinct
from profkit.model import Array, Ints, Window


@dataclass(frozen=True)
class Runs:
    """Stretches of time in which a device, or the devices for a process, worked without a pause, in order.

    None is empty, none touches the next; ``first`` is the row of Work that begins each. ``owner`` is the row of devices
    or processes, -1 where the trace does not say it.
    """

    owner: int
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


def runs_of(work: Work, owner: Array) -> list[Runs]:
    """One entry an owner that has work, by owner; ``owner`` is the device or the process of each row of Work.

    Rows without a length make no run.
    """
    owners = distinct(owner).tolist()
    found: dict[int, _Open] = {one: _Open() for one in ([-1, *owners] if (owner < 0).any() else owners)}
    for at in chunks(len(work)):
        lasts = work.end[at] > work.start[at]
        for one, runs in found.items():
            mine = lasts if len(found) == 1 else lasts & (owner[at] == one)
            rows: Array | slice = slice(None) if mine.all() else np.flatnonzero(mine)
            runs.add(work.start[at][rows], work.end[at][rows], np.arange(at.start, at.stop, dtype=work.row.dtype)[rows])
    return [runs.close(one) for one, runs in found.items()]


class _Open:
    """Runs of one owner as its rows come in, in order of start: a run begins where nothing before reaches."""

    def __init__(self) -> None:
        self._reach = NEVER
        self._start: list[Ints] = []
        self._end: list[Ints] = []
        self._first: list[Array] = []

    def add(self, start: Ints, end: Ints, row: Array) -> None:
        if not len(start):
            return
        reach = np.maximum.accumulate(np.append(self._reach, end))
        before, self._reach = reach[:-1], int(reach[-1])
        new = np.flatnonzero(start > before)
        self._start.append(start[new])
        self._end.append(before[new])  # of the run before
        self._first.append(row[new])

    def close(self, owner: int) -> Runs:
        none = np.zeros(0, np.int64)
        start, ends = np.concatenate([none, *self._start]), [none, *self._end]
        end = np.concatenate([*ends, np.asarray([self._reach])])[1:] if len(start) else none
        first = np.concatenate([*self._first]) if self._first else none
        return Runs(owner, start, end, first)


def device_times(work: Work, runs: Sequence[Runs], window: Window) -> list[DeviceTime]:
    """One entry a device that has work, by row of devices."""
    out = []
    for run in runs:
        kernels, copies, graphs = (_time_of(work, run.owner, table) for table in (KERNELS, COPIES, GRAPHS))
        busy = run.total
        out.append(
            DeviceTime(
                device=run.owner,
                busy_ns=busy,
                kernel_ns=kernels[0],
                copy_ns=copies[0],
                graph_ns=graphs[0],
                idle_ns=window.dur_ns - busy,
                kernel_sum_ns=kernels[1],
                window_ns=window.dur_ns,
            )
        )
    return out


def _time_of(work: Work, device: int, table: int) -> tuple[int, int]:
    """(union, sum) of the rows of one table on a device, ns."""
    covered, total, reach = 0, 0, NEVER
    for at in chunks(len(work)):
        rows = np.flatnonzero((work.table[at] == table) & (work.device[at] == device))
        if len(rows):
            start, end = work.start[at][rows], work.end[at][rows]
            reaches = np.maximum.accumulate(np.append(reach, end))
            covered += int(np.maximum(end - np.maximum(start, reaches[:-1]), 0).sum())
            total += int((end - start).sum())
            reach = int(reaches[-1])
    return covered, total
