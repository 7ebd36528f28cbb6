"""Dequantisation as kernels of its own: done inside the kernels that need the values, without a kernel or a launch."""

from __future__ import annotations

import re

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._kernels_gone import kernels_gone, ops_of
from profkit.analysis.replay.model import Model
from profkit.arrays import distinct
from profkit.model import Mask, Trace

_LONGEST = 2_000
"""Characters of a name that are looked at: the rest of a longer one are template arguments."""
_DEQUANTISES = re.compile(r"dequant", re.IGNORECASE)
_DOES_MORE = re.compile(
    r"gemm|gemv|matmul|linear|conv|attention|attn|fmha|flash|mla|moe|expert|norm|silu|gelu|swiglu|act_|softmax|reduce|"
    r"fused|_mm\b|\bmm_|_dot|dot_|requant|dequant\w*_quant",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"^(?:vectorized|unrolled|elementwise)\w*kernel", re.IGNORECASE)


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return kernels_gone(
        model,
        ops_of(model, dequantising(analysis.trace)),
        "the kernels that need the values dequantise them at no cost of their own",
    )


def dequantising(trace: Trace) -> Mask:
    """Which rows of ``kernels`` dequantise and do nothing else, by their names."""
    name = trace.array("kernels", "name")
    does = np.zeros(trace.rows("names") + 1, bool)  # the last one is that of no name
    for row in distinct(name).tolist():
        does[row] = only_dequantises(trace.name(row, "short"), trace.name(row))
    mask: Mask = does[name]
    return mask


def only_dequantises(short: str, text: str) -> bool:
    """Whether a kernel of this name dequantises as its only work.

    The short name says it; of PyTorch's elementwise kernels their template arguments do. Template arguments of other
    kernels may name what a GEMM does on the way.
    """
    said = text[:_LONGEST] if _PLAIN.match(short) else short[:_LONGEST]
    return bool(_DEQUANTISES.search(said)) and not _DOES_MORE.search(short[:_LONGEST])


FIX = Fix("fused-dequantisation", "PK406", "Dequantise inside the kernels that need the values", find)
