"""PK407 matrix products without tensor cores.

What it finds
    GEMM kernels that compute in FP32 on the CUDA cores (their names say sgemm, as ampere_sgemm_128x64_tn or
    cutlass_80_simt_sgemm) on a GPU that has tensor cores for TF32 (Ampere and later, by the same names), where they
    take 10 % of a GPU's busy time or more.

Why it costs time
    Tensor cores have eight times the FP32 rate for TF32, and sixteen times for BF16, on an A100 (156 and 312 against
    19.5 TFLOPS, NVIDIA A100 data sheet). BF16 weights also halve the bytes that decode has to read.

How the cost is computed
    No price: how much faster a product gets depends on its shape, and whether the model bears it is not in a trace.
    The facts say how much of the busy time these kernels take.

What to do
    Load the model in bfloat16, or allow TF32 (torch.set_float32_matmul_precision('high')), and compare the outputs.

When it is wrong
    Code that needs FP32 (some solvers, a few layers) has no choice. A product that is bound by memory gains from fewer
    bytes, not from tensor cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.work import KERNELS
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._kernels import busy_of, heaviest_name, length_of, names_of, no_kernels
from profkit.rules._names import used_names
from profkit.rules._price import CRITICAL_SHARE, Priced
from profkit.testing import build_trace, launch

SMALLEST_SHARE = 0.10
"""Of a GPU's busy time."""
_FP32 = re.compile(r"(?:ampere|ada|hopper|blackwell|sm(?:8|9|1[02])\d|cutlass_(?:8|9|1[02])\d)\w*?_sgemm(?:_|$)")


def check(analysis: Analysis) -> Iterator[Priced]:
    fits = np.zeros(analysis.trace.rows("names") + 1, bool)
    fits[used_names(analysis, "kernels", _FP32, "text")] = True
    if not fits.any():
        return
    kernels = np.flatnonzero(analysis.work.table == KERNELS)
    rows = kernels[fits[names_of(analysis, kernels)]]
    for device in np.unique(analysis.work.device[rows]).tolist():
        mine = rows[analysis.work.device[rows] == device]
        spent, busy = int(length_of(analysis, mine).sum()), busy_of(analysis, int(device))
        if busy and spent >= SMALLEST_SHARE * busy:
            yield _finding(analysis, int(device), mine, spent, busy)


def _finding(analysis: Analysis, device: int, rows: Ints, spent: int, busy: int) -> Priced:
    window = analysis.window.dur_ns if analysis.window else 0
    part = min(spent / window, 1.0) if window else 0.0
    finding = Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:gemm:",
        severity="warning" if part >= CRITICAL_SHARE else "info",
        message=(
            f"{text.count(len(rows), 'matrix product')} on {analysis.device_name(device)} run in FP32 on the CUDA "
            f"cores, not on the tensor cores: {text.ns(spent)}, {text.percent(min(spent / busy, 1.0))} of its busy "
            f"time of {text.ns(busy)}; most in {text.clip(heaviest_name(analysis, rows), 60)}"
        ),
        cause="weights and activations are FP32, and TF32 is not allowed",
        advice=RULE.advice,
        facts={"kernels": len(rows), "kernels_ns": spent, "busy_ns": busy},
        evidence=of_work(analysis, rows[longest_first(length_of(analysis, rows))]),
    )
    return Priced(finding, measured_share=part)


def _gemms(name: str) -> Trace:
    return build_trace(*(launch(name, at=i * 100_000, start=i * 100_000 + 9_000, dur=90_000) for i in range(10)))


def fires() -> Trace:
    """Ten products of an A100 in FP32."""
    return _gemms("ampere_sgemm_128x64_tn")


def quiet() -> Trace:
    """The same in TF32, on the tensor cores."""
    return _gemms("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4")


RULE = Rule(
    code="PK407",
    title="Matrix products without tensor cores",
    unmet=needs_all(needs_gpu_rows, no_kernels),
    check=check,
    advice="Load the model in bfloat16, or allow TF32 (torch.set_float32_matmul_precision('high')); compare outputs.",
    fires=fires,
    quiet=quiet,
    record="Kernels inside CUDA graphs need --cuda-graph-trace=node.",
)
