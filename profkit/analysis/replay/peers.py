"""Collectives: the kernels of all ranks end together, a transfer after the last of them began."""

from __future__ import annotations

import numpy as np

from profkit.analysis.replay.model import PEER, Calls, Edges
from profkit.analysis.work import KERNELS, Work
from profkit.model import Ints, Trace

MOST_PAIRED = 8
"""Up to so many ranks each kernel of a collective waits for each other one."""


def peer_edges(trace: Trace, calls: Calls, work: Work) -> tuple[Edges, Ints]:
    """(constraints between the kernels of one collective, the length of every operation without waiting for a peer)."""
    dur = work.end - work.start
    parts = []
    for sets in matched_collectives(trace, work):
        arrived = work.start[sets].max(axis=0)
        dur[sets] = work.end[sets] - arrived
        if len(sets) > MOST_PAIRED:
            parts += _through_one(calls, work, sets, arrived)
            continue
        for at, end in np.ndindex(len(sets), len(sets)):
            if at != end:
                parts.append(_edges(calls, work, sets[at], sets[end], arrived))
    return Edges.join(parts), dur


def _through_one(calls: Calls, work: Work, sets: Ints, arrived: Ints) -> list[Edges]:
    """The same with constraints that grow with the ranks, not with their square: the kernel that ends first waits for
    the start of all others, and these for its end."""
    first = work.end[sets].argmin(axis=0)
    hub = sets[first, np.arange(sets.shape[1])]
    parts = []
    for rank, ops in enumerate(sets):
        others = first != rank
        src, dst = ops[others], hub[others]
        parts.append(_edges(calls, work, src, dst, arrived[others]))
        after = work.end[src] - work.end[dst]
        parts.append(
            Edges(
                src=2 * len(calls) + 2 * dst + 1,
                dst=2 * len(calls) + 2 * src + 1,
                weight=after,
                kind=np.full(len(src), PEER, np.int8),
                bound=np.ones(len(src), bool),
                usual=after,
            )
        )
    return parts


def matched_collectives(trace: Trace, work: Work) -> list[Ints]:
    """Operations by (device, number of the collective), one array for each name of kernel.

    The n-th NCCL kernel of a name on each device belongs to the n-th of the others, where all devices have as many and
    each such set has a common instant; other collectives are left out, and keep their recorded length in a replay.
    """
    rows = np.flatnonzero(work.table == KERNELS)
    name = trace.array("kernels", "name")[work.row[rows]] if len(rows) else rows
    is_nccl = trace.name_rows(lambda name: "nccl" in name.lower(), among=name)
    keep = is_nccl[name] if len(rows) else rows.astype(bool)
    rows, name = rows[keep], name[keep]
    out = []
    for code in np.unique(name).tolist():
        mine = rows[name == code]
        devices, counts = np.unique(work.device[mine], return_counts=True)
        if len(devices) < 2 or len(set(counts.tolist())) > 1:
            continue
        sets = np.stack([mine[work.device[mine] == device] for device in devices.tolist()])
        if (work.start[sets].max(axis=0) < work.end[sets].min(axis=0)).all():
            out.append(sets)
    return out


def _edges(calls: Calls, work: Work, src: Ints, dst: Ints, arrived: Ints) -> Edges:
    first = 2 * len(calls)
    return Edges(
        src=first + 2 * src,
        dst=first + 2 * dst + 1,
        weight=work.end[dst] - arrived,
        kind=np.full(len(src), PEER, np.int8),
        bound=work.start[src] == arrived,
        usual=work.end[dst] - arrived,
    )
