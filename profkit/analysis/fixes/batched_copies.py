"""Many small uploads in a step: one upload of all of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import H2D, LARGE_BYTES, copied_by, copies, step_of_calls
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints

FEWEST = 4
"""Fewer small uploads in a step are not many."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    ops, kind, size = copies(analysis, model)
    step = step_of_calls(analysis, model)
    if not len(ops):
        return None
    # One that waits for each of its copies has another fault first: async-copies.
    is_async = copied_by(analysis, model, ops, "Async")
    ops = ops[(kind == H2D) & (size <= LARGE_BYTES) & (step[model.call[ops]] >= 0) & is_async]
    if not len(ops):
        return None
    of = step[model.call[ops]]
    count = np.bincount(of)
    ops = ops[count[of] >= FEWEST]
    ops = ops[np.lexsort((model.work.start[ops], step[model.call[ops]]))]
    if not len(ops):
        return None
    of = step[model.call[ops]]
    first = np.ones(len(ops), bool)
    first[1:] = of[1:] != of[:-1]
    return Found(
        count=len(ops),
        free=partial(_free, ops=ops),
        fixed=partial(_free, ops=ops[~first]),
        assumed=("one upload of all of them takes as long as one of them: bound by latency, not by bytes",),
        facts={"uploads": len(ops), "steps": int(first.sum())},
        ops=ops,
    )


def _free(model: Model, *, ops: Ints) -> Model:
    calls = np.unique(model.call[ops])
    return edits.without_ops(edits.gone(model, calls), ops)


FIX = Fix("batched-copies", "PK306", "Upload in one copy", find)
