"""cudaMalloc in steady state: memory that is reserved before the first step, or a caching allocator."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._calls_gone import calls_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return calls_gone(
        analysis, model, "cudaMalloc", "cuMemAlloc", "cuMemCreate", "cuMemMap", "hipMalloc", without=("Async", "Host"),
        assumed="memory is reserved before the first step",
    )  # fmt: skip


FIX = Fix("pooled-allocations", "PK210", "Allocate from a pool", find)
