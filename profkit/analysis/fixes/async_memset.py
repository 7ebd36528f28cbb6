"""Synchronous memsets: asynchronous ones on the same stream."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import MEMSET
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import named, usual_submit
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    calls = named(analysis, model, "emset", without=("Async", "Node"))
    if not len(calls):
        return None
    ops = np.flatnonzero(np.isin(model.call, calls))
    submit = np.minimum(usual_submit(model, MEMSET), model.calls.end[calls] - model.calls.start[calls])
    return Found(
        count=len(calls),
        free=partial(_free, calls=calls, ops=ops),
        fixed=partial(_fixed, calls=calls, submit=submit),
        assumed=("the call waits for nothing",),
        calls=calls,
        ops=ops,
    )


def _free(model: Model, *, calls: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.gone(model, calls), ops)


def _fixed(model: Model, *, calls: Ints, submit: Ints) -> Model:
    return edits.with_own(edits.without_waits(model, calls), calls, submit)


FIX = Fix("async-memset", "PK309", "Set memory asynchronously", find)
