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
