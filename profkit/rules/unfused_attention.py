"""PK404 attention without a fused kernel.

What it finds
    A GEMM, a softmax and a GEMM on one stream, four times or more, with at most ten kernels of scaling, masking,
    dropout and copies between the GEMMs that take 0.5 % of the busy time or more, in a trace without any fused
    attention kernel. The softmax is one kernel, or written out as maximum, exponential, sum and division.

Why it costs time
    The scores of all pairs of positions are written to memory and read back by each of these kernels: their bytes grow
    with the square of the context. A fused kernel keeps them on the chip, and is one launch.

How the cost is computed
    The recorded window minus a replay of the trace's own dependencies in which what stands between the two GEMMs is
    neither run nor launched. Cost and saving are the same. Assumed is that the fused kernel takes as long as the two
    GEMMs do: they no longer write and read the scores, but its arithmetic is not free.

What to do
    torch.nn.functional.scaled_dot_product_attention, or attn_implementation="sdpa" or "flash_attention_2" in
    Transformers. FlashAttention needs fp16 or bf16 and takes no bias; the memory-efficient kernel takes fp32 and a
    bias, FlexAttention any change of the scores.

When it is wrong
    Names and order tell it: two other GEMMs with a softmax between them look alike. With short contexts the two ways
    take about the same. A path that is deliberately unfused (attention weights are wanted as output) stays so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.unfused_attention import find_unfused, has_fused
from profkit.model import Ints, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._kernels import busy_of, heaviest_name, length_of, no_kernels
from profkit.rules._price import Priced, priced_by_fixes
from profkit.testing import build_trace, launch, span

FIX = "fused-attention"
FEWEST = 4
"""Sequences: fewer are no model of several layers."""
SMALLEST_SHARE = 0.005
"""Of the device's busy time: below it, contexts are so short that a fused kernel gains nothing."""


def check(analysis: Analysis) -> Iterator[Priced]:
    if has_fused(analysis.trace):
        return
    found = find_unfused(analysis.trace, analysis.work)
    device = analysis.work.device
    for one in np.unique(device[found.hearts]).tolist():
        rows, times = found.kernels[device[found.kernels] == one], int((device[found.hearts] == one).sum())
        taken, busy = int(length_of(analysis, rows).sum()), busy_of(analysis, one)
        if times < FEWEST or not busy or taken < SMALLEST_SHARE * busy:
            continue
        finding = _finding(analysis, one, rows, times, taken, busy)
        if finding is not None:
            yield finding


def _finding(analysis: Analysis, device: int, rows: Ints, times: int, taken: int, busy: int) -> Priced | None:
    name = text.clip(heaviest_name(analysis, rows), 80)
    return priced_by_fixes(
        analysis,
        (FIX,),
        device=device,
        measured=taken,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:attention:",
        message=(
            f"Attention runs step by step: {text.count(times, 'softmax', 'softmaxes')} between two GEMMs, and no fused "
            f"attention kernel in the trace; on {analysis.device_name(device)} {text.count(len(rows), 'kernel')} "
            f"scale, mask and normalise the scores for {text.ns(taken)}, {text.percent(taken / busy)} of its busy time "
            f"of {text.ns(busy)} (mostly {name})"
        ),
        cause="the scores of all pairs of positions go through memory between the kernels of attention",
        advice=RULE.advice,
        facts={"sequences": times, "kernels": len(rows), "kernel_ns": taken, "busy_ns": busy, "kernel": name},
        evidence=of_work(analysis, rows[longest_first(length_of(analysis, rows))]),
    )


def _layers(between: tuple[str, ...]) -> Trace:
    """Three steps of four layers: a GEMM of 20 us, kernels of 10 us, a GEMM of 20 us."""
    rows = []
    for step in range(3):
        t0 = step * 400_000
        rows.append(span("prefill", t0, 390_000, payload=64))
        start, at = t0 + 30_000, t0 + 1_000
        for _ in range(4):
            for name in ("gemm_qk", *between, "gemm_pv", "layer_norm_kernel"):
                dur = 20_000 if name.startswith("gemm") else 10_000
                rows += launch(name, at=at, start=start, dur=dur, call_dur=2_000)
                start, at = start + dur + 1_000, at + 3_000
    return build_trace(*rows)


def fires() -> Trace:
    return _layers(("void at::native::elementwise_kernel<MulFunctor>", "void softmax_warp_forward<float, 10>"))


def quiet() -> Trace:
    return _layers(("void pytorch_flash::flash_fwd_kernel<Traits>",))


RULE = Rule(
    code="PK404",
    title="Attention without a fused kernel",
    unmet=lambda analysis: needs_gpu_rows(analysis) or no_kernels(analysis),
    check=check,
    advice="Use scaled_dot_product_attention (attn_implementation='sdpa'), with a mask or bias that its kernels take.",
    fires=fires,
    quiet=quiet,
    record="Kernels inside CUDA graphs need --cuda-graph-trace=node.",
)
