"""A kernel made faster or slower: ``kernel:NAME=0.7x``, or left out: ``kernel:NAME=0``."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.analysis.work import KERNELS
from profkit.errors import UsageError
from profkit.model import Ints

MOST = 1_000
"""Times of kernels that take longer still are no times that one asks for."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    name, times = name_and_factor(argument)
    ops = named_kernels(analysis, model, name)
    if not len(ops):
        return None
    length = np.rint((model.work.end[ops] - model.work.start[ops]) * times).astype(np.int64)
    faster = partial(edits.with_length, ops=ops, dur=length)
    gone = partial(_gone, ops=ops)
    return Found(
        count=len(ops),
        free=gone,
        fixed=faster if times else gone,
        assumed=(f"kernels whose name holds {text.clip(name, 60)!r} take {times:g} of their time",),
        ops=ops,
    )


def _gone(model: Model, *, ops: Ints) -> Model:
    """Neither run nor launched."""
    model = edits.without_ops(model, ops)
    calls = np.unique(model.call[ops])
    calls = calls[calls >= 0]
    # A call that launches others, too (a graph), stays.
    alone = calls[~np.isin(calls, np.delete(model.call, ops))]
    return edits.gone(model, alone)


def named_kernels(analysis: Analysis, model: Model, name: str) -> Ints:
    """Operations that are kernels whose name holds a text, lower and upper case alike."""
    rows = np.flatnonzero(model.work.table == KERNELS)
    names = analysis.trace.array("kernels", "name")[model.work.row[rows]]
    fits = analysis.trace.name_rows(lambda text: name.lower() in text.lower(), "text", among=names)
    return rows[fits[names]] if len(rows) else rows


def name_and_factor(argument: str) -> tuple[str, float]:
    """``NAME=0.7x`` in its two parts; the name may hold ``=`` itself. Raises UsageError."""
    name, _, word = argument.rpartition("=")
    try:
        times = float(word.removesuffix("x"))
    except ValueError:
        times = -1.0
    if not name or not 0 <= times <= MOST:
        raise UsageError(
            f"kernel needs a name and a factor from 0 to {MOST:,}, as in kernel:gemm=0.7x, not {argument!r}"
        )
    return name, times


FIX = Fix("kernel", "PK402", "Run a kernel in a part of its time", find, argument="NAME=0.7x", check=name_and_factor)
