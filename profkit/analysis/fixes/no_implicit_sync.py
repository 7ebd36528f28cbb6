"""cudaFree in steady state, which drains the device: memory from a pool instead."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._calls_gone import calls_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return calls_gone(
        analysis, model, "cudaFree", "cuMemFree", "hipFree", without=("Async", "Host"),
        assumed="memory comes from a pool and goes back to it at no cost",
    )  # fmt: skip


FIX = Fix("no-implicit-sync", "PK304", "Free to a pool", find)
