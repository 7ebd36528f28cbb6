"""Changes of a model, each a function from a model to a new one. Positions are those of its calls and its work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.replay.model import LAUNCH, QUEUE, STREAM, WAIT, Edges, Model
from profkit.model import Ints, Mask


def without_waits(model: Model, calls: Ints) -> Model:
    """These calls return without waiting for the device; what they take by themselves stays."""
    return _drop(model, _into(model, calls) & np.isin(model.edges.kind, (WAIT, QUEUE)))


def with_own(model: Model, calls: Ints, own: Ints | int) -> Model:
    """What these calls take by themselves, ns."""
    new = model.calls.own.copy()
    new[calls] = own
    return replace(model, calls=replace(model.calls, own=new))


def without_calls(model: Model, calls: Ints) -> Model:
    """These calls take no time: they neither wait nor work."""
    return with_own(without_waits(model, calls), calls, 0)


DISPATCH_NS = 20_000
"""Host work of up to this right before a call is done for the call: what leads from Python to it."""


def gone(model: Model, calls: Ints) -> Model:
    """These calls are not made: neither they nor the host's dispatch right before them take time."""
    short = calls[model.calls.gap[calls] <= DISPATCH_NS]
    return with_gap(without_calls(model, calls), short, 0)


def with_gap(model: Model, calls: Ints, gap: Ints | int) -> Model:
    """The host's own work before these calls, ns; the start of a thread's first call stays as recorded."""
    new = model.calls.gap.copy()
    new[calls] = gap
    new[model.calls.fixed] = 0
    return replace(model, calls=replace(model.calls, gap=new))


def with_length(model: Model, ops: Ints, dur: Ints | int) -> Model:
    """How long these operations take, ns. What waited for the start of one waits as long behind it, at most ``dur``."""
    new = model.dur.copy()
    new[ops] = dur
    edges = model.edges
    start = np.full(model.points, -1, np.int64)
    start[model.first_op + 2 * ops] = ops
    of = start[edges.src]
    # A staged copy's call returns during the copy, as far through it as before.
    part = (of >= 0) & ((edges.kind == WAIT) | (edges.kind == STREAM))
    weight = edges.weight.copy()
    old = np.maximum(model.dur[of[part]], 1)
    weight[part] = np.where(new[of[part]] < old, _scaled(weight[part], new[of[part]], old), weight[part])
    return replace(model, dur=new, edges=replace(edges, weight=weight))


def _scaled(value: Ints, numerator: Ints, denominator: Ints) -> Ints:
    """value * numerator // denominator; rounded where the product of two lengths of some seconds exceeds 64 bits."""
    large = value > np.iinfo(np.int64).max // np.maximum(numerator, 1)
    exact = np.where(large, 0, value) * numerator // denominator
    return np.where(large, np.rint(value / denominator * numerator).astype(np.int64), exact)


def without_ops(model: Model, ops: Ints) -> Model:
    """These operations take no time, and nothing holds them but their calls and the one before in their stream."""
    model = with_length(model, ops, 0)
    gone = np.zeros(len(model.work), bool)
    gone[ops] = True
    edges = model.edges
    into = (edges.dst >= model.first_op) & gone[np.maximum(edges.dst - model.first_op, 0) // 2]
    weight = np.where(into & (edges.kind == STREAM), 0, edges.weight)
    weight = np.where(into & (edges.kind == LAUNCH), np.minimum(weight, edges.usual), weight)
    keep = ~into | np.isin(edges.kind, (STREAM, LAUNCH))
    return replace(model, edges=replace(edges, weight=weight).where(keep))


def without_staging(model: Model, ops: Ints, lag: int) -> Model:
    """These copies begin ``lag`` ns after their call returned, or as soon as is usual behind what they wait for."""
    edges = model.edges
    chosen = np.zeros(len(model.work), bool)
    chosen[ops] = True
    index = np.maximum(edges.dst - model.first_op, 0) // 2
    into = (edges.dst >= model.first_op) & chosen[index]
    launch = into & (edges.kind == LAUNCH)
    src = np.where(launch, 2 * model.call[index] + 1, edges.src)
    weight = np.where(into, np.minimum(edges.weight, lag), edges.weight)
    return replace(model, edges=replace(edges, src=src, weight=weight))


def with_start_lag(model: Model, ops: Ints, kind: int, lag: int) -> Model:
    """These operations begin ``lag`` ns behind what a kind of constraint counts from; a lag below 0 changes nothing."""
    if lag < 0:
        return model
    edges = model.edges
    chosen = np.zeros(len(model.work), bool)
    chosen[ops] = True
    into = (edges.dst >= model.first_op) & (edges.kind == kind) & chosen[np.maximum(edges.dst - model.first_op, 0) // 2]
    into &= edges.src % 2 == 1  # from a return, from an end
    return replace(model, edges=replace(edges, weight=np.where(into, lag, edges.weight)))


def resubmitted(model: Model, ops: Ints, calls: Ints) -> Model:
    """These operations are submitted by other calls, as soon after their return as is usual; -1: by none."""
    edges = model.edges
    place = np.full(len(model.work), -1, np.int64)
    place[ops] = np.arange(len(ops))
    index = np.maximum(edges.dst - model.first_op, 0) // 2
    at = np.where((edges.dst >= model.first_op) & (edges.kind == LAUNCH), place[index], -1)
    moved = np.flatnonzero(at >= 0)
    src, weight = edges.src.copy(), edges.weight.copy()
    src[moved] = 2 * calls[at[moved]] + 1
    weight[moved] = np.minimum(weight[moved], edges.usual[moved])
    keep = np.ones(len(edges), bool)
    keep[moved[calls[at[moved]] < 0]] = False
    return replace(model, edges=replace(edges, src=src, weight=weight).where(keep))


def on_own_stream(model: Model, ops: Ints) -> Model:
    """Take these operations out of their streams: what stood behind one stands behind the one before it."""
    edges = model.edges
    gone = np.zeros(len(model.work) + 1, bool)  # the last one is the origin's
    gone[ops] = True
    streams = edges.kind == STREAM
    before = np.full(len(model.work), -1, np.int64)
    first = model.first_op
    before[(edges.dst[streams] - first) // 2] = (edges.src[streams] - first) // 2
    while True:  # over several of them in a row
        again = (before >= 0) & gone[np.maximum(before, 0)]
        if not again.any():
            break
        before[again] = before[before[again]]
    dst = np.maximum(edges.dst - first, 0) // 2
    behind = streams & gone[np.maximum(edges.src - first, 0) // 2]
    src = np.where(behind, first + 2 * before[dst] + 1, edges.src)
    keep = ~(streams & gone[dst] & (edges.dst >= first)) & ~(behind & (before[dst] < 0))
    weight = np.where(behind, np.minimum(edges.weight, edges.usual), edges.weight)
    return replace(model, edges=replace(edges, src=src, weight=weight).where(keep), shared_engine=True)


def with_constraint(model: Model, src: Ints, dst: Ints, weight: Ints | int, kind: int) -> Model:
    """One more constraint on each point ``dst``: at least ``weight`` ns after point ``src``."""
    n = len(src)
    new = Edges(
        src=src,
        dst=dst,
        weight=np.broadcast_to(np.asarray(weight, np.int64), (n,)).copy(),
        kind=np.full(n, kind, np.int8),
        bound=np.zeros(n, bool),
        usual=np.broadcast_to(np.asarray(weight, np.int64), (n,)).copy(),
    )
    return replace(model, edges=Edges.join([model.edges, new]))


def _into(model: Model, calls: Ints) -> Mask:
    """Constraints on the ends of these calls."""
    chosen = np.zeros(len(model.calls), bool)
    chosen[calls] = True
    inside = model.edges.dst < model.first_op
    mask: Mask = inside & chosen[np.where(inside, model.edges.dst, 0) // 2] if len(model.calls) else inside
    return mask


def _drop(model: Model, mask: Mask) -> Model:
    return replace(model, edges=model.edges.where(~mask))
