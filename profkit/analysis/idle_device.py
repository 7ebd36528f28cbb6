"""Why a device did nothing although the call had returned: it had its work and was not there yet.

``event_wait`` until the operation ended that an event made the stream wait for. Only an operation of another device can
be that: one of the same device would keep it busy; for the same reason the rule that the legacy default stream and the
blocking streams of its device wait for each other makes no idle time. Then ``graph_startup`` before the first
operations of a graph launch, and ``launch_latency`` before others, as long as they are short enough to be that; else
``unknown``: something held the device that this capture does not show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, call_kinds
from profkit.analysis.event_waits import awaited_ends
from profkit.analysis.idle_pieces import CODES
from profkit.analysis.intervals import percentile
from profkit.analysis.work import Work
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
class Held:
    """Gaps (or what is left of them) in which the device alone was late: [start, end), ended by ``row`` of Work."""

    row: Array
    start: Ints
    end: Ints
    submitted: Mask
    """Its call returned inside the gap, when nothing else kept the device busy: what it took is launch latency."""


def device_pieces(trace: Trace, work: Work, held: Held) -> list[tuple[Ints, Ints, Ints, Array]]:
    """(position in ``held``, start, end, cause) of the pieces; causes as CODES."""
    first = _first_of_graph(trace, work, held.row)
    limit = latency_limit((held.end - held.start)[held.submitted & ~first])
    awaited = awaited_ends(trace, work, held.row, held.end, limit)
    until = np.clip(awaited, held.start, held.end)
    waits = np.flatnonzero(until > held.start)
    left = held.end - until
    cause = np.full(len(left), CODES["unknown"], np.int8)
    cause[left <= limit] = CODES["launch_latency"]
    cause[first & (left <= max(limit, GRAPH_LIMIT_NS))] = CODES["graph_startup"]
    rest = np.flatnonzero(left)
    return [
        (waits, held.start[waits], until[waits], np.full(len(waits), CODES["event_wait"], np.int8)),
        (rest, until[rest], held.end[rest], cause[rest]),
    ]


def latency_limit(latency: Ints) -> int:
    """The longest delay that is still launch latency, ns, by delays ``latency`` in which nothing else held a launch."""
    median = percentile(latency[latency > 0], 50) or 0
    return min(max(LATENCY_FACTOR * median, SHORTEST_LIMIT_NS), LONGEST_LIMIT_NS)


def _first_of_graph(trace: Trace, work: Work, row: Array) -> Mask:
    """Which rows are a first operation of a graph launch: it began before the first one of that launch ended."""
    is_graph = call_kinds(trace) == GRAPH_LAUNCH
    if not is_graph.any():
        return np.zeros(len(row), bool)
    rows = np.flatnonzero(work.call >= 0)
    rows = rows[is_graph[work.call[rows]]]
    first = np.full(len(is_graph), -1, np.int32)
    first[work.call[rows[::-1]]] = rows[::-1]
    call = work.call[row]
    leader = np.where(call >= 0, first[np.maximum(call, 0)], -1)
    mask: Mask = (leader >= 0) & ((leader == row) | (work.start[row] < work.end[np.maximum(leader, 0)]))
    return mask
