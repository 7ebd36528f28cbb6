"""Sub-lanes: Perfetto keeps a slice of a track only if it nests in the ones around it, and drops those that do not.

Kernels of one stream overlap (programmatic dependent launch, nodes of a graph), and so may ranges; what does not nest
goes to a further lane of the same stream or thread.
"""

from __future__ import annotations

import numpy as np

from profkit.arrays import pack, parents, sort_order
from profkit.model import Array, Ints, Mask

MOST_LANES = 64
"""Of one track; what overlaps more often than this shares the last one, where Perfetto may leave it out."""

_PASSES = 4


def nested_lanes(start: Ints, end: Ints, group: Array) -> Ints:
    """Lane of each row within its group, from 0: rows of one lane nest or do not touch."""
    order = sort_order(start, end - start, group)
    lane = np.zeros(len(start), np.int64)
    rows = order
    for _ in range(_PASSES):
        rows = _not_nested(start, end, group, rows)
        if not len(rows):
            return lane
        lane[rows] += 1
    lane[rows] += flat_lanes(start[rows], end[rows], group[rows])
    return np.minimum(lane, MOST_LANES - 1)


def _not_nested(start: Ints, end: Ints, group: Array, rows: Ints) -> Ints:
    """Rows to take away, in order, so that the others nest."""
    out = []
    while (crosses := crossing(start[rows], end[rows], group[rows])).any():
        out.append(rows[crosses])
        rows = rows[~crosses]
    taken = np.concatenate(out) if out else np.zeros(0, np.int64)
    return taken[sort_order(start[taken], end[taken] - start[taken], group[taken])]


def stream_lanes(start: Ints, end: Ints, group: Array) -> Ints:
    """As :func:`nested_lanes`, for rows that follow each other: a long chain of overlaps takes two lanes."""
    order = sort_order(start, end - start, group)
    lane = np.zeros(len(start), np.int64)
    crossed = np.unique(group[order][crossing(start[order], end[order], group[order])])
    rows = order[np.isin(group[order], crossed)]
    if len(rows):
        lane[rows] = flat_lanes(start[rows], end[rows], group[rows])
    return lane


def crossing(start: Ints, end: Ints, group: Array) -> Mask:
    """Rows that begin inside an earlier one of their group and end after it; rows are sorted by (start, -length).

    Not all of them, but at least one where there is any: compared is with the rows that stand between a row and the
    nearest earlier one that ends no sooner. A row that crosses one before that lies in a row that crosses it too.
    """
    out = np.zeros(len(start), bool)
    above = parents(start, end, group)
    order = np.argsort(group, kind="stable")
    before = np.full(len(start), -1, np.int64)
    same = group[order][1:] == group[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    rows = np.flatnonzero(before != above)
    at = before[rows]
    while len(rows):
        runs = end[at] > start[rows]
        out[rows[runs]] = True
        rows, at = rows[~runs], above[at[~runs]]
        left = at != above[rows]
        rows, at = rows[left], at[left]
    return out


def flat_lanes(start: Ints, end: Ints, group: Array) -> Ints:
    """Lane of each row within its group so that rows of one lane do not overlap; rows are sorted by start.

    A lane takes the first row that is left, then the first that begins when that has ended, and so on: found for all
    groups at once by doubling the length of the jumps.
    """
    lane = np.full(len(start), MOST_LANES - 1, np.int64)
    key, until = pack([[group, group], [start, end]])
    rows = np.argsort(key, kind="stable")
    for number in range(MOST_LANES - 1):
        if not len(rows):
            break
        taken = _one_lane(key[rows], until[rows], group[rows])
        lane[rows[taken]] = number
        rows = rows[~taken]
    return lane


def _one_lane(key: Ints, until: Ints, group: Array) -> Mask:
    n = len(key)
    jump = np.append(np.maximum(np.searchsorted(key, until, side="left"), np.arange(1, n + 1)), n)
    # A jump out of the group ends the lane: the next group begins with its own first row.
    outside = np.append(group[np.minimum(jump[:-1], n - 1)] != group, True)
    jump[outside] = n
    taken = np.zeros(n + 1, bool)
    taken[:1] = True
    taken[1:n][group[1:] != group[:-1]] = True
    for _ in range(n.bit_length()):
        taken[jump[:-1][taken[:-1]]] = True
        jump = jump[jump]
    return taken[:-1]
