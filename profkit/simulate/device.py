"""The device side: streams in order, a compute engine, two copy engines, and what holds an operation back.

An operation is submitted by a host call and arrives at the device after the launch latency. At the head of its stream
it waits for its arrival, for the end of its predecessor and the gap after it, for events, and for its engine; engines
serve in the order in which operations became ready. All times are ns of the simulation.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush
from typing import TYPE_CHECKING

from profkit.simulate.hardware import QUEUE_ENTRIES, Hardware
from profkit.simulate.ops import (
    BLOCKING,
    COLLECTIVE,
    COPY_IN,
    COPY_OUT,
    FULL_SHARE,
    KERNEL,
    MARK,
    NEVER,
    NON_BLOCKING,
    NULL,
    GraphRun,
    Op,
    Stream,
    depend,
)  # fmt: skip

if TYPE_CHECKING:
    from profkit.simulate.core import Simulation

_ON_COPY_ENGINE = (COPY_IN, COPY_OUT)


class Device:
    """One GPU. ``ordinal`` is its CUDA ordinal, the same in all processes of a run."""

    def __init__(self, simulation: Simulation, ordinal: int, hardware: Hardware) -> None:
        self.simulation = simulation
        self.ordinal = ordinal
        self.hardware = hardware
        self.used = 0
        self.waiting: deque[Op] = deque()
        self.copying: dict[int, Op | None] = {COPY_IN: None, COPY_OUT: None}
        self.copies: dict[int, deque[Op]] = {COPY_IN: deque(), COPY_OUT: deque()}
        self.busy_until = NEVER
        """Latest end of what has begun; NEVER before the first operation."""
        self.open = 0
        """Operations that run and whose end is not known yet."""
        self.first_start = NEVER
        self.last_end = -1

    def submit(self, op: Op) -> None:
        """Put an operation behind its stream's others. Order between streams is the order of these calls."""
        stream = op.stream
        if stream.kind != NON_BLOCKING and len(op.host.process.streams) > 1:
            _legacy_rule(op, stream)
        stream.tail = op
        stream.depth += op.entry
        if stream.head is None:
            stream.head = op
            self._consider(op)
        else:
            stream.queue.append(op)

    def _consider(self, op: Op) -> None:
        """``op`` is at the head of its stream: find out when it is ready."""
        if op.waits:
            return
        stream = op.stream
        ready = op.arrival
        if op.hold > ready:
            ready = op.hold
        if stream.order_end > ready:
            ready = stream.order_end
        if op.kind < MARK:
            hardware = self.hardware
            if op.graph is not None and op.graph is stream.last_graph:
                gap = hardware.node_gap_ns
            elif (KERNEL if op.kind == COLLECTIVE else op.kind) == stream.last_kind:
                gap = hardware.kernel_gap_ns
            else:
                gap = hardware.engine_gap_ns
            if stream.engine_end + gap > ready:
                ready = stream.engine_end + gap
        simulation = self.simulation
        if ready > simulation.now:
            simulation.count += 1
            heappush(simulation.heap, (ready, simulation.count, self._ready, op))
        else:
            self._ready(op)

    def _ready(self, op: Op) -> None:
        kind = op.kind
        if kind >= MARK:
            self._pass(op)
        elif kind in _ON_COPY_ENGINE:
            if self.copying[kind] is None:
                self._start(op)
            else:
                self.copies[kind].append(op)
        elif not self.waiting and self.used + op.share <= FULL_SHARE:
            self._start(op)
        else:
            self.waiting.append(op)

    def _pass(self, op: Op) -> None:
        """A mark or a wait takes no time."""
        stream = op.stream
        now = self.simulation.now
        op.start = op.end = now
        op.done = True
        stream.order_end = now
        if op.hold > stream.hold:
            stream.hold = op.hold
        self._leave_queue(op)
        self._release(op, now)
        self._next(stream)

    def _start(self, op: Op) -> None:
        """The engine takes ``op`` now."""
        simulation = self.simulation
        now = simulation.now
        op.start = now
        kind = op.kind
        stream = op.stream
        if kind in _ON_COPY_ENGINE:
            self.copying[kind] = op
        else:
            self.used += op.share
        self._leave_queue(op)
        if stream.hold > op.hold:
            op.hold = stream.hold
        if not self.open and now > self.busy_until:
            simulation.on_gap(self, self.busy_until, now, op)
        if self.first_start > now:
            self.first_start = now
            self.busy_until = now
        if op.on_start is not None:
            op.on_start(op)
        graph = op.graph
        if graph is not None and graph.start < 0:
            graph.start = now
            self.open += graph.whole
        if kind == COLLECTIVE:
            self._meet(op, now)
            return
        op.end = end = now + op.dur
        if end > self.busy_until:
            self.busy_until = end
        simulation.count += 1
        heappush(simulation.heap, (end, simulation.count, self._complete, op))
        if stream.queue and stream.queue[0].pdl and kind == KERNEL:
            self._offer_early(op, stream.queue[0])

    def _leave_queue(self, op: Op) -> None:
        """What has begun frees its entries of the launch queue."""
        stream = op.stream
        stream.depth -= op.entry
        if stream.full and stream.depth < QUEUE_ENTRIES:
            stream.full.popleft()(self.simulation.now)

    def _meet(self, op: Op, now: int) -> None:
        """A rank of a collective has begun; with the last one the end is known."""
        meeting = op.peers
        assert meeting is not None
        self.open += 1
        meeting.ops.append(op)
        if len(meeting.ops) < meeting.ranks:
            return
        simulation = self.simulation
        for each in meeting.ops:
            each.end = now + meeting.transfer_ns
            simulation.at(each.end, each.stream.device._complete, each)

    def _offer_early(self, op: Op, successor: Op) -> None:
        """Programmatic dependent launch: the successor may begin when the running kernel's last blocks have begun."""
        trigger = op.start + op.dur * 3 // 4
        self.simulation.at(max(trigger, successor.arrival, self.simulation.now), self._start_early, successor)

    def _start_early(self, op: Op) -> None:
        stream = op.stream
        before = stream.head
        if op.done or op.waits or stream.early is not None or not stream.queue or stream.queue[0] is not op:
            return
        if before is None or before.start < 0 or before.end <= self.simulation.now:
            return
        stream.queue.popleft()
        stream.early = op
        op.start = now = self.simulation.now
        self._leave_queue(op)
        # What comes before the wait for the predecessor, a quarter of the kernel, overlaps with it.
        op.end = max(now + op.dur, before.end + op.dur - op.dur // 4)
        self.busy_until = max(self.busy_until, op.end)
        self.simulation.at(op.end, self._complete, op)

    def _complete(self, op: Op) -> None:
        now = self.simulation.now
        op.done = True
        stream = op.stream
        kind = op.kind
        if op.step is not None:
            op.step.gpu_end = now
        self.last_end = now
        if kind == COLLECTIVE:
            self.open -= 1
            if now > self.busy_until:
                self.busy_until = now
        stream.engine_end = stream.order_end = now
        stream.last_kind = KERNEL if kind == COLLECTIVE else kind
        graph = stream.last_graph = op.graph
        if graph is not None:
            graph.left -= 1
        self.simulation.on_end(op)
        if graph is not None and not graph.left:
            self._end_graph(op, graph, now)
        if op.followers is not None or op.waiters is not None:
            self._release(op, now)
        early = stream.early
        if early is not None:
            stream.early, stream.head = None, early
            self.used += early.share
            if stream.queue and stream.queue[0].pdl:
                self._offer_early(early, stream.queue[0])
        else:
            self._next(stream)
        if kind in _ON_COPY_ENGINE:
            self.copying[kind] = None
            if self.copies[kind]:
                self._start(self.copies[kind].popleft())
            return
        self.used -= op.share
        waiting = self.waiting
        while waiting and self.used + waiting[0].share <= FULL_SHARE:
            self._start(waiting.popleft())

    def _end_graph(self, op: Op, graph: GraphRun, now: int) -> None:
        if graph.whole:
            self.open -= 1
            self.simulation.on_graph_end(op, graph, now)

    def _release(self, op: Op, now: int) -> None:
        """Let go what waits for ``op``."""
        if op.followers is not None:
            free = now + self.hardware.event_latency_ns
            for follower in op.followers:
                follower.waits -= 1
                if free > follower.hold:
                    follower.hold = free
                if not follower.waits and follower.stream.head is follower:
                    follower.stream.device._consider(follower)
            op.followers = None
        if op.waiters is not None:
            for waiter in op.waiters:
                waiter.left -= 1
                if not waiter.left:
                    waiter.wake(now)
            op.waiters = None

    def _next(self, stream: Stream) -> None:
        if stream.queue:
            stream.head = op = stream.queue.popleft()
            self._consider(op)
        else:
            stream.head = None


def _legacy_rule(op: Op, stream: Stream) -> None:
    """The null stream of a process waits for its blocking streams, and they for it; non-blocking ones know neither."""
    other = BLOCKING if stream.kind == NULL else NULL
    for before in op.host.process.streams:
        if before.kind == other and before.tail is not None:
            depend(op, before.tail)
