"""What is put on a device: operations, the streams that keep them in order, and what their rows say of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.simulate.device import Device
    from profkit.simulate.host import Host, Step

NEVER = 1 << 62
FULL_SHARE = 100
"""All multiprocessors of a device."""

KERNEL, COPY_IN, COPY_OUT, MEMSET, COLLECTIVE, MARK, WAIT = range(7)
NULL, BLOCKING, NON_BLOCKING = "null", "blocking", "non_blocking"


@dataclass(frozen=True)
class Kernel:
    """What a kernel's row says of it; ``share`` is the percentage of multiprocessors that it takes."""

    name: str
    short: str
    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    registers: int = 64
    smem: int = 0
    share: int = FULL_SHARE


@dataclass(frozen=True)
class Copy:
    """What a copy's or a memset's row says of it; kinds are the codes of an nsys export."""

    size: int
    kind: int
    source: int
    target: int
    source_device: int = -1
    target_device: int = -1


class Op:
    """One operation on a stream."""

    __slots__ = (
        "arrival", "call_end", "copy", "correlation", "done", "dur", "end", "entry", "followers", "graph", "hold",
        "host", "kernel", "kind", "node", "on_start", "pdl", "peers", "share", "start", "startup", "step", "stream",
        "waiters", "waits",
    )  # fmt: skip

    def __init__(self, kind: int, stream: Stream, host: Host, correlation: int, arrival: int, dur: int) -> None:
        self.kind = kind
        self.stream = stream
        self.host = host
        self.correlation = correlation
        self.arrival = arrival
        self.dur = dur
        self.call_end = NEVER
        self.share = FULL_SHARE
        self.entry = 1
        """Entries of the launch queue that it takes."""
        self.step: Step | None = host.step
        self.kernel: Kernel | None = None
        self.copy: Copy | None = None
        self.graph: GraphRun | None = None
        self.node = 0
        self.startup = False
        self.pdl = False
        self.peers: Meeting | None = None
        self.on_start: Callable[[Op], None] | None = None
        """Fixes ``dur`` when the engine takes the operation."""
        self.waits = 0
        self.hold = 0
        """Time at which the last event of another stream, or the rule of the legacy stream, let it go on."""
        self.followers: list[Op] | None = None
        self.waiters: list[Waiter] | None = None
        self.start = -1
        self.end = -1
        self.done = False


class Waiter:
    """A host thread that waits for ``left`` operations; ``wake`` gets the time of the last end."""

    __slots__ = ("left", "wake")

    def __init__(self, left: int, wake: Callable[[int], None]) -> None:
        self.left = left
        self.wake = wake


@dataclass
class GraphRun:
    """One launch of a graph; ``whole``: recorded as one piece."""

    graph: int
    exec_id: int
    left: int
    whole: bool
    start: int = -1


class Meeting:
    """A collective: its kernels end together, ``transfer_ns`` after the last of ``ranks`` has begun."""

    __slots__ = ("asked", "ops", "ranks", "transfer_ns")

    def __init__(self, ranks: int, transfer_ns: int) -> None:
        self.ranks = ranks
        self.transfer_ns = transfer_ns
        self.ops: list[Op] = []
        self.asked = 0
        """How many ranks have launched their kernel, or are about to."""


class Stream:
    """Operations in order."""

    __slots__ = (
        "capture", "depth", "device", "early", "engine_end", "full", "head", "hold", "kind", "last_graph", "last_kind",
        "number", "order_end", "queue", "tail",
    )  # fmt: skip

    def __init__(self, device: Device, number: int, kind: str) -> None:
        self.device = device
        self.number = number
        self.kind = kind
        self.head: Op | None = None
        self.early: Op | None = None
        """The head's successor, begun before the head's end (programmatic dependent launch)."""
        self.queue: deque[Op] = deque()
        self.tail: Op | None = None
        self.depth = 0
        self.full: deque[Callable[[int], None]] = deque()
        """Calls that found the launch queue full."""
        self.engine_end = -NEVER
        self.order_end = -NEVER
        self.hold = 0
        self.last_kind = MARK
        self.last_graph: GraphRun | None = None
        self.capture: list[Any] | None = None


def depend(op: Op, before: Op) -> None:
    """``op`` may not begin before ``before`` has ended."""
    if not before.done:
        op.waits += 1
        if before.followers is None:
            before.followers = []
        before.followers.append(op)
