"""Waiting by asking (cudaEventQuery in a loop): one synchronisation, which wakes the thread when the work is done."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.replay.model import POLL, WAIT, Model

USUAL_WAKE_NS = 5_000
"""From the end of the work to the return of a synchronisation, where a trace has none to measure."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    edges = model.edges
    polls = edges.kind == POLL
    if not polls.any():
        return None
    syncs = (edges.kind == WAIT) & edges.bound & (edges.src >= model.first_op) & ((edges.src - model.first_op) % 2 == 1)
    wake = int(np.median(edges.weight[syncs])) if syncs.any() else USUAL_WAKE_NS
    source = f"median of {int(syncs.sum()):,} waits of this trace" if syncs.any() else "assumed"
    return Found(
        count=int(polls.sum()),
        calls=np.unique(edges.dst[polls] // 2),
        free=partial(_woken, wake=0),
        fixed=partial(_woken, wake=wake),
        assumed=(f"a synchronisation returns {text.ns(wake)} after the work is done ({source})",),
    )


def _woken(model: Model, *, wake: int) -> Model:
    edges = model.edges
    weight = np.where(edges.kind == POLL, np.minimum(edges.weight, wake), edges.weight)
    return replace(model, edges=replace(edges, weight=weight))


FIX = Fix("no-polling", "PK209", "Wait by a synchronisation", find)
