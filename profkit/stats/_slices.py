"""Intervals that lie in, or around, other intervals of their group, as slices: no pair is ever made.

Sorted by start, the intervals of one thread that lie inside a range stand side by side, as long as their ends grow with
their starts. Where intervals lie in each other they are split into chains in which they do: mostly there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit.arrays import pack
from profkit.model import Array, Ints, Mask


@dataclass(frozen=True)
class Chain:
    """Intervals in order of (group, start) whose ends grow, too, within each group; ``rows`` are their positions."""

    rows: Ints
    start: Ints
    end: Ints
    group: Array


MOST_CHAINS = 32
"""Intervals that lie in more others of their kind than this are damage, and are left out."""


def chains(start: Ints, end: Ints, group: Array) -> Iterator[Chain]:
    """Split intervals into chains: as many as intervals lie in each other at most, up to MOST_CHAINS."""
    rest = np.lexsort((-end, start, group))
    for _ in range(MOST_CHAINS):
        if not len(rest):
            return
        (key,) = pack([[group[rest]], [end[rest]]])
        grows = key >= np.maximum.accumulate(key)
        rows = rest[grows]
        yield Chain(rows, start[rows], end[rows], group[rows])
        rest = rest[~grows]


def slices(chain: Chain, start: Ints, end: Ints, group: Array, covering: bool = False) -> tuple[Ints, Ints]:
    """For each query [start, end] of a group the slice [low, high) of a chain that lies inside it, whole.

    With ``covering`` the slice that lies around it instead. Where there is none, high is not above low.
    """
    start_key, start_at = pack([[chain.group, group], [chain.start, start]])
    end_key, end_at = pack([[chain.group, group], [chain.end, end]])
    if covering:
        return np.searchsorted(end_key, end_at, side="left"), np.searchsorted(start_key, start_at, side="right")
    return np.searchsorted(start_key, start_at, side="left"), np.searchsorted(end_key, end_at, side="right")


def covered(start: Ints, end: Ints, group: Array, at: Ints, until: Ints, at_group: Array) -> Mask:
    """Which queries [at, until] lie whole in some interval of their group.

    Of the intervals that began by ``at`` the one that ends last decides.
    """
    begun, asked = pack([[group, at_group], [start, at]])
    end_key, until_key = pack([[group, at_group], [end, until]])
    order = np.argsort(begun, kind="stable")
    # Keys grow with the group first: the latest end so far is that of another group only where this one has none yet.
    latest = np.append(np.maximum.accumulate(end_key[order]) if len(order) else order, np.iinfo(np.int64).min)
    mask: Mask = latest[np.searchsorted(begun[order], asked, side="right") - 1] >= until_key
    return mask


def range_min(values: Ints, low: Ints, high: Ints) -> Ints:
    """Smallest of ``values[low:high]`` for each slice; none may be empty.

    Two overlapping windows of a power of two cover a slice. Windows are doubled in place and each slice is answered
    when its size comes: memory grows with the values, not with their logarithm.
    """
    out = np.empty(len(low), np.int64)
    if not len(low):
        return out
    size = np.frexp((high - low).astype(np.float64))[1] - 1  # the largest power of two that fits
    order = np.argsort(size, kind="stable")
    borders = np.searchsorted(size[order], np.arange(int(size.max()) + 2))
    window = np.asarray(values, np.int64)
    for power in range(int(size.max()) + 1):
        rows = order[borders[power] : borders[power + 1]]
        out[rows] = np.minimum(window[low[rows]], window[high[rows] - (1 << power)])
        window = np.minimum(window[: -(1 << power)], window[1 << power :])
    return out


def range_max(values: Ints, low: Ints, high: Ints) -> Ints:
    """Largest of ``values[low:high]`` for each slice; none may be empty."""
    return -range_min(-values, low, high)
