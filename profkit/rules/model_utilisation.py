"""PK405 bandwidth and arithmetic that the model used.

What it finds
    No fault: a measure, where the model is known (--model, or a range or a mark in the trace called
    profkit::model#PRESET). MBU of decode: the bytes of weights and KV cache that its steps read, over time and peak
    bandwidth of the GPU. MFU of prefill: two operations for each token and parameter of the layers, over time and peak
    of its matrix products. Nothing is said of a share of 80 % or more over all of the time: there is nothing to find.

Why it costs time
    Decode at small batch reads all weights for a few tokens: bandwidth is its bound, and the part of it that was not
    used is time that another kernel, or a GPU that never waits, would not have taken. Prefill is bound by arithmetic.

How the cost is computed
    No price. Each share is given over the time in which the GPU worked for these steps, and over all of their time.
    Both are lower bounds: activations, attention scores, experts beyond one token's and rows of the embedding are not
    counted, the KV cache only where requests tell its contexts. A model split over N GPUs (world size) is taken to be
    split evenly. The facts name bytes, tokens, peaks and their sources.

What to do
    A low share over all of the time and a high one over the busy time: the GPU waits, see the other findings. Low over
    the busy time in decode: kernels that read more slowly than the memory allows, small matrices, or more work than the
    model needs. High in decode: only fewer bytes (quantised weights or KV cache) or a larger batch help.

When it is wrong
    With another model than the one named, or data parallel ranks taken as a split. A share over 100 % is refused, a
    small error is not seen. Speculative decoding reads the weights once for several tokens of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.llm import Llm
from profkit.analysis.llm_use import Use, known_model, uses
from profkit.model import Evidence, Finding, Trace, evidence
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.testing import build_trace, launch, span

AT_ITS_BOUND = 0.8
"""Of a peak on paper: memory reaches about 90 % of it, matrix products 70 to 80 %."""
_WORDS = {"decode": "MBU", "prefill": "MFU"}


def check(analysis: Analysis) -> Iterator[Finding]:
    llm = known_model(analysis)
    if llm is not None:
        for use in uses(analysis, llm)[0]:
            if (use.busy_share if use.period_share is None else use.period_share) < AT_ITS_BOUND:
                yield _finding(analysis, llm, use)


def _finding(analysis: Analysis, llm: Llm, use: Use) -> Finding:
    decode = use.kind == "decode"
    word, steps = _WORDS[use.kind], text.count(len(use.steps), f"{use.kind} step")
    each = f"{text.size(use.work // len(use.steps))} a step" if decode else f"{use.tokens:,} tokens"
    peak = f"{text.size(use.peak_per_s)}/s" if decode else f"{use.peak_per_s / 1e12:,.0f} TFLOP/s"
    split = f", split over {use.world} GPUs" if use.world > 1 else ""
    kv = "" if not decode else " of weights and KV cache" if use.kv_bytes >= 0 else " of weights, contexts not known"
    over_all = f", {text.percent(use.period_share)} over all of their time" if use.period_share is not None else ""
    return Finding(
        code=RULE.code,
        title=f"{word} of {use.kind}",
        key=f"{RULE.code}:{use.device}:{use.kind}:",
        message=(
            f"{word} of {use.kind} on {analysis.device_name(use.device)}: {text.percent(use.busy_share)} while the GPU "
            f"worked{over_all} ({llm.name}{split}: {each}{kv} in {steps}, {text.ns(use.busy_ns)} of work, peak {peak})"
        ),
        cause=(
            "decode reads all weights for each step: memory bandwidth bounds it"
            if decode
            else "prefill multiplies all of its tokens with the weights: arithmetic bounds it"
        ),
        advice=RULE.advice,
        facts=_facts(llm, use),
        evidence=_evidence(analysis, use),
    )


def _facts(llm: Llm, use: Use) -> dict[str, int | float | str]:
    facts: dict[str, int | float | str] = {
        "busy_use_share": round(use.busy_share, 4),
        "use_share": -1 if use.period_share is None else round(use.period_share, 4),
        "model": text.clip(llm.name, 80),
        "model_source": text.clip(llm.source, 80),
        "parameters": llm.parameters,
        "active_parameters": llm.active,
        "bytes_per_parameter": round(llm.bytes_per_parameter, 4),
        "gpus_of_the_model": use.world,
        "steps": len(use.steps),
        "tokens": use.tokens,
        "busy_ns": use.busy_ns,
        "time_ns": use.period_ns,
        "peak_source": use.peak_source,
    }
    if use.kind == "decode":
        return facts | {"read_bytes": use.work, "kv_read_bytes": use.kv_bytes, "peak_bytes_per_s": use.peak_per_s}
    return facts | {"operations": use.work, "peak_operations_per_s": use.peak_per_s}


def _evidence(analysis: Analysis, use: Use) -> tuple[Evidence, ...]:
    spans = analysis.steps.span[use.steps]
    return (evidence("spans", spans[spans >= 0]),) if (spans >= 0).any() else ()


def _unmet(analysis: Analysis) -> str:
    llm = known_model(analysis)
    if llm is None:
        return "the model is not known: name it with --model"
    return uses(analysis, llm)[1]


def _decode(dur: int) -> Trace:
    """Five decode steps of llama-3-8b, which the trace names: 15.0 GB of weights each."""
    rows = [span("profkit::model#llama-3-8b", 0, 0, kind="mark")]
    for i in range(5):
        t = i * (dur + 100_000)
        rows.append(span("decode", t, dur + 90_000, payload=1))
        rows += launch("gemm", at=t, start=t + 10_000, dur=dur)
    return build_trace(*rows, gpu={"name": "NVIDIA H100 80GB HBM3"})


def fires() -> Trace:
    """In 10 ms: 1.50 of 3.35 TB/s."""
    return _decode(10_000_000)


def quiet() -> Trace:
    """In 5 ms: 3.00 of 3.35 TB/s."""
    return _decode(5_000_000)


RULE = Rule(
    code="PK405",
    title="Bandwidth and arithmetic that the model used",
    unmet=needs_all(needs_gpu_rows, needs_steps, _unmet),
    check=check,
    advice="The GPU's own part is the share while it worked; what is missing over all of the time, it waited.",
    fires=fires,
    quiet=quiet,
    is_shown=True,
    record="profkit check --model PRESET or config.json; decode and prefill ranges with their tokens as payload.",
)
