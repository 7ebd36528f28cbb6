"""What a replay computes with: calls in order of their threads, device work in order of its streams, and what waits.

A model has one point in time for the start and the end of each outermost call, and for the start and the end of each
device operation. Each point lies as late as the latest of its constraints: another point plus a length. Recorded times
fulfil all of them, so that a replay that changes nothing gives back the recorded times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.work import Work
from profkit.model import Array, Ints, Mask

EDGE_KINDS = ("launch", "stream", "event", "engine", "inferred", "peer", "wait", "queue", "poll", "handoff", "arrival")
LAUNCH, STREAM, EVENT, ENGINE, INFERRED, PEER, WAIT, QUEUE, POLL, HANDOFF, ARRIVAL = range(len(EDGE_KINDS))
"""Why one point waits for another: a call submitted the operation; the operation before it in its stream; an event of
another stream; the same copy engine; the end of an operation that is no recorded dependency but explains the start; the
last rank of a collective; a call that returns when device work is done; a launch call that found its queue full; the
last of some queries in a row, which found the work done; a thread that waited for another one; a
request that came from outside at its own time."""


ORIGIN_NS = -1
"""Before every recorded time."""


@dataclass(frozen=True)
class Calls:
    """Outermost calls by (thread, start). ``row`` is their row of ``calls``; all times ns.

    ``gap`` is the host's own work before the call, since the call before it on the thread ended (0 for the first one,
    which is ``fixed`` to its recorded start); ``own`` how long the call takes when it waits for nothing. ``of`` maps
    each row of ``calls`` to the position of its outermost call, -1 outside of what is replayed.
    """

    row: Ints
    track: Array
    kind: Array
    start: Ints
    end: Ints
    gap: Ints
    own: Ints
    fixed: Mask
    of: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Edges:
    """Constraints: point ``dst`` lies at least ``weight`` ns after point ``src``; ``weight`` >= 0 as recorded.

    Points are numbered: 2 i the start of call i, 2 i + 1 its end; behind all calls, 2 j the start of operation j and
    2 j + 1 its end; the last one stands for time ORIGIN_NS, from which what comes from outside is counted. ``bound``
    marks the latest constraint of its ``dst`` as recorded; ``usual`` is what a constraint of its kind takes in this
    trace.
    """

    src: Ints
    dst: Ints
    weight: Ints
    kind: Array
    bound: Mask
    usual: Ints

    def __len__(self) -> int:
        return len(self.src)

    def where(self, keep: Mask | Ints) -> Edges:
        return Edges(
            self.src[keep], self.dst[keep], self.weight[keep], self.kind[keep], self.bound[keep], self.usual[keep]
        )

    @staticmethod
    def join(parts: list[Edges]) -> Edges:
        if not parts:
            none = np.zeros(0, np.int64)
            return Edges(none, none, none, none.astype(np.int8), none.astype(bool), none)
        return Edges(
            np.concatenate([p.src for p in parts]),
            np.concatenate([p.dst for p in parts]),
            np.concatenate([p.weight for p in parts]),
            np.concatenate([p.kind for p in parts]),
            np.concatenate([p.bound for p in parts]),
            np.concatenate([p.usual for p in parts]),
        )


@dataclass(frozen=True)
class Model:
    """A trace as a graph of constraints. ``dur`` is the length of each operation, ns; ``call`` the position of its
    outermost call among ``calls``, -1 without one; ``row`` its position in the whole work of the trace.

    ``engine`` is the copy engine that an operation needs (one for each device and direction), -1 for none or for one
    that was seen to run two copies at once; ``shared_engine`` says that copies of several streams may meet on one: then
    it serves them as they become ready, in whatever order they were recorded.
    ``fixed`` operations are kept at their recorded start: they were submitted before what is replayed.
    """

    calls: Calls
    work: Work
    call: Ints
    dur: Ints
    fixed: Mask
    edges: Edges
    row: Ints
    engine: Ints
    shared_engine: bool

    @property
    def first_op(self) -> int:
        """Number of the start point of operation 0."""
        return 2 * len(self.calls)

    @property
    def points(self) -> int:
        return 2 * (len(self.calls) + len(self.work)) + 1

    @property
    def origin(self) -> int:
        """Number of the point that nothing moves."""
        return self.points - 1

    def recorded(self) -> Ints:
        """Recorded time of every point."""
        return self.as_points(Times(self.calls.start, self.calls.end, self.work.start, self.work.end))

    def as_points(self, times: Times) -> Ints:
        """Times by the number of the point."""
        out = np.empty(self.points, np.int64)
        half = self.first_op
        out[0:half:2], out[1:half:2] = times.call_start, times.call_end
        out[half:-1:2], out[half + 1 : -1 : 2] = times.start, times.end
        out[-1] = ORIGIN_NS
        return out

    def as_times(self, points: Ints) -> Times:
        """The reverse of :meth:`as_points`."""
        half = self.first_op
        return Times(points[0:half:2], points[1:half:2], points[half:-1:2], points[half + 1 : -1 : 2])


@dataclass(frozen=True)
class Times:
    """Times of a replay, ns: of the calls and of the operations of its model."""

    call_start: Ints
    call_end: Ints
    start: Ints
    end: Ints

    @property
    def window(self) -> int:
        """First start to last end of device work; 0 without any."""
        return int(self.end.max() - self.start.min()) if len(self.start) else 0
