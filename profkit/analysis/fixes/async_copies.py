"""Synchronous copies (cudaMemcpy): asynchronous ones on the same stream, from a pinned buffer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import D2H, H2D, copied_by, copies
from profkit.analysis.fixes.pinned_copies import of_copies
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    ops, kind, size = copies(analysis, model)
    if not len(ops):
        return None
    mine = np.isin(kind, (H2D, D2H)) & copied_by(analysis, model, ops, "emcpy", without=("Async", "Stream"))
    if not mine.any():
        return None
    found = of_copies(analysis, model, ops[mine], kind[mine], size[mine])
    if not (kind[mine] == D2H).any():
        return found
    needed = "what is copied to the host is not needed before its copy is done by itself"
    return replace(found, assumed=(*found.assumed, needed))


FIX = Fix("async-copies", "PK302", "Copy asynchronously", find)
