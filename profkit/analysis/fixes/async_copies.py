"""Synchronous copies (cudaMemcpy): asynchronous ones on the same stream, from a pinned buffer."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import D2H, H2D, call_names, copies
from profkit.analysis.fixes.pinned_copies import of_copies
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    ops, kind, size = copies(analysis, model)
    is_sync = analysis.trace.name_rows(lambda name: "emcpy" in name and "Async" not in name and "Stream" not in name)
    mine = np.isin(kind, (H2D, D2H))
    mine &= is_sync[call_names(analysis, model)[model.call[ops]]] if len(ops) else False
    if not mine.any():
        return None
    return of_copies(analysis, model, ops[mine], kind[mine], size[mine])


FIX = Fix("async-copies", "PK302", "Copy asynchronously", find)
