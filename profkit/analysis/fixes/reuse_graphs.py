"""CUDA graphs captured or instantiated in steady state: instantiated once, updated or kept for each batch size."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import named, steady_calls
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints, Mask


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """All calls from the begin of a capture to its end, instantiation, update and destruction, after warm-up."""
    inside = np.flatnonzero(captured(analysis, model))
    rest = named(analysis, model, "GraphInstantiate", "GraphDestroy", "GraphExecDestroy", "GraphExecUpdate")
    calls = np.union1d(inside, rest)
    if analysis.steps.counted.any():
        calls = steady_calls(analysis, model, calls)
    else:  # what comes before the first replay is the start of the program
        launched = model.calls.start[model.calls.kind == GRAPH_LAUNCH]
        calls = calls[model.calls.start[calls] > launched.min()] if len(launched) else calls[:0]
    if not len(calls):
        return None
    gone = partial(edits.gone, calls=calls)
    return Found(
        count=len(calls),
        free=gone,
        fixed=gone,
        assumed=("each graph is captured and instantiated before the first step",),
        calls=calls,
    )


def captured(analysis: Analysis, model: Model) -> Mask:
    """Calls from the begin of a capture to its end."""
    begin = named(analysis, model, "BeginCapture")
    end = named(analysis, model, "EndCapture")
    depth = np.zeros(len(model.calls) + 1, np.int64)
    # Calls are in order of their threads: a capture's begin and end enclose what it records.
    for b, e in _pairs(model, begin, end):
        depth[b] += 1
        depth[e + 1] -= 1
    inside: Mask = np.cumsum(depth)[:-1] > 0
    return inside


def _pairs(model: Model, begin: Ints, end: Ints) -> list[tuple[int, int]]:
    """Each begin with the next end of its thread."""
    place = np.searchsorted(end, begin)
    ok = place < len(end)
    pairs = zip(begin[ok].tolist(), end[place[ok]].tolist(), strict=True)
    return [(b, e) for b, e in pairs if model.calls.track[b] == model.calls.track[e]]


FIX = Fix("reuse-graphs", "PK203", "Instantiate graphs once", find)
