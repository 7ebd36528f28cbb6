"""Copies between pageable memory and the GPU through an asynchronous call: from a pinned buffer, made once."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import (
    D2H,
    H2D,
    LARGE_BYTES,
    copied_by,
    copies,
    is_pageable,
    usual_start,
    usual_submit,
)
from profkit.analysis.fixes._rates import pinned_length, pinned_rate
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    ops, kind, size = copies(analysis, model)
    mine = is_pageable(analysis, model, ops) & np.isin(kind, (H2D, D2H))
    mine &= copied_by(analysis, model, ops, "Async", "WithStream")
    if not mine.any():
        return None
    return of_copies(analysis, model, ops[mine], kind[mine], size[mine])


def of_copies(analysis: Analysis, model: Model, ops: Ints, kind: Ints, size: Ints) -> Found:
    """The same for some copies of a model."""
    length, assumed = pinned_lengths(analysis, model, ops, kind, np.where(is_pageable(analysis, model, ops), size, 0))
    calls = np.unique(model.call[ops])
    submit = np.minimum(usual_submit(model), model.calls.end[calls] - model.calls.start[calls])
    return Found(
        count=len(ops),
        free=partial(_free, calls=calls, ops=ops),
        fixed=partial(_pinned, calls=calls, ops=ops, length=length, submit=submit, lag=usual_start(model)),
        assumed=(*assumed, f"the call returns after {text.ns(int(submit.max()))} and waits for nothing"),
        calls=calls,
        ops=ops,
    )


def pinned_lengths(analysis: Analysis, model: Model, ops: Ints, kind: Ints, size: Ints) -> tuple[Ints, tuple[str, ...]]:
    """(length of each copy from pinned memory, ns, never more than recorded; the rates assumed, in words).

    Copies of up to 64 kB keep their length.
    """
    length = model.work.end[ops] - model.work.start[ops]
    assumed = []
    for device in np.unique(model.work.device[ops]).tolist():
        for code, word in ((H2D, "H2D"), (D2H, "D2H")):
            mine = (model.work.device[ops] == device) & (kind == code) & (size > LARGE_BYTES)
            if mine.any():
                rate, source = pinned_rate(analysis, model, int(device), code)
                length[mine] = np.minimum(length[mine], pinned_length(size[mine], rate))
                assumed.append(f"{word} from pinned memory at {text.rate(rate, 1_000_000_000)} ({source})")
    return length, tuple(assumed)


def _free(model: Model, *, calls: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.gone(model, calls), ops)


def _pinned(model: Model, *, calls: Ints, ops: Ints, length: Ints, submit: Ints, lag: int) -> Model:
    model = edits.with_own(edits.without_waits(model, calls), calls, submit)
    return edits.without_staging(edits.with_length(model, ops, length), ops, lag)


FIX = Fix("pinned-copies", "PK301", "Copy from and to pinned memory", find)
