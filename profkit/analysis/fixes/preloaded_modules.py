"""Modules loaded in steady state, by calls of their own or inside the first launch of a kernel: loaded before it."""

from __future__ import annotations

from functools import partial

import numpy as np

from profkit.analysis.calls import MODULE_LOAD
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import named, steady_calls
from profkit.analysis.idle_host import HostStates
from profkit.analysis.idle_pieces import CODES
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model
from profkit.model import Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """What of each call after warm-up was loading: the call itself, a call inside it, or a row of driver overhead."""
    loading = _loading(analysis, model)
    calls = steady_calls(analysis, model, np.flatnonzero(loading > 0))
    if not len(calls):
        return None
    whole = calls[model.calls.kind[calls] == MODULE_LOAD]
    rest = np.setdiff1d(calls, whole)
    gone = partial(_gone, whole=whole, rest=rest, part=loading[rest])
    return Found(
        count=len(calls),
        free=gone,
        fixed=gone,
        assumed=("kernels are loaded before the first step (CUDA_MODULE_LOADING=EAGER, or a full warm-up)",),
        facts={"loading_ns": int(loading[calls].sum())},
        calls=calls,
    )


def _loading(analysis: Analysis, model: Model) -> Ints:
    """How much of each call was module loading or JIT, ns."""
    calls, trace = model.calls, analysis.trace
    out = np.zeros(len(calls), np.int64)
    graphs = named(analysis, model, "Graph")  # these load too, but are reuse-graphs'
    inner = calls.of[np.flatnonzero(analysis.call_kind == MODULE_LOAD)]
    asked = np.unique(inner[inner >= 0])
    if trace.rows("overheads"):
        asked = np.arange(len(calls))
    query, start, end, cause = HostStates(trace, analysis.ranges).pieces(
        calls.track[asked], calls.start[asked], calls.end[asked]
    )
    mine = cause == CODES["module_load"]
    np.add.at(out, asked[query[mine]], (end - start)[mine])
    out[graphs] = 0
    return out


def _gone(model: Model, *, whole: Ints, rest: Ints, part: Ints) -> Model:
    model = edits.gone(model, whole)
    return edits.with_own(model, rest, np.maximum(model.calls.own[rest] - part, 0))


FIX = Fix("preloaded-modules", "PK206", "Load kernels before the first step", find)
