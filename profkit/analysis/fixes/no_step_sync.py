"""Waits for the device inside every step: gone; what they read back is looked at a step later, from pinned memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import COPY, SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import D2H, copies, is_pageable, step_of_calls, usual_submit, waiting_calls
from profkit.analysis.fixes.pinned_copies import pinned_lengths
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    inside = step_of_calls(analysis, model) >= 0
    if not inside.any():  # without steps every wait counts
        inside = np.ones(len(model.calls), bool)
    ops, kind, size = copies(analysis, model)
    waits = waiting_calls(model) | (model.calls.kind == SYNC)
    read = (kind == D2H) & waits[model.call[ops]] & (model.calls.kind[model.call[ops]] == COPY)
    ops, kind, size = ops[read], kind[read], size[read]
    ops, kind, size = (part[inside[model.call[ops]]] for part in (ops, kind, size)) if len(ops) else (ops, kind, size)
    syncs = np.flatnonzero(inside & (model.calls.kind == SYNC))
    if not len(syncs) and not len(ops):
        return None
    pageable = is_pageable(analysis, model, ops)
    length, assumed = pinned_lengths(analysis, model, ops[pageable], kind[pageable], size[pageable])
    reads = np.unique(model.call[ops])
    submit = np.minimum(usual_submit(model), model.calls.end[reads] - model.calls.start[reads])
    return Found(
        count=len(syncs) + len(reads),
        free=partial(_free, syncs=syncs, reads=reads, ops=ops),
        fixed=partial(_fixed, syncs=syncs, reads=reads, submit=submit, ops=ops[pageable], length=length),
        assumed=(*assumed, "the host needs no result of a step before it submits the next one"),
        facts={"syncs": len(syncs), "read_backs": len(reads)},
    )


def _free(model: Model, *, syncs: Ints, reads: Ints, ops: Ints) -> Model:
    return edits.without_ops(edits.without_calls(model, np.concatenate((syncs, reads))), ops)


def _fixed(model: Model, *, syncs: Ints, reads: Ints, submit: Ints, ops: Ints, length: Ints) -> Model:
    model = edits.without_calls(model, syncs)
    model = edits.with_own(edits.without_waits(model, reads), reads, submit)
    return edits.with_length(model, ops, length)


FIX = Fix("no-step-sync", "PK303", "Do not wait for the device in each step", find)
