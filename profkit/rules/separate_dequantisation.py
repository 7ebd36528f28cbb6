"""PK406 dequantisation as separate kernels.

What it finds
    Kernels whose only work is to dequantise weights or keys and values, by their names (of PyTorch's elementwise
    kernels, by the operator in their template arguments), where they take 0.5 % of the busy time or more. A GEMM or an
    attention kernel that dequantises what it reads is none of them.

Why it costs time
    The values are read small and written large, and the next kernel reads them large: more memory traffic than
    unquantised weights would have cost, and one launch more each time.

How the cost is computed
    The recorded window minus a replay of the trace's own dependencies in which these kernels are neither run nor
    launched. Cost and saving are the same. A kernel that reads small values itself is usually faster, too: that is not
    counted.

What to do
    Use kernels that dequantise as they read: Marlin, Machete or CUTLASS mixed-input GEMMs for weights, an attention
    kernel that takes the quantised KV cache. Or keep what is read often unquantised.

When it is wrong
    In a long prefill it can pay to dequantise a weight once for a large GEMM: the price is what this takes, not what
    the change would give. A kernel that does more than its name says is not only dequantisation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes.fused_dequantisation import dequantising
from profkit.analysis.work import KERNELS
from profkit.model import Ints, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._kernels import busy_of, heaviest_name, length_of, no_kernels
from profkit.rules._price import Priced, priced_by_fixes
from profkit.testing import build_trace, launch, span

FIX = "fused-dequantisation"
SMALLEST_SHARE = 0.005
"""Of the device's busy time: below it, the change is not worth the work."""


def check(analysis: Analysis) -> Iterator[Priced]:
    work = analysis.work
    kernels = np.flatnonzero(work.table == KERNELS)
    rows = kernels[dequantising(analysis.trace)[work.row[kernels]]]
    for device in np.unique(work.device[rows]).tolist():
        mine = rows[work.device[rows] == device]
        taken = int(length_of(analysis, mine).sum())
        busy = busy_of(analysis, device)
        if busy and taken >= SMALLEST_SHARE * busy:
            found = _finding(analysis, device, mine, taken, busy)
            if found is not None:
                yield found


def _finding(analysis: Analysis, device: int, rows: Ints, taken: int, busy: int) -> Priced | None:
    name = heaviest_name(analysis, rows)
    steps = analysis.steps.of_work[rows] if len(analysis.steps) else rows[:0]
    in_steps = len(np.unique(steps[steps >= 0]))
    each = f", {len(steps[steps >= 0]) / in_steps:.1f} a step" if in_steps else ""
    return priced_by_fixes(
        analysis,
        (FIX,),
        device=device,
        measured=taken,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:dequantise:",
        message=(
            f"{text.count(len(rows), 'kernel')} on {analysis.device_name(device)}{each} only "
            f"{'dequantises' if len(rows) == 1 else 'dequantise'}: {text.ns(taken)}, {text.percent(taken / busy)} of "
            f"its busy time of {text.ns(busy)} (mostly {text.clip(name, 80)})"
        ),
        cause="values are dequantised into memory before the kernel that needs them, not inside of it",
        advice=RULE.advice,
        facts={"kernels": len(rows), "kernel_ns": taken, "busy_ns": busy, "kernel": text.clip(name, 80)},
        evidence=of_work(analysis, rows[longest_first(length_of(analysis, rows))]),
    )


def _steps(name: str) -> Trace:
    """Five decode steps of four GEMMs of 30 us, a kernel of 10 us before each."""
    rows = []
    for step in range(5):
        t0 = step * 200_000
        rows.append(span("decode", t0, 190_000, payload=1))
        for i in range(4):
            start = t0 + 20_000 + i * 42_000
            rows += launch(name, at=t0 + 1_000 + i * 8_000, start=start, dur=10_000, call_dur=3_000)
            rows += launch("gemm", at=t0 + 5_000 + i * 8_000, start=start + 11_000, dur=30_000, call_dur=3_000)
    return build_trace(*rows)


def fires() -> Trace:
    return _steps("void dequantize_int8_kernel<__nv_bfloat16>(const signed char*, T1*)")


def quiet() -> Trace:
    """A GEMM that dequantises what it reads."""
    return _steps("void cutlass::fused_dequant_gemm<cutlass::DequantizeInterleaved>(Params)")


RULE = Rule(
    code="PK406",
    title="Dequantisation as separate kernels",
    unmet=lambda analysis: needs_gpu_rows(analysis) or no_kernels(analysis),
    check=check,
    advice="Use GEMM and attention kernels that dequantise as they read (Marlin, CUTLASS mixed input, quantised KV).",
    fires=fires,
    quiet=quiet,
    record="Kernels inside CUDA graphs need --cuda-graph-trace=node.",
)
