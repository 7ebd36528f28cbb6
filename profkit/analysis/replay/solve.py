"""Replays a model: every point as late as the latest of its constraints.

Most points have one constraint only (a call that waits for nothing starts its own work after the call before it): these
are sums along a thread. Only the rest, operations and calls that wait, is walked through in order of time.
"""

from __future__ import annotations

import numpy as np

from profkit.analysis.replay.engines import in_order_of, without_engines
from profkit.analysis.replay.model import Model, Times
from profkit.errors import ProfkitError
from profkit.model import Array, Ints, Mask

_NEVER = -(1 << 60)
_ROUNDS = 64
"""So many constraints in a row that are of one instant are put in order by vectors; more of them one by one."""


class CircleError(ProfkitError):
    """Constraints go round in a circle: a change asks for what cannot be."""

    def __init__(self) -> None:
        super().__init__("the dependencies of this trace go round in a circle: it cannot be replayed")


def replay(model: Model) -> Times:
    """Times of every call and operation under the constraints of a model.

    Raises CircleError where constraints go round in a circle, which no recorded trace has.
    """
    if not model.shared_engine:
        return _solve(model, model.recorded())
    # Copies become ready in another order than recorded: found without the engines, kept with them.
    free = _solve(without_engines(model), model.recorded())
    return _solve(in_order_of(model, free), model.as_points(free))


def _solve(model: Model, order: Ints) -> Times:
    """``order`` are times of all points, in the order of which each is found after what it waits for if they allow."""
    base, offset = _along_threads(model)
    junctions, number = _junctions(model, base, order)
    time = _walk(model, base, offset, junctions, number)
    return model.as_times(time[number[base]] + offset)


def _along_threads(model: Model) -> tuple[Ints, Ints]:
    """(junction, length after it) of every point: where its one chain of constraints begins."""
    calls, half, n = model.calls, model.first_op, model.points
    joins = np.zeros(n, bool)
    joins[model.edges.dst] = True
    joins[half::2] = True  # the origin, too
    joins[0:half:2] |= calls.fixed
    step = np.empty(n, np.int64)
    step[0:half:2], step[1:half:2] = calls.gap, calls.own
    step[half::2], step[half + 1 : -1 : 2] = 0, model.dur
    total = np.cumsum(step)
    base = np.maximum.accumulate(np.where(joins, np.arange(n), 0)) if n else np.zeros(0, np.int64)
    return base, total - total[base]


def _junctions(model: Model, base: Ints, recorded: Ints) -> tuple[Ints, Ints]:
    """(junctions in an order in which each comes after all that it waits for, the place of each point there)."""
    junctions = base[np.append(True, base[1:] != base[:-1])] if len(base) else base  # they never fall
    number = np.zeros(model.points, np.int64)
    number[junctions] = np.arange(len(junctions))
    own = _own_edges(model, junctions)
    src = number[np.concatenate((base[model.edges.src], base[own[0]]))]
    dst = number[np.concatenate((model.edges.dst, own[1]))]
    counts = (src != dst) & ~_stays(model, junctions)[dst]
    src, dst, when = src[counts], dst[counts], recorded[junctions]
    order = _by_time(src, dst, when)
    if order is None:
        order = _by_dependence(src, dst, len(junctions))
    number[junctions[order]] = np.arange(len(order))
    return junctions[order], number


def _by_time(src: Ints, dst: Ints, when: Ints) -> Ints | None:
    """Order by time, what is of one instant by its dependencies; None where a change contradicts the recorded times,
    or where more than some constraints in a row are of one instant."""
    if (when[src] > when[dst]).any():
        return None
    tied = np.flatnonzero(when[src] == when[dst])
    rank = np.zeros(len(when), np.int64)
    for _ in range(_ROUNDS):
        late = tied[rank[src[tied]] >= rank[dst[tied]]]
        if not len(late):
            return np.lexsort((rank, when))
        np.maximum.at(rank, dst[late], rank[src[late]] + 1)
    return None


def _by_dependence(src: Ints, dst: Ints, n: int) -> Ints:
    """Any order of ``n`` points in which each comes after all that it waits for."""
    missing = np.bincount(dst, minlength=n).tolist()
    begin = np.concatenate(([0], np.cumsum(np.bincount(src, minlength=n)))).tolist()
    after = dst[np.argsort(src, kind="stable")].tolist()
    order = [point for point, count in enumerate(missing) if not count]
    for point in order:  # grows while it is walked
        for other in after[begin[point] : begin[point + 1]]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    if len(order) < n:
        raise CircleError
    return np.asarray(order, np.int64)


def _own_edges(model: Model, junctions: Ints) -> tuple[Ints, Ints]:
    """(src, dst) of the constraints that a junction has of its own kind: its thread, or its own start."""
    half = model.first_op
    of_thread = junctions[(junctions < half) & ~_is_fixed_start(model, junctions)]
    ends = junctions[(junctions >= half) & ((junctions - half) % 2 == 1)]
    dst = np.concatenate((of_thread, ends))
    return dst - 1, dst


def _is_fixed_start(model: Model, points: Ints) -> Mask:
    half = model.first_op
    inside = points < half
    fixed = np.zeros(len(points), bool)
    starts = inside & (points % 2 == 0)
    fixed[starts] = model.calls.fixed[points[starts] // 2]
    return fixed


def _walk(model: Model, base: Ints, offset: Ints, junctions: Ints, number: Ints) -> Ints:
    """Time of each junction, in their order."""
    own_src, own_dst = _own_edges(model, junctions)
    half = model.first_op
    own_weight = np.where(
        own_dst >= half,
        model.dur[np.maximum((own_dst - half) // 2, 0)] if len(model.dur) else 0,
        np.where(own_dst % 2 == 0, _at(model.calls.gap, own_dst // 2), _at(model.calls.own, own_dst // 2)),
    )
    edges = model.edges
    src = np.concatenate((edges.src, own_src))
    dst = number[np.concatenate((edges.dst, own_dst))]
    weight = np.concatenate((edges.weight, own_weight)) + offset[src]
    src = number[base[src]]
    order = np.argsort(dst, kind="stable")
    fixed = np.full(len(junctions), _NEVER)
    counts = np.bincount(dst, minlength=len(junctions))
    recorded = model.recorded()[junctions]
    stays = _stays(model, junctions)
    # An operation that nothing holds keeps its recorded time.
    fixed[stays | (counts == 0)] = recorded[stays | (counts == 0)]
    keep = order[~stays[dst[order]]]
    counts = np.bincount(dst[keep], minlength=len(junctions))
    return _relax(fixed, counts, src[keep], weight[keep])


def _stays(model: Model, junctions: Ints) -> Mask:
    half = model.first_op
    stays = np.zeros(len(junctions), bool)
    starts = (junctions >= half) & ((junctions - half) % 2 == 0) & (junctions != model.origin)
    stays[starts] |= model.fixed[(junctions[starts] - half) // 2]
    return stays


def _relax(fixed: Ints, counts: Ints, src: Ints, weight: Ints) -> Ints:
    """The one loop over events of profkit: a point needs the times of those before it, so that it cannot be a vector.

    Plain lists: a loop over numpy scalars takes five times as long.
    """
    time: list[int] = fixed.tolist()
    sources, weights = iter(src.tolist()), iter(weight.tolist())
    for place, n in enumerate(counts.tolist()):
        if n == 2:
            one = time[next(sources)] + next(weights)
            two = time[next(sources)] + next(weights)
            time[place] = max(one, two)
        elif n == 1:
            time[place] = time[next(sources)] + next(weights)
        elif n:
            time[place] = max([time[next(sources)] + next(weights) for _ in range(n)])
    return np.asarray(time, np.int64)


def _at(values: Array, index: Ints) -> Array:
    return values[np.minimum(index, max(len(values) - 1, 0))] if len(values) else np.zeros(len(index), np.int64)
