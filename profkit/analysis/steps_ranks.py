"""Ranks of one engine: they run the same iterations, share their index, and the lowest rank speaks for all."""

from __future__ import annotations

import numpy as np

from profkit.model import Array, Ints, Mask, Trace


def share_index(trace: Trace, process: Array, index: Ints, when: Ints) -> tuple[Ints, Mask]:
    """(index of each step, whether its process is the lowest rank of its engine or no rank of any).

    Processes with different ranks of one world size are ranks of one engine. Their steps pair up in order where they
    have as many; else, on one machine, by ``when`` they ran (ns): a capture of one rank may have begun later.
    """
    lead = np.ones(len(index), bool)
    for ranks in _engines(trace, np.unique(process)):
        steps = [np.flatnonzero(process == row) for row in ranks]
        for rows in steps[1:]:
            lead[rows] = False
        shift = [
            _shift(trace, ranks[0], row, when[steps[0]], when[rows]) for row, rows in zip(ranks, steps, strict=True)
        ]
        for rows, by in zip(steps, shift, strict=True):
            index[rows] += by - min(shift)
    return index, lead


def _engines(trace: Trace, processes: Ints) -> list[list[int]]:
    """Processes of each engine that has several here, in order of rank."""
    rank, world = trace.array("processes", "rank"), trace.array("processes", "world_size")
    out = []
    ranked = [row for row in processes.tolist() if row >= 0 and rank[row] >= 0]
    for size in sorted({int(world[row]) for row in ranked}):
        mine = sorted((row for row in ranked if world[row] == size), key=lambda row: int(rank[row]))
        if len({int(rank[row]) for row in mine}) == len(mine) > 1:
            out.append(mine)
    return out


def _shift(trace: Trace, lowest: int, process: int, lead: Ints, when: Ints) -> int:
    """How many iterations later than the lowest rank's the steps of a process begin."""
    host = trace.array("processes", "host")
    if len(lead) == len(when) or host[lowest] != host[process]:
        return 0
    middle = len(when) // 2
    return int(np.argmin(np.abs(lead - when[middle]))) - middle
