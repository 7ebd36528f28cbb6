"""Uploads that the same step waits for: issued a step ahead on a stream of their own, beside its kernels."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import ALLOCATOR
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import (
    H2D,
    LARGE_BYTES,
    copies,
    is_pageable,
    named,
    step_of_calls,
    usual_submit,
    waiting_calls,
)
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import EVENT, STREAM, WAIT, Model
from profkit.model import Ints, Mask

OF_STEP = 0.01
"""An upload that takes a smaller part of a step is not worth a stream of its own."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """Uploads in steps of more than 64 kB and 1 % of a step, where the step before has one too: it is then issued."""
    ops, kind, size = copies(analysis, model)
    step = step_of_calls(analysis, model)
    mine = (kind == H2D) & (size > LARGE_BYTES) & (step[model.call[ops]] >= 0)
    mine &= ~is_pageable(analysis, model, ops)  # these have to be pinned first: pinned-copies
    mine &= model.work.end[ops] - model.work.start[ops] >= OF_STEP * analysis.counted_steps().median_ns
    ops = ops[mine]
    if not len(ops):
        return None
    before = _calls_a_step_before(analysis, step, model, ops)
    known = before >= 0
    if not known.any():
        return None
    drains = (model.calls.kind == ALLOCATOR) & waiting_calls(model)
    drains[named(analysis, model, "DeviceSynchronize", "CtxSynchronize")] = True
    calls = np.unique(model.call[ops[known]])
    submit = np.minimum(usual_submit(model), model.calls.end[calls] - model.calls.start[calls])
    return Found(
        count=int(known.sum()),
        free=partial(_free, calls=calls, ops=ops[known]),
        fixed=partial(_ahead, calls=calls, ops=ops[known], before=before[known], submit=submit, drains=drains),
        assumed=(
            "what is uploaded is known a step before it is needed, and there is room for it on the GPU",
            "the copy engine runs beside the kernels without slowing them",
        ),
        calls=calls,
        ops=ops[known],
    )


def _calls_a_step_before(analysis: Analysis, step: Ints, model: Model, ops: Ints) -> Ints:
    """The call of the upload at the same place of the process's step before, else of its first one; -1 without one."""
    of = step[model.call[ops]]
    process = analysis.steps.process
    earlier = np.where((of > 0) & (process[np.maximum(of - 1, 0)] == process[of]), of - 1, -1)
    place = np.zeros(len(ops), np.int64)
    new = np.ones(len(ops), bool)
    order = np.lexsort((model.work.start[ops], of))
    new[1:] = of[order][1:] != of[order][:-1]
    starts = np.flatnonzero(new)
    place[order] = np.arange(len(ops)) - np.repeat(starts, np.diff(np.append(starts, len(ops))))
    found = {(int(s), int(p)): int(c) for s, p, c in zip(of, place, model.call[ops], strict=True)}
    out = [found.get((int(s), int(p)), found.get((int(s), 0), -1)) for s, p in zip(earlier, place, strict=True)]
    return np.asarray(out, np.int64)


def _free(model: Model, *, calls: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.gone(model, calls), ops)


def _ahead(model: Model, *, calls: Ints, ops: Ints, before: Ints, submit: Ints, drains: Mask) -> Model:
    first = model.first_op
    edges = model.edges
    gone = np.zeros(len(model.work) + 1, bool)  # the last one is the origin's
    gone[ops] = True
    behind = (edges.kind == STREAM) & gone[np.maximum(edges.src - first, 0) // 2] & (edges.src >= first)
    behind &= ~gone[np.maximum(edges.dst - first, 0) // 2]
    ends, consumers = edges.src[behind] | 1, edges.dst[behind]  # first is even: an odd point is an end
    later, waiting, wake = _drained(model, ops, before, drains)
    model = edits.with_own(edits.without_waits(model, calls), calls, np.minimum(model.calls.own[calls], submit))
    model = edits.resubmitted(edits.on_own_stream(model, ops), ops, before)
    model = edits.with_constraint(model, later, waiting, wake, WAIT)
    return edits.with_constraint(model, ends, consumers, 0, EVENT)


def _drained(model: Model, ops: Ints, before: Ints, drains: Mask) -> tuple[Ints, Ints, Ints]:
    """(ends of uploads, ends of calls, lags): a call that drains the device behind an upload will find the next one."""
    edges, first = model.edges, model.first_op
    following = np.full(len(model.calls) + 1, -1, np.int64)
    following[before] = ops  # the upload that is submitted where this one was
    waits = np.flatnonzero((edges.kind == WAIT) & (edges.src >= first) & (edges.dst < first))
    waits = waits[drains[edges.dst[waits] // 2]]
    of = (edges.src[waits] - first) // 2
    moved = np.isin(of, ops)
    waits, of = waits[moved], of[moved]
    then = following[model.call[of]]
    keep = (then >= 0) & (edges.dst[waits] // 2 > model.call[of])
    return first + 2 * then[keep] + 1, edges.dst[waits[keep]], np.minimum(edges.weight, edges.usual)[waits[keep]]


FIX = Fix("prefetch", "PK305", "Upload a step ahead", find)
