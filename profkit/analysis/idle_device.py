"""Why a device did nothing although the call had returned: it had its work and was not there yet.

``event_wait`` while an operation of another stream held it: through an event, or because one of the two streams is the
legacy default stream. One of another device makes the device wait for as long as it takes; one of the same device keeps
it busy meanwhile, and only what the device takes from the one to the other is left. Then ``graph_startup`` before the
first operations of a graph launch, and ``launch_latency`` before others, as long as they are short enough to be that;
else ``unknown``: something held the device that this capture does not show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, call_kinds
from profkit.analysis.event_waits import AwaitedEvents
from profkit.analysis.idle_pieces import CODES
from profkit.analysis.intervals import percentile
from profkit.analysis.work import Work
from profkit.arrays import chunks
from profkit.model import Array, Ints, Mask, Trace

LATENCY_FACTOR = 10
SHORTEST_LIMIT_NS, LONGEST_LIMIT_NS = 100_000, 1_000_000
"""A delay up to LATENCY_FACTOR times the trace's own median launch latency is launch latency, within these limits.

A launch takes 2 to 10 us to reach an idle device, several times that under a profiler, in a virtual machine or on a
slow host; what took over 1 ms was held by something.
"""
GRAPH_LIMIT_NS = 1_000_000
"""The first launch of a graph of thousands of nodes has to upload them first."""


@dataclass(frozen=True)
class Gaps:
    """Stretches [start, end) in which a device did nothing, each ended by ``row`` of Work; ``until`` is when its call
    had returned, at most at the end; at the start where it had returned before or was not recorded.
    """

    start: Ints
    end: Ints
    row: Array
    until: Ints


class DeviceDelays:
    """Why a device was late although the call had returned that submitted what ends the gap; see :meth:`pieces`."""

    def __init__(self, trace: Trace, work: Work, gaps: Gaps) -> None:
        self._work, self._gaps = work, gaps
        self._leader = _leaders(trace, work)
        delays = [np.zeros(0, np.int64)]
        for at in chunks(len(gaps.row)):
            # Its call returned inside the gap, when nothing else kept the device busy: this is what a launch takes.
            alone = np.flatnonzero((gaps.until[at] < gaps.end[at]) & (gaps.until[at] > gaps.start[at])) + at.start
            alone = alone[~self._first_of_graph(gaps.row[alone])]
            delays.append(gaps.end[alone] - gaps.until[alone])
        self._limit = latency_limit(np.concatenate(delays))
        self._awaited = AwaitedEvents(trace, work, self._limit)

    def pieces(self, late: Array) -> tuple[Array, Ints, Ints, Array]:
        """(gap, start, end, cause) of the pieces of some late gaps, in order within each; causes as CODES."""
        row, start, end = self._gaps.row[late], self._gaps.until[late], self._gaps.end[late]
        until = np.clip(self._awaited.held_until(row, end), start, end)
        left = end - until
        cause = np.full(len(left), CODES["unknown"], np.int8)
        cause[left <= self._limit] = CODES["launch_latency"]
        cause[self._first_of_graph(row) & (left <= max(self._limit, GRAPH_LIMIT_NS))] = CODES["graph_startup"]
        waits, rest = np.flatnonzero(until > start), np.flatnonzero(left)
        return (
            np.concatenate((late[waits], late[rest])),
            np.concatenate((start[waits], until[rest])),
            np.concatenate((until[waits], end[rest])),
            np.concatenate((np.full(len(waits), CODES["event_wait"], np.int8), cause[rest])),
        )

    def _first_of_graph(self, row: Array) -> Mask:
        """Which rows are a first operation of a graph launch: it began before the first one of that launch ended."""
        if self._leader is None:
            return np.zeros(len(row), bool)
        work, leader = self._work, self._leader[self._work.call[row]]
        mask: Mask = (leader >= 0) & ((leader == row) | (work.start[row] < work.end[np.maximum(leader, 0)]))
        return mask


def latency_limit(latency: Ints) -> int:
    """The longest delay that is still launch latency, ns, by delays ``latency`` in which nothing else held a launch."""
    median = percentile(latency[latency > 0], 50) or 0
    return min(max(LATENCY_FACTOR * median, SHORTEST_LIMIT_NS), LONGEST_LIMIT_NS)


def _leaders(trace: Trace, work: Work) -> Array | None:
    """First row of Work of each call that launches a graph, -1 for other calls; None without graph launches."""
    is_graph = call_kinds(trace) == GRAPH_LAUNCH
    if not is_graph.any():
        return None
    rows = np.flatnonzero(work.call >= 0)
    rows = rows[is_graph[work.call[rows]]][::-1]
    out = np.full(len(is_graph), -1, work.row.dtype)
    out[work.call[rows]] = rows  # of the rows of one call the first is written last
    return out
