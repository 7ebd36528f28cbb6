"""Where a host thread waits for the device: synchronisations, and copies whose call returns only when they are done.

Whether a copy's call blocked is read from its end against the end of the copy, never from its name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.busy import Runs
from profkit.analysis.calls import COPY, SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.spans import nested_ranges
from profkit.analysis.work import COPIES
from profkit.arrays import innermost, previous_in
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import COPY_KINDS, FLAG_OPEN_END, MEMORY_KINDS, SPAN_KINDS

_D2H = COPY_KINDS.index("d2h")
_PAGEABLE = MEMORY_KINDS.index("pageable")


@dataclass(frozen=True)
class Waits:
    """Calls that waited, in order of start. ``copy`` is the device-to-host copy that the wait is for, -1 for none.

    A copy's call and the synchronisation right behind it on the thread are two waits for the same copy.
    """

    call: Ints
    start: Ints
    end: Ints
    copy: Ints
    is_sync: Mask
    step: Ints
    process: Array

    def __len__(self) -> int:
        return len(self.call)

    def where(self, keep: Mask) -> Waits:
        return Waits(
            self.call[keep],
            self.start[keep],
            self.end[keep],
            self.copy[keep],
            self.is_sync[keep],
            self.step[keep],
            self.process[keep],
        )


def find_waits(analysis: Analysis) -> Waits:
    """All waits of a trace."""
    trace = analysis.trace
    start, end = trace.array("calls", "start_ns"), analysis.call_end
    whole = (trace.array("calls", "flags") & FLAG_OPEN_END) == 0
    is_sync = (analysis.call_kind == SYNC) & whole
    copy_of_call = _read_backs(analysis)
    blocking = np.zeros(len(start), bool)
    known = np.flatnonzero(copy_of_call >= 0)
    copy_end = trace.array("copies", "start_ns") + trace.array("copies", "dur_ns")
    blocking[known] = end[known] >= copy_end[copy_of_call[known]]
    # A synchronisation right behind a read-back waits for it.
    behind = previous_in(trace.array("calls", "track"))
    follows = is_sync & (behind >= 0)
    copy = np.where(follows, copy_of_call[np.maximum(behind, 0)] if len(start) else -1, copy_of_call)
    rows = np.flatnonzero((is_sync | (blocking & whole)) & analysis.begins_inside("calls"))
    process = trace.array("calls", "process")[rows]
    step = analysis.step_of_time(start[rows], process)
    return Waits(rows, start[rows], end[rows], copy[rows], is_sync[rows], step, process)


def _read_backs(analysis: Analysis) -> Ints:
    """Row of ``copies`` of each call that copies from the device to the host, -1 for other calls."""
    work = analysis.whole_work
    out = np.full(analysis.trace.rows("calls"), -1, np.int64)
    rows = np.flatnonzero((work.table == COPIES) & (work.call >= 0))
    rows = rows[analysis.trace.array("copies", "kind")[work.row[rows]] == _D2H]
    rows = rows[analysis.call_kind[work.call[rows]] == COPY]
    out[work.call[rows]] = work.row[rows]
    return out


@dataclass(frozen=True)
class WaitTime:
    """What became of the time that a host waited, ns; the three parts add up to ``waited``."""

    waited: int
    busy: int
    """The GPUs of the process worked meanwhile."""
    queued: int
    """They stood still between rows that had been submitted before: no wait of the host's doing."""
    drained: int
    """They stood still with nothing submitted: what removing the wait alone can give back at most."""
    drained_each: Ints
    """``drained`` of each wait alone; where waits overlap these add up to more."""


def wait_time(analysis: Analysis, waits: Waits) -> WaitTime:
    """Time of the waits, overlaps counted once, by what the GPUs of the waiting process did meanwhile."""
    waited = busy = queued = 0
    each = waits.end - waits.start
    for process in np.unique(waits.process).tolist():
        of_process = waits.process == process
        mine = waits.where(of_process)
        span = union(mine.start, mine.end)
        waited += span.total
        runs = analysis.process_runs.get(process)
        if runs is None or not len(runs):
            continue
        working, gaps = Intervals(runs.start, runs.end), _queued(analysis, runs, span)
        busy += int(working.covered(span.start, span.end).sum())
        queued += int(gaps.covered(span.start, span.end).sum())
        each[of_process] -= working.covered(mine.start, mine.end) + gaps.covered(mine.start, mine.end)
    return WaitTime(waited, busy, queued, waited - busy - queued, each)


def _queued(analysis: Analysis, runs: Runs, span: Intervals) -> Intervals:
    """The gaps between these runs that touch ``span`` and whose next operation had been submitted when they began."""
    low = np.searchsorted(runs.start[1:], span.start, side="right")
    high = np.searchsorted(runs.end[:-1], span.end, side="left")
    low = np.maximum(low, np.append(0, np.maximum.accumulate(high)[:-1])[: len(low)])  # a gap may touch several of them
    count = np.maximum(high - low, 0)
    gap = np.arange(int(count.sum())) + np.repeat(low - (np.cumsum(count) - count), count)
    start, end = runs.end[gap], runs.start[gap + 1]
    call = analysis.work.call[runs.first[gap + 1]]
    before = call >= 0
    before[before] = analysis.trace.array("calls", "start_ns")[call[before]] < start[before]
    return Intervals(start[before], end[before])


def is_pageable(trace: Trace, copies: Ints) -> Mask:
    """Which copies have pageable memory on their host side."""
    mask: Mask = (trace.array("copies", "src_kind")[copies] == _PAGEABLE) | (
        trace.array("copies", "dst_kind")[copies] == _PAGEABLE
    )
    return mask


def callers(trace: Trace, calls: Ints, kinds: tuple[str, ...], outermost: bool = False) -> Ints:
    """Row of ``spans`` of the innermost (or outermost) range of these kinds around each call, -1 for none."""
    if not trace.rows("spans") or not len(calls):
        return np.full(len(calls), -1, np.int64)
    track = trace.array("calls", "track")[calls]
    codes = [SPAN_KINDS.index(kind) for kind in kinds]
    rows = np.flatnonzero(
        np.isin(trace.array("spans", "kind"), codes) & np.isin(trace.array("spans", "track"), np.unique(track))
    )
    ranges = nested_ranges(trace, rows)
    start = trace.array("calls", "start_ns")[calls]
    end = start + trace.array("calls", "dur_ns")[calls]
    found = innermost(ranges.start, ranges.end, ranges.track, ranges.parent, start, end, track)
    if outermost:
        while True:
            up = (
                (found >= 0) & (ranges.parent[np.maximum(found, 0)] >= 0) if len(ranges) else np.zeros(len(found), bool)
            )
            if not up.any():
                break
            found[up] = ranges.parent[found[up]]
    return np.where(found >= 0, rows[np.maximum(found, 0)], -1) if len(rows) else found
