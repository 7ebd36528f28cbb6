"""Fixes after which some kernels are not run any more: their cost and their saving are the same."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.fixes import Found
from profkit.analysis.fixes.kernel import _gone
from profkit.analysis.replay.model import Model
from profkit.analysis.work import KERNELS
from profkit.model import Ints, Mask


def kernels_gone(model: Model, ops: Ints, assumed: str) -> Found | None:
    """These operations neither run nor are launched."""
    if not len(ops):
        return None
    gone = partial(_gone, ops=ops)
    return Found(count=len(ops), free=gone, fixed=gone, assumed=(assumed,), ops=ops)


def ops_of(model: Model, kernels: Mask) -> Ints:
    """Operations that are kernels of a mask over ``kernels``."""
    rows = np.flatnonzero(model.work.table == KERNELS)
    return rows[kernels[model.work.row[rows]]] if len(kernels) else rows[:0]
