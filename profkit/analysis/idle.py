"""Why a device did nothing: every idle nanosecond has one cause.

The host thread that issued the operation ending a gap decides. Until its call returned, the gap is cut where that
thread's state changes: in a launch, copy, synchronisation or allocator call; in an operating system wait; in a CPU
stage; else in its own code (python). After the call returned the device had its work and was not there yet: launch
latency, as long as it is short enough to be that. Without a recorded call, and for the rest of a long delay (the device
was held by something that this capture does not show), the cause is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.busy import device_gaps
from profkit.analysis.calls import ALLOCATOR, COPY, GRAPH_LAUNCH, LAUNCH, MEMSET, MODULE_LOAD, SYNC, call_kinds
from profkit.analysis.intervals import EMPTY, Intervals, subtract, union
from profkit.analysis.spans import Ranges, innermost_timeline
from profkit.analysis.work import Work
from profkit.arrays import sort_order
from profkit.model import Array, Ints, Trace, Window
from profkit.schema import STAGES

CPU_STAGES = ("schedule", "tokenize", "sample", "detokenize")
"""Stages whose own host work has a name of its own; inside the others it is called python."""

# Calls that neither submit work nor wait for it (creating a stream, asking for a property) are the host's own work.
_CALL_CAUSE = {
    LAUNCH: "launch_call",
    GRAPH_LAUNCH: "launch_call",
    SYNC: "sync",
    COPY: "copy_call",
    MEMSET: "copy_call",
    ALLOCATOR: "allocator",
    MODULE_LOAD: "module_load",
}
CALL_CAUSES = ("launch_call", "copy_call", "sync", "allocator", "module_load")
HOST_CAUSES = ("python", *(f"stage_{stage}" for stage in CPU_STAGES), "os_wait")
CAUSES = (*HOST_CAUSES, *CALL_CAUSES, "launch_latency", "unknown")
APART = ("not_collected", "startup", "tail")

LONGEST_LATENCY_NS = 100_000
"""More than this between the end of a launch call and the start of its work is no dispatch."""

_WAITS = ("poll", "futex", "sem_", "pthread_cond", "nanosleep", "epoll", "select", "read", "recv", "accept", "wait")


@dataclass(frozen=True)
class Idle:
    """Gaps between device work. ``parts[cause]`` is how much of each gap that cause takes; the parts add up to it."""

    device: Array
    start: Ints
    end: Ints
    ends_at: Ints
    """Device row (position in Work) whose start ends the gap."""
    parts: dict[str, Ints]
    apart: dict[int, dict[str, int]]
    """device -> {startup, tail, not_collected}: time in the window before its first, after its last row, or outside of
    collection."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> Ints:
        return self.end - self.start

    def by_cause(self, device: int | None = None) -> dict[str, int]:
        """Summed idle time by cause; with the apart ones it adds up to the idle time of the device, or of all."""
        mine = slice(None) if device is None else self.device == device
        totals = {cause: int(part[mine].sum()) for cause, part in self.parts.items()}
        for row, apart in self.apart.items():
            if device is None or row == device:
                for cause, value in apart.items():
                    totals[cause] = totals.get(cause, 0) + value
        return totals


def find_idle(trace: Trace, work: Work, ranges: Ranges, window: Window) -> Idle:
    """Gaps of every device inside the window, with their causes."""
    devices, starts, ends, rows = [], [], [], []
    apart: dict[int, dict[str, int]] = {}
    for device in np.unique(work.device).tolist():
        mine = np.flatnonzero((work.device == device) & (work.end > work.start))
        gaps = device_gaps(work, window, device)
        if not len(mine):
            apart[device] = {"not_collected": 0, "startup": gaps.total, "tail": 0}
            continue
        first, last = int(work.start[mine[0]]), int(work.end[mine].max())
        inner = (gaps.start >= first) & (gaps.end <= last)
        apart[device] = {
            "startup": int((gaps.end - gaps.start)[gaps.end <= first].sum()),
            "tail": int((gaps.end - gaps.start)[gaps.start >= last].sum()),
        }
        starts.append(gaps.start[inner])
        ends.append(gaps.end[inner])
        devices.append(np.full(int(inner.sum()), device))
        rows.append(mine[np.searchsorted(work.start[mine], gaps.end[inner], side="left")])
    if not starts:
        none = np.zeros(0, np.int64)
        return Idle(none, none, none, none, dict.fromkeys(CAUSES, none), apart)
    start, end, row, device = (np.concatenate(part) for part in (starts, ends, rows, devices))
    outside = _outside_collection(trace, start, end)
    for number in apart:
        apart[number]["not_collected"] = int(outside[device == number].sum())
    parts = _causes(trace, work, ranges, start, end, row)
    if outside.any():
        parts = _without(parts, outside, end - start)
    return Idle(device, start, end, row, parts, apart)


def _outside_collection(trace: Trace, start: Ints, end: Ints) -> Ints:
    """How much of each gap lies outside of the windows in which collection was on."""
    if len(trace.windows) <= 1 and not _reaches_out(trace, start, end):
        return np.zeros(len(start), np.int64)
    on = union(
        np.asarray([w.start_ns for w in trace.windows], np.int64),
        np.asarray([w.end_ns for w in trace.windows], np.int64),
    )
    return (end - start) - on.covered(start, end)


def _reaches_out(trace: Trace, start: Ints, end: Ints) -> bool:
    """Whether any gap lies partly outside of the single window of collection."""
    if not trace.windows or not len(start):
        return False
    window = trace.windows[0]
    return int(start.min()) < window.start_ns or int(end.max()) > window.end_ns


def _without(parts: dict[str, Ints], outside: Ints, length: Ints) -> dict[str, Ints]:
    """Take the time outside of collection from the causes, largest first: what happened there was not recorded."""
    left = outside.copy()
    out = dict(parts)
    for cause in sorted(parts, key=lambda c: -int(parts[c].sum())):
        take = np.minimum(left, out[cause])
        out[cause] = out[cause] - take
        left = left - take
    return out


def _causes(trace: Trace, work: Work, ranges: Ranges, start: Ints, end: Ints, row: Ints) -> dict[str, Ints]:
    call = work.call[row]
    known = call >= 0
    call_start, call_dur = trace.array("calls", "start_ns"), trace.array("calls", "dur_ns")
    safe = np.maximum(call, 0)
    returned = (call_start + call_dur)[safe] if len(call_start) else np.zeros(len(row), np.int64)
    host_until = np.where(known, np.clip(returned, start, end), start)
    thread = trace.array("calls", "track")[safe] if len(call_start) else np.full(len(row), -1)
    states = host_states(trace, ranges)
    # One array of zeros serves every cause that never occurs: with millions of gaps they would add up.
    parts = dict.fromkeys(CAUSES, np.zeros(len(row), np.int64))
    lift = _Lift(trace)
    low, high = lift(thread, start), lift(thread, host_until)
    left = host_until - start
    for cause, state in states.items():
        if len(state):
            parts[cause] = np.where(known, state.covered(low, high), 0)
            left = left - parts[cause]
    parts["python"] = left
    late = end - host_until
    dispatched = known & (end - np.where(known, returned, end) <= LONGEST_LATENCY_NS)
    parts["launch_latency"] = np.where(dispatched, late, 0)
    parts["unknown"] = np.where(dispatched, 0, np.where(known, late, end - start))
    return parts


class _Lift:
    """Times of all threads on one line, so that one search serves them all."""

    def __init__(self, trace: Trace) -> None:
        edges = [
            (int(start.min()), int((start + dur).max()))
            for table in ("calls", "os_calls", "spans", "kernels", "copies", "graphs")
            if len(start := trace.array(table, "start_ns"))
            for dur in [trace.array(table, "dur_ns")]
        ]
        self.low = min((low for low, _ in edges), default=0)
        self.width = max((high for _, high in edges), default=0) - self.low + 1

    def __call__(self, track: Array, time: Ints) -> Ints:
        return (track.astype(np.int64) + 1) * self.width + (time - self.low)


def host_states(trace: Trace, ranges: Ranges) -> dict[str, Intervals]:
    """When each thread was in which state, on one lifted line; states exclude each other.

    A call wins over an operating system wait inside it, and both over the stage around them.
    """
    lift = _Lift(trace)
    states = _call_states(trace, lift)
    taken = _union_of(list(states.values()))
    waits = subtract(_os_waits(trace, lift), taken)
    states["os_wait"] = waits
    taken = _union_of([taken, waits])
    timeline = innermost_timeline(ranges)
    stage = ranges.stage[timeline.owner]
    for name in CPU_STAGES:
        mine = stage == STAGES.index(name)
        track = timeline.track[mine]
        own = union(lift(track, timeline.start[mine]), lift(track, timeline.end[mine]))
        states[f"stage_{name}"] = subtract(own, taken)
    return states


def _call_states(trace: Trace, lift: _Lift) -> dict[str, Intervals]:
    kind = call_kinds(trace)
    track = trace.array("calls", "track")
    start = trace.array("calls", "start_ns")
    end = start + trace.array("calls", "dur_ns")
    low, high = lift(track, start), lift(track, end)
    # Runtime calls contain driver calls: only the outermost counts.
    order = sort_order(low, high - low, track)
    reach = np.maximum.accumulate(high[order])
    outermost = np.ones(len(order), bool)
    outermost[1:] = high[order][1:] > reach[:-1]
    outer = order[outermost]
    out = {}
    cause = np.asarray([CALL_CAUSES.index(_CALL_CAUSE[code]) if code in _CALL_CAUSE else -1 for code in range(8)])
    cause = cause[kind[outer]]
    clean = bool((low[outer][1:] >= high[outer][:-1]).all())
    before = EMPTY
    for number, name in enumerate(CALL_CAUSES):
        mine = outer[cause == number]
        out[name] = union(low[mine], high[mine])
        if not clean:  # calls of one thread that overlap without nesting: the first kind of state wins
            out[name] = subtract(out[name], before)
            before = _union_of([before, out[name]])
    return out


def _os_waits(trace: Trace, lift: _Lift) -> Intervals:
    if not trace.rows("os_calls"):
        return EMPTY
    is_wait = trace.name_rows(lambda name: name.startswith(_WAITS))
    rows = np.flatnonzero(is_wait[trace.array("os_calls", "name")])
    start = trace.array("os_calls", "start_ns")[rows]
    track = trace.array("os_calls", "track")[rows]
    return union(lift(track, start), lift(track, start + trace.array("os_calls", "dur_ns")[rows]))


def _union_of(parts: list[Intervals]) -> Intervals:
    return union(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))
