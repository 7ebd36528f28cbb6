"""Typical lags of a trace, measured on itself: what a constraint takes that was not the last one to be met."""

from __future__ import annotations

import numpy as np

from profkit.model import Array, Ints, Mask


def typical(values: Ints, group: Array, usable: Mask, groups: int, otherwise: int) -> Ints:
    """Median of the usable values of each group 0..groups-1, ns; without any, that of all, then ``otherwise``."""
    fallback = int(np.median(values[usable])) if usable.any() else otherwise
    out = np.full(groups, fallback, np.int64)
    for number in np.unique(group[usable]).tolist():
        out[number] = int(np.median(values[usable & (group == number)]))
    return out


def previous_in(group: Array, order_within: Ints | None = None) -> Ints:
    """For each row the row before it of its group, -1 for the first; rows in order of time, or of ``order_within``."""
    order = np.argsort(_narrow(group), kind="stable") if order_within is None else np.lexsort((order_within, group))
    out = np.full(len(group), -1, np.int64)
    same = group[order][1:] == group[order][:-1]
    out[order[1:][same]] = order[:-1][same]
    return out


def _narrow(group: Array) -> Array:
    """16 bits where they do: numpy sorts these by radix, ten times as fast."""
    if len(group) and int(group.min()) >= 0 and int(group.max()) < 1 << 15:
        return group.astype(np.int16)
    return group
