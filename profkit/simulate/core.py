"""The clock: events in order of time, host threads and devices, and what is noted while they run."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.simulate.causes import GIL, OFF_CPU, OS_WAIT
from profkit.simulate.device import Device
from profkit.simulate.hardware import Hardware
from profkit.simulate.ops import COLLECTIVE, KERNEL, GraphRun, Op

if TYPE_CHECKING:
    from profkit.simulate.causes import IdleLog
    from profkit.simulate.host import Host
    from profkit.simulate.records import Recorder


class Simulation:
    """One run. ``recorder`` takes the rows of the trace, ``idle`` the causes; without them only times are known."""

    def __init__(self, hardware: Hardware, recorder: Recorder | None = None, idle: IdleLog | None = None) -> None:
        self.hardware = hardware
        self.recorder = recorder
        self.idle = idle
        self.recorded_waits = frozenset((OS_WAIT, OFF_CPU, GIL))
        """Waits of host threads that the trace holds; others look like own work."""
        self.heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self.count = 0
        self.now = 0
        self.devices: list[Device] = []
        self.hosts: list[Host] = []

    def device(self) -> Device:
        made = Device(self, len(self.devices), self.hardware)
        self.devices.append(made)
        return made

    def at(self, time: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something at a time that is not past; what is due at one time is done in the order of these calls."""
        self.count += 1
        heappush(self.heap, (time, self.count, action, argument))

    def run(self) -> None:
        """Run until nothing is left to do. Raises ProfkitError if a thread then still waits."""
        for host in self.hosts:
            self.at(host.now, host.advance)
        heap = self.heap
        while heap:
            self.now, _, action, argument = heappop(heap)
            action(argument)
        stuck = [host.name for host in self.hosts if not host.finished]
        if stuck:
            raise ProfkitError(f"simulation: nothing happens any more and these threads wait: {', '.join(stuck)}")

    def window(self) -> tuple[int, int]:
        """First start and last end of device work over all devices; raises ProfkitError where there was none."""
        used = [device for device in self.devices if device.last_end >= 0]
        if not used:
            raise ProfkitError("simulation: no device did anything")
        return min(device.first_start for device in used), max(device.last_end for device in used)

    def on_gap(self, device: Device, start: int, end: int, op: Op) -> None:
        """``device`` was idle until ``op`` began."""
        if self.idle is not None:
            self.idle.add_gap(device, start, end, op)

    def on_end(self, op: Op) -> None:
        recorder = self.recorder
        if recorder is None or (op.graph is not None and op.graph.whole):
            return
        if op.kind == KERNEL or op.kind == COLLECTIVE:
            recorder.kernel(op)
        else:
            recorder.copy(op)

    def on_graph_end(self, op: Op, graph: GraphRun, end: int) -> None:
        if self.recorder is not None:
            self.recorder.graph(op, graph, end)
