"""Steps from CUDA graph launches: one launch a step, or the same sequence of launches where a step is made of pieces.

Two launches are of one graph if the capture names the same graph for them, else if they ran the same kernels. Engines
that capture a graph for each batch size launch one of them for a while, then another: it is enough that a launch, or a
sequence, is mostly followed by the same.
"""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, call_kinds
from profkit.analysis.periods import FEWEST_REPETITIONS, find_repetitions
from profkit.analysis.steps_found import Openings, openings
from profkit.analysis.work import GRAPHS, KERNELS, Work
from profkit.arrays import key_of
from profkit.model import Array, Ints, Mask, Trace

_MOSTLY = 0.5


def find_graph_steps(trace: Trace, work: Work) -> Openings | None:
    """Steps of every thread whose graph launches repeat; None where none do."""
    launches = np.flatnonzero(call_kinds(trace) == GRAPH_LAUNCH)
    if len(launches) < FEWEST_REPETITIONS:
        return None
    graph = _graph_of(trace, work, launches)
    track = trace.array("calls", "track")[launches]
    first, last, whole = [], [], []
    for lane in np.unique(track).tolist():
        mine = np.flatnonzero(track == lane)
        start = trace.array("calls", "start_ns")[launches[mine]]
        starts, ends, complete = _steps(graph[mine], np.diff(start, prepend=start[:1]))
        first.append(launches[mine[starts]])
        last.append(launches[mine[ends - 1]])
        whole.append(complete)
    opened, closed = np.concatenate(first), np.concatenate(last)
    if not len(opened):
        return None
    start, dur = trace.array("calls", "start_ns"), trace.array("calls", "dur_ns")
    return openings(
        process=trace.array("calls", "process")[opened],
        track=trace.array("calls", "track")[opened],
        start=start[opened],
        own_end=start[closed] + np.maximum(dur[closed], 1),
        whole=np.concatenate(whole),
    )


def _steps(graph: Ints, pause: Ints) -> tuple[Ints, Ints, Mask]:
    """(first launch, behind the last launch, whether whole) of each step of one thread."""
    none = np.zeros(0, np.int64)
    if len(graph) < FEWEST_REPETITIONS:
        return none, none, none.astype(bool)
    pieces = find_repetitions(graph, pause)
    if pieces is not None and pieces.length > 1:
        return pieces.starts, pieces.ends, pieces.whole
    if float((graph[1:] == graph[:-1]).mean()) < _MOSTLY:
        return none, none, none.astype(bool)
    at = np.arange(len(graph))
    return at, at + 1, np.ones(len(graph), bool)


def _graph_of(trace: Trace, work: Work, launches: Ints) -> Ints:
    """A number for the graph of each launch: by the graph's id, else by the kernels that it ran."""
    calls = trace.rows("calls")
    ident, kernels = np.full(calls, -1, np.int64), np.zeros(calls, np.uint64)
    for table, name in ((GRAPHS, "graphs"), (KERNELS, "kernels")):
        rows = np.flatnonzero((work.table == table) & (work.call >= 0))
        ident[work.call[rows]] = trace.array(name, "graph")[work.row[rows]]
        if table == KERNELS:
            np.add.at(kernels, work.call[rows], _mixed(trace.array("kernels", "name")[work.row[rows]]))
    ident, ran = ident[launches], kernels[launches].astype(np.int64)
    return key_of(ident, np.where(ident >= 0, 0, ran))


def _mixed(codes: Array) -> Array:
    """Spread codes over 64 bits, so that the sum over a launch tells its kernels."""
    mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(0xBF58476D1CE4E5B9)
