"""Why a device was idle, known while the simulation runs: what the thread that issued the next operation was doing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from profkit.simulate.device import Device
from profkit.simulate.ops import Op

if TYPE_CHECKING:
    from profkit.simulate.host import Host

PYTHON = "python"
LAUNCH, COPY_CALL, SYNC, ALLOCATOR = "launch_call", "copy_call", "sync", "allocator"
OS_WAIT, OFF_CPU, GIL, MODULE_LOAD, PROFILER = "os_wait", "off_cpu", "gil", "module_load", "profiler"
EVENT_WAIT, LAUNCH_LATENCY, GRAPH_STARTUP = "event_wait", "launch_latency", "graph_startup"
UNKNOWN, STARTUP, TAIL = "unknown", "startup", "tail"
STAGE_CAUSES = {stage: f"stage_{stage}" for stage in ("schedule", "tokenize", "sample", "detokenize")}

_KEEP = 50_000
"""Entries of a thread's log that are kept when it is pruned, if they are needed or not."""

Piece = tuple[int, int, str]
"""(start, end, cause)."""


class HostLog:
    """What one thread did: calls and waits with their cause, and which stage was innermost."""

    __slots__ = ("causes", "ends", "stage_causes", "stage_times", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.causes: list[str] = []
        self.stage_times: list[int] = []
        self.stage_causes: list[str] = []

    def add(self, start: int, end: int, cause: str) -> None:
        """A call or a wait; ``end`` may be NEVER until :meth:`close` is called."""
        self.starts.append(start)
        self.ends.append(end)
        self.causes.append(cause)

    def close(self, end: int) -> None:
        """The last entry has ended."""
        self.ends[-1] = end

    def stage(self, time: int, cause: str) -> None:
        """From ``time`` on own work has this cause."""
        self.stage_times.append(time)
        self.stage_causes.append(cause)

    def pieces(self, start: int, end: int) -> list[Piece]:
        """What the thread was doing from start to end, in order of time."""
        out: list[Piece] = []
        i = len(self.starts) - 1
        while i >= 0 and self.starts[i] >= end:
            i -= 1
        at = end
        while i >= 0 and at > start:
            call_end = min(self.ends[i], at)
            if call_end < at:
                self._own_work(max(call_end, start), at, out)
                at = max(call_end, start)
            call_start = max(self.starts[i], start)
            if call_start < at:
                out.append((call_start, at, self.causes[i]))
                at = call_start
            i -= 1
        if at > start:
            self._own_work(start, at, out)
        out.reverse()
        return out

    def _own_work(self, start: int, end: int, out: list[Piece]) -> None:
        """Pieces between calls, latest first."""
        times = self.stage_times
        i = len(times) - 1
        while i >= 0 and times[i] >= end:
            i -= 1
        while end > start:
            begin = max(times[i], start) if i >= 0 else start
            if begin < end:
                out.append((begin, end, self.stage_causes[i] if i >= 0 else PYTHON))
            end = begin
            i -= 1

    def prune(self, before: int) -> None:
        """Forget what ended before a time, if there is much of it."""
        if len(self.starts) > 4 * _KEEP and self.ends[-_KEEP] < before:
            for part in (self.starts, self.ends, self.causes):
                del part[:-_KEEP]
        if len(self.stage_times) > 4 * _KEEP and self.stage_times[-_KEEP] < before:
            for part in (self.stage_times, self.stage_causes):
                del part[:-_KEEP]


class Pieces:
    """Idle time of one device in order of time, neighbours of one cause as one piece."""

    __slots__ = ("causes", "ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.causes: list[str] = []

    def add(self, start: int, end: int, cause: str) -> None:
        if start >= end:
            return
        if self.ends and self.ends[-1] == start and self.causes[-1] == cause:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)
            self.causes.append(cause)


class IdleLog:
    """The idle time of each device and its causes."""

    def __init__(self) -> None:
        self._devices: dict[int, Pieces] = {}
        self._gaps = 0

    def add_gap(self, device: Device, start: int, end: int, op: Op) -> None:
        """``op`` ended an idle time of ``device``."""
        pieces = self._devices.get(device.ordinal)
        if pieces is None:
            pieces = self._devices[device.ordinal] = Pieces()
        for piece in explain(start, end, op):
            pieces.add(*piece)
        self._gaps += 1
        if not self._gaps % _KEEP:
            idle_from = min(each.busy_until for each in device.simulation.devices)
            for host in device.simulation.hosts:
                host.log.prune(min(idle_from, start))

    def rows(self, devices: list[Device], window: tuple[int, int]) -> Iterator[tuple[int, int, int, str]]:
        """(device, start, end, cause) of all idle time in the window, in order, of devices that did anything."""
        for device in devices:
            if device.last_end < 0:
                continue
            number = device.ordinal
            if window[0] < device.first_start:
                yield number, window[0], device.first_start, STARTUP
            inner = self._devices.get(number, Pieces())
            for piece in zip(inner.starts, inner.ends, inner.causes, strict=True):
                yield (number, *piece)
            if device.last_end < window[1]:
                yield number, device.last_end, window[1], TAIL


def explain(start: int, end: int, op: Op) -> list[Piece]:
    """The causes of an idle time that ``op`` ended: its host until the call returned, then what held it back."""
    host: Host = op.host
    if host.process.lost(op.correlation):
        return [(start, end, UNKNOWN)]
    returned = min(max(op.call_end, start), end)
    out = host.log.pieces(start, returned) if returned > start else []
    held = min(max(op.hold, returned), end)
    if held > returned:
        out.append((returned, held, EVENT_WAIT))
    if end > held:
        out.append((held, end, GRAPH_STARTUP if op.startup else LAUNCH_LATENCY))
    return out
