"""The host side: processes, and threads that run programs.

A program is a generator that yields what its thread does next: ``yield host.launch(stream, kernel, 2_000)``. Each of
these instructions begins ``after`` ns of the thread's own work later, at a time at which all earlier events of the
simulation have happened. Ranges are no instructions: ``host.push`` and ``host.pop`` are plain calls. A value that an
instruction gives is found in ``host.value``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from profkit.simulate import causes
from profkit.simulate.causes import HostLog
from profkit.simulate.device import Device
from profkit.simulate.ops import NEVER, NULL, Stream
from profkit.stages import DOMAIN

if TYPE_CHECKING:
    from profkit.simulate.core import Simulation

Instruction = tuple[Any, ...]
"""(ns of own work before it, function of the host and the instruction, arguments ...). The function returns whether the
thread is blocked."""
Program = Iterator[Instruction]

PUSH_POP, START_END, MARK = "push_pop", "start_end", "mark"
_JITTER = 1024


class Step:
    """One step of an engine: its GPU work is what its thread launched meanwhile."""

    __slots__ = ("gpu_end", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gpu_end = -1


class Process:
    """A process on the device of its ``ordinal``; its null stream is stream 7, as in nsys exports of CUDA programs."""

    def __init__(self, simulation: Simulation, device: Device, pid: int, name: str = "python3", rank: int = -1) -> None:
        self.simulation = simulation
        self.device = device
        self.pid = pid
        self.name = name
        self.rank = rank
        self.correlation = 0
        self.event_ids = 0
        self.graph_ids = 0
        self.node_ids = 0
        self.streams: list[Stream] = []
        self.default = self.stream(NULL, 7)
        self.lost_until = 0
        """Calls up to this correlation id are not in the trace: it began later."""

    def stream(self, kind: str, number: int = 0) -> Stream:
        made = Stream(self.device, number or 13 + len(self.streams), kind)
        self.streams.append(made)
        return made

    def lost(self, correlation: int) -> bool:
        return correlation <= self.lost_until


class Queue:
    """Hands things from thread to thread, in order."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.waiting: deque[tuple[Host, int]] = deque()
        """Threads that wait, and since when."""


class Host:
    """One thread. ``now`` is the end of what it last did; it may be ahead of the simulation by one instruction."""

    def __init__(self, process: Process, tid: int, name: str, jitter: list[float] | None = None) -> None:
        self.process = process
        self.simulation = process.simulation
        self.hardware = process.simulation.hardware
        self.tid = tid
        self.name = name
        self.log = HostLog()
        self.now = 0
        self.value: Any = None
        self.step: Step | None = None
        self.steps: list[Step] = []
        self.finished = False
        self.overhead_ns = 0
        """What a profiler adds to each call."""
        self.flush_every = 0
        """Before each so-manieth step the profiler empties its buffer on this thread; 0: never."""
        self.free = False
        """Calls and own work take no time: what would a step cost without them?"""
        self.program: Program = iter(())
        self.stack: list[tuple[str, str, int, int]] = []
        self._opened_at = 0
        self._logging = self.simulation.idle is not None
        self._factors = [int(factor * 1024) for factor in jitter] if jitter else [1024] * _JITTER
        self.place = 0
        """Which of the factors the next call gets; a part of a step begins at a place of its own."""
        self.simulation.hosts.append(self)

    def run(self, program: Program) -> None:
        """What the thread is to do; to be called before the simulation runs."""
        self.program = program

    def advance(self, instruction: Instruction | None) -> None:
        """Do the instruction that is due now, and those that follow until something else happens first."""
        simulation = self.simulation
        heap = simulation.heap
        program = self.program
        while True:
            if instruction is not None and instruction[1](self, instruction):
                return
            instruction = next(program, None)
            if instruction is None:
                self.finished = True
                return
            if not self.free:
                self.now += instruction[0]
            if heap and heap[0][0] <= self.now:
                simulation.at(self.now, self.advance, instruction)
                return
            simulation.now = self.now

    def resume(self, time: int) -> None:
        """Go on after having been blocked."""
        self.now = time
        self.simulation.at(time, self.advance)

    def cost(self, nominal: int) -> int:
        """What a call takes this time, ns."""
        if self.free:
            return 0
        self.place += 1
        return (nominal * self._factors[self.place & (_JITTER - 1)] >> 10) + self.overhead_ns

    def begin_step(self, kind: str) -> None:
        """A step of the engine begins. The profiler's buffer may be full: by steps, so that it is in all runs alike."""
        if self.flush_every and len(self.steps) % self.flush_every == self.flush_every - 1:
            start, self.now = self.now, self.now + self.hardware.profiler_flush_ns
            self.note(start, self.now, causes.PROFILER)
            if self.simulation.recorder is not None:
                self.simulation.recorder.overheads.append((start, self.now, self))
        self.step = Step(kind)
        self.steps.append(self.step)
        self.begin_part(0)

    def begin_part(self, number: int) -> None:
        """A part of the step begins: what its calls take does not depend on how many were made before."""
        self.place = len(self.steps) * 397 + number * 61

    def note(self, start: int, end: int, cause: str) -> None:
        """Keep what the thread does, where the causes of idle time are asked for; NEVER: its end is not known yet."""
        if self._logging:
            self.log.add(start, end, cause)

    def note_end(self, end: int) -> None:
        """What was noted last has ended."""
        if self._logging:
            self.log.close(end)

    def called(self, name: str, start: int, end: int, cause: str) -> int:
        """Note a call that ends at ``end``; returns its correlation id."""
        process = self.process
        process.correlation = correlation = process.correlation + 1
        self.now = end
        if self._logging:
            self.log.add(start, end, cause)
        recorder = self.simulation.recorder
        if recorder is not None:
            recorder.calls.append((start, end, self, correlation, name))
        return correlation

    def opened(self, cause: str) -> int:
        """A call begins whose end is not known yet; returns its correlation id."""
        self.process.correlation += 1
        self._opened_at = self.now
        self.note(self.now, NEVER, cause)
        return self.process.correlation

    def closed(self, name: str, correlation: int, end: int) -> None:
        """The call of :meth:`opened` has ended."""
        start = self._opened_at
        self.note_end(end)
        self.now = end
        recorder = self.simulation.recorder
        if recorder is not None:
            recorder.calls.append((start, end, self, correlation, name))

    # Ranges

    def push(self, name: str, domain: str = DOMAIN, payload: int = -1) -> None:
        """Open a range. In the domain profkit its name is the stage. What NVTX takes is before it and behind it."""
        self.now += 0 if self.free else self.hardware.range_ns
        self.stack.append((name, domain, payload, self.now))
        self._note_stage()

    def pop(self) -> None:
        name, domain, payload, start = self.stack.pop()
        self._note_stage()
        end = self.now
        self.now += 0 if self.free else self.hardware.range_ns
        if self.simulation.recorder is not None:
            category = name if domain == DOMAIN else ""
            self.simulation.recorder.ranges.append((start, end, self, name, domain, payload, PUSH_POP, category))

    def request(self, number: int, start: int, first_token: int, output_tokens: int) -> None:
        """The life of a request that ends now, with the marks of profkit's instrumenter."""
        recorder = self.simulation.recorder
        if recorder is not None:
            recorder.ranges += [
                (time, time, self, f"request#{number} {what}", DOMAIN, number, MARK, "request")
                for time, what in ((first_token, "first_token"), (self.now, f"output_tokens={output_tokens}"))
            ]
            recorder.ranges.append((start, self.now, self, "request", DOMAIN, number, START_END, "request"))

    def _note_stage(self) -> None:
        if not self._logging:
            return
        inner = next((name for name, domain, _, _ in reversed(self.stack) if domain == DOMAIN), "")
        self.log.stage(self.now, causes.STAGE_CAUSES.get(inner, causes.PYTHON))

    # Own work and waits

    def work(self, ns: int) -> Instruction:
        """Own work."""
        return (ns, _nothing)

    def os_wait(self, ns: int, name: str = "read", after: int = 0) -> Instruction:
        """A call of the operating system that blocks, and is recorded."""
        return (after, _os_wait, ns, name)

    def off_cpu(self, ns: int, after: int = 0) -> Instruction:
        """The scheduler takes the thread off its CPU, and that is recorded."""
        return (after, _off_cpu, ns)

    def gil_wait(self, ns: int, after: int = 0) -> Instruction:
        """The thread waits for the global interpreter lock, and that is recorded."""
        return (after, _gil_wait, ns)

    def sleep_until(self, time: int) -> Instruction:
        """Sleep, recorded as a wait of the operating system."""
        return (0, _sleep_until, time)

    def put(self, queue: Queue, item: Any, after: int = 0) -> Instruction:
        return (after, _put, queue, item)

    def get(self, queue: Queue, after: int = 0) -> Instruction:
        """Wait for an item; it is then in ``host.value``."""
        return (after, _get, queue)


def _nothing(host: Host, instruction: Instruction) -> bool:
    return False


def _waited(host: Host, ns: int, cause: str) -> tuple[int, int] | None:
    """(start, end) of a wait that begins now; None where it is not recorded."""
    start = host.now
    host.now = end = start + (0 if host.free else ns)
    if cause not in host.simulation.recorded_waits:
        return None
    host.note(start, end, cause)
    return (start, end) if host.simulation.recorder is not None else None


def _os_wait(host: Host, instruction: Instruction) -> bool:
    if (times := _waited(host, instruction[2], causes.OS_WAIT)) and (recorder := host.simulation.recorder):
        recorder.os_calls.append((*times, host, instruction[3]))
    return False


def _off_cpu(host: Host, instruction: Instruction) -> bool:
    if (times := _waited(host, instruction[2], causes.OFF_CPU)) and (recorder := host.simulation.recorder):
        recorder.sched += [(times[0], host, 0), (times[1], host, 1)]
    return False


def _gil_wait(host: Host, instruction: Instruction) -> bool:
    if (times := _waited(host, instruction[2], causes.GIL)) and (recorder := host.simulation.recorder):
        recorder.ranges.append((*times, host, "Waiting for GIL", "Python GIL", -1, PUSH_POP, ""))
    return False


def _sleep_until(host: Host, instruction: Instruction) -> bool:
    time: int = instruction[2]
    if time > host.now:
        ns = time - host.now + host.hardware.sleep_slack_ns
        return _os_wait(host, (0, _os_wait, ns, "clock_nanosleep"))
    return False


def _put(host: Host, instruction: Instruction) -> bool:
    queue: Queue = instruction[2]
    if queue.waiting:
        _wake_getter(*queue.waiting.popleft(), instruction[3], host.now)
    else:
        queue.items.append(instruction[3])
    return False


def _wake_getter(host: Host, since: int, item: Any, now: int) -> None:
    end = now + host.hardware.wake_up_ns
    host.value = item
    if causes.OS_WAIT in host.simulation.recorded_waits:
        host.note_end(end)
        if host.simulation.recorder is not None:
            host.simulation.recorder.os_calls.append((since, end, host, "pthread_cond_wait"))
    host.resume(end)


def _get(host: Host, instruction: Instruction) -> bool:
    queue: Queue = instruction[2]
    if queue.items:
        host.value = queue.items.popleft()
        return False
    if causes.OS_WAIT in host.simulation.recorded_waits:
        host.note(host.now, NEVER, causes.OS_WAIT)
    queue.waiting.append((host, host.now))
    return True
