"""Modules loaded in steady state (lazy loading): loaded before the first step."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._calls_gone import calls_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return calls_gone(
        analysis, model, "ModuleLoad", "LibraryLoad", "FuncLoad", "LinkCreate", "LinkComplete", "ModuleGetFunction",
        "LibraryGetKernel", assumed="kernels are loaded before the first step (CUDA_MODULE_LOADING=EAGER or a warm-up)",
    )  # fmt: skip


FIX = Fix("preloaded-modules", "PK206", "Load kernels before the first step", find)
