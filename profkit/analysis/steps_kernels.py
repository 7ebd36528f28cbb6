"""Steps from the kernels themselves: the sequence of names on the main stream of a process, where it repeats.

What repeats may be a layer and not a step where the capture holds less than three steps: nothing in the names says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, call_kinds
from profkit.analysis.periods import Repetitions, find_repetitions
from profkit.analysis.steps_found import Openings, openings
from profkit.analysis.work import KERNELS, Work
from profkit.model import Ints, Trace

FEWEST_KERNELS = 4
"""A shorter sequence is a loop over an operation, and no step."""


@dataclass(frozen=True)
class KernelSequence:
    """Kernels of the main stream of a process whose names repeat.

    ``rows`` are these kernels as positions in Work, in order; ``repeats`` says where in them each repetition begins.
    """

    process: int
    track: int
    rows: Ints
    repeats: Repetitions


def find_sequences(trace: Trace, work: Work) -> list[KernelSequence]:
    """The repeating kernel sequence of each process that has one, on the stream with most of its kernels."""
    kernels = np.flatnonzero(work.table == KERNELS)
    out = []
    for process in np.unique(work.process[kernels]).tolist():
        mine = kernels[work.process[kernels] == process]
        main = int(np.argmax(np.bincount(work.track[mine])))
        rows = mine[work.track[mine] == main]
        names = trace.array("kernels", "name")[work.row[rows]]
        pause = np.maximum(work.start[rows[1:]] - work.end[rows[:-1]], 0)
        repeats = find_repetitions(names, np.concatenate(([0], pause)), FEWEST_KERNELS)
        if repeats is not None:
            out.append(KernelSequence(process, main, rows, repeats))
    return out


def graph_share(trace: Trace, work: Work, rows: Ints) -> float:
    """Which part of some kernels ran as nodes of a CUDA graph."""
    node = trace.array("kernels", "graph_node")[work.row[rows]] >= 0
    kind = call_kinds(trace)
    if len(kind):
        node |= (work.call[rows] >= 0) & (kind[np.maximum(work.call[rows], 0)] == GRAPH_LAUNCH)
    return float(node.mean()) if len(rows) else 0.0


def sequence_openings(trace: Trace, work: Work, sequences: list[KernelSequence]) -> Openings | None:
    """Steps that begin with each repetition: at its first launch, or with its first kernel if a launch is unknown."""
    if not sequences:
        return None
    call_start = trace.array("calls", "start_ns")
    first = [one.rows[one.repeats.starts] for one in sequences]
    last = [one.rows[one.repeats.ends - 1] for one in sequences]
    # Kernels of one graph launch have one call: it cannot tell two repetitions apart.
    on_host = all((work.call[rows] >= 0).all() for rows in (*first, *last)) and all(
        (np.diff(call_start[work.call[rows]]) > 0).all() for rows in first
    )
    opened, closed = np.concatenate(first), np.concatenate(last)
    start, end = work.start[opened], work.start[closed]
    if on_host:
        start, end = call_start[work.call[opened]], call_start[work.call[closed]]
    return openings(
        process=work.process[opened],
        track=np.full(len(opened), -1, np.int64),
        start=start,
        own_end=end + 1,
        whole=np.concatenate([one.repeats.whole for one in sequences]),
        on_host=on_host,
    )
