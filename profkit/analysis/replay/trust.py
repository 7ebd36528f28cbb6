"""How far a model can be trusted: the recorded window against a replay in which nothing is later than its causes allow.

A replay with the recorded lags gives back the recorded times by construction and proves nothing. Here every lag that
its constraint does not explain (an operation that starts long after all that it is known to wait for, a wait that
returns long after the work was done or that waits for nothing that was recorded) takes its usual length instead. What
the window then loses is time that the model cannot account for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profkit import text
from profkit.analysis.calls import SYNC
from profkit.analysis.replay.model import PEER, WAIT, Model
from profkit.analysis.replay.solve import replay as solve
from profkit.analysis.work import COPIES
from profkit.model import Ints, Mask

PLAUSIBLE_NS = 20_000
"""A lag up to this, or up to ten usual ones, belongs to its constraint; a longer one has an unrecorded cause."""
LARGEST_ERROR = 0.02
"""Prices are not known where the model misses more than this share of the recorded window."""


@dataclass(frozen=True)
class Trust:
    """``error_ns``: recorded window minus the replay without unexplained lags; ``share`` of the recorded window, at
    most all of it (work that began long after its call makes a longer window where it does not).

    ``unjoined`` is the share of device operations whose call was not recorded: the model cannot move them.
    """

    window_ns: int
    error_ns: int
    unexplained_ops: int
    unexplained_calls: int
    unjoined: float

    @property
    def share(self) -> float:
        return min(abs(self.error_ns) / self.window_ns, 1.0) if self.window_ns else 0.0

    @property
    def holds(self) -> bool:
        return self.window_ns > 0 and self.share <= LARGEST_ERROR and self.unjoined <= 0.5

    @property
    def why_not(self) -> str:
        """Why prices are not known; empty where they are."""
        if not self.window_ns:
            return "there is no device work that takes time"
        if self.unjoined > 0.5:
            return f"{100 * self.unjoined:.1f} % of the device operations have no recorded call"
        if self.share > LARGEST_ERROR:
            ops, calls = self.unexplained_ops, self.unexplained_calls
            parts = [text.count(ops, "start of device work", "starts of device work")] if ops else []
            parts += [text.count(calls, "wait of the host", "waits of the host")] if calls else []
            return (
                f"the replay explains {100 * (1 - self.share):.1f} % of the recorded window: {' and '.join(parts)} "
                f"{'has' if ops + calls == 1 else 'have'} no recorded cause"
            )
        return ""


def how_far(model: Model) -> Trust:
    """Measure a model against the record that it was made from."""
    edges = model.edges
    limit = np.maximum(PLAUSIBLE_NS, 10 * edges.usual)
    # A wait counted from the start of an operation is as long as that operation.
    from_start = (edges.kind == WAIT) & (edges.src >= model.first_op) & ((edges.src - model.first_op) % 2 == 0)
    long = edges.bound & (edges.weight > limit) & (edges.kind != PEER) & ~from_start & ~_staging(model)
    weight = np.where(long, np.minimum(edges.weight, edges.usual), edges.weight)
    idle_waits = _long_waits(model)
    own = model.calls.own.copy()
    own[idle_waits] = np.minimum(own[idle_waits], PLAUSIBLE_NS)
    bare = replace(model, edges=replace(edges, weight=weight), calls=replace(model.calls, own=own))
    recorded = int(model.work.end.max() - model.work.start.min()) if len(model.work) else 0
    on_starts = int((long & (edges.dst >= model.first_op)).sum())
    return Trust(
        window_ns=recorded,
        error_ns=recorded - solve(bare).window,
        unexplained_ops=on_starts,
        unexplained_calls=int(long.sum()) - on_starts + len(idle_waits),
        unjoined=_unjoined(model),
    )


def _staging(model: Model) -> Mask:
    """Constraints on copies that begin inside of their calls: until then the host was busy staging them."""
    edges, first = model.edges, model.first_op
    if not len(model.calls) or not len(model.work):
        return np.zeros(len(edges), bool)
    inside = (model.call >= 0) & (model.work.start < model.calls.end[np.maximum(model.call, 0)])
    inside &= model.work.table == COPIES
    mask: Mask = (edges.dst >= first) & inside[np.maximum(edges.dst - first, 0) // 2]
    return mask


def _long_waits(model: Model) -> Ints:
    """Synchronisations that took long, though no recorded device work ended inside of them."""
    mask: Mask = (model.calls.kind == SYNC) & (model.calls.own > PLAUSIBLE_NS)
    return np.flatnonzero(mask)


def _unjoined(model: Model) -> float:
    mine = ~model.fixed  # what was submitted before has its call outside of what is replayed
    return float((model.call[mine] < 0).mean()) if mine.any() else 0.0
