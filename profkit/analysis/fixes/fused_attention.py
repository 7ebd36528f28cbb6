"""Attention step by step: one fused kernel; what stands between its two GEMMs is neither run nor launched."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._kernels_gone import kernels_gone
from profkit.analysis.replay.model import Model
from profkit.analysis.unfused_attention import find_unfused, has_fused


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    if has_fused(analysis.trace):
        return None
    return kernels_gone(
        model,
        find_unfused(analysis.trace, model.work).kernels,
        "scaling, masking and softmax cost nothing inside of the fused kernel, which takes as long as the two GEMMs",
    )


FIX = Fix("fused-attention", "PK404", "Attention by one fused kernel", find)
