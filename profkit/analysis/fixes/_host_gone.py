"""Fixes after which some host work is not on the thread any more: their cost and their saving are the same."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.fixes import Found
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints


def host_gone(model: Model, part: Ints, assumed: str) -> Found | None:
    """``part`` ns of the host work before each call are gone."""
    part = np.minimum(part, model.calls.gap)
    calls = np.flatnonzero(part > 0)
    if not len(calls):
        return None
    gone = partial(_less, calls=calls, part=part[calls])
    return Found(
        count=len(calls),
        free=gone,
        fixed=gone,
        assumed=(assumed,),
        facts={"host_work_ns": int(part[calls].sum())},
        calls=calls,
        host_ns=part[calls],
    )


def _less(model: Model, *, calls: Ints, part: Ints) -> Model:
    return edits.with_gap(model, calls, np.maximum(model.calls.gap[calls] - part, 0))
