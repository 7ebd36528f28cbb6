"""CUDA graphs captured or instantiated in steady state: instantiated once, updated or kept for each batch size."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._calls_gone import calls_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return calls_gone(
        analysis, model, "GraphInstantiate", "StreamBeginCapture", "StreamEndCapture", "GraphDestroy",
        "GraphExecDestroy", assumed="each graph is instantiated before the first step",
    )  # fmt: skip


FIX = Fix("reuse-graphs", "PK203", "Instantiate graphs once", find)
