"""PK205 many tiny kernels.

What it finds
    Counted steps of which over half of the kernel launches are elementwise or copy kernels (by their names: add, mul,
    fill, activation, cast, cat, index, transpose) that run for less than 5 us, one right behind another on the same
    stream: what a fusion would join. At least 16 a step, which with the gaps between them take at least 2 % of it.

Why it costs time
    A kernel of a few microseconds takes most of its time to begin and to end. Each one reads and writes memory that a
    fused kernel would keep in registers, and each is a launch on the host.

How the cost is computed
    cost and saving: the gaps of the GPU between two such kernels, as measured, of what the device takes from one
    kernel to the next; a ceiling for gaps, and nothing for the kernels' own time, which a fusion shortens by as much
    as they move less memory. Where launches pace at least 2 % of the step there is no price: then it is PK201's.

What to do
    Compile the module (torch.compile), or use fused kernels (bias and activation, residual and norm, rope); for an
    optimizer its fused or foreach form.

When it is wrong
    Families are told by names: a kernel with an unusual name may be no elementwise one. In a CUDA graph the gaps are
    shorter, and fusing gives less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis, CountedSteps
from profkit.analysis.work import KERNELS
from profkit.arrays import previous_in
from profkit.model import Array, Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._evidence import of_work
from profkit.rules._kernels import no_kernels
from profkit.rules._price import half_up, priced
from profkit.testing import build_trace, launch, span

FAMILIES = ("elementwise", "copy")
TINY_NS = 5_000
MOST = 0.5
FEWEST_A_STEP = 16
"""Fewer than this are not worth a compiler."""
SMALLEST_SHARE = 0.02
"""Of the steps, kernels and gaps together: no fusion gives back more."""
LAUNCH_BOUND = 0.02
"""Of the steps, as PK201 takes it."""
_MOST_NAMES = 3


def check(analysis: Analysis) -> Iterator[Finding]:
    work, steps = analysis.work, analysis.steps
    in_family = np.append(np.isin(analysis.trace.text("names", "family"), FAMILIES), False)
    is_kernel = (work.table == KERNELS) & (steps.of_work >= 0)
    for times in analysis.devices:
        counted = analysis.counted_steps(times.device)
        if times.device < 0 or not counted.count:
            continue
        kernels = np.flatnonzero(is_kernel & (work.device == times.device))
        kernels = kernels[counted.mask[steps.of_work[kernels]]]
        name = analysis.trace.array("kernels", "name")[work.row[kernels]]
        tiny = in_family[name] & (work.end[kernels] - work.start[kernels] < TINY_NS)
        if int(tiny.sum()) <= MOST * len(kernels):
            continue
        joined, behind = _joined(analysis, kernels, tiny)
        if int(joined.sum()) > MOST * len(kernels) and int(joined.sum()) >= FEWEST_A_STEP * counted.count:
            yield from _finding(analysis, times.device, kernels, joined, behind, counted)


def _joined(analysis: Analysis, kernels: Ints, tiny: Mask) -> tuple[Mask, Mask]:
    """(tiny kernels with another one right before or behind them on their stream, those with one before them)."""
    step = analysis.steps.of_work[kernels]
    before = previous_in(analysis.work.track[kernels])
    behind = tiny & (before >= 0) & tiny[before] & (step == step[before])
    joined = behind.copy()
    joined[before[behind]] = True
    return joined, behind


def _finding(
    analysis: Analysis, device: int, kernels: Ints, joined: Mask, behind: Mask, counted: CountedSteps
) -> Iterator[Finding]:
    work, steps = analysis.work, analysis.steps
    rows = kernels[joined]
    spent = int((work.end[rows] - work.start[rows]).sum())
    gaps = _gaps(analysis, kernels[behind])
    step = steps.of_work[analysis.idle.ends_at[gaps]] if len(gaps) else gaps
    between = analysis.idle.part("launch_latency", "graph_startup")[gaps]
    if spent + int(between.sum()) < SMALLEST_SHARE * counted.total_ns:
        return
    paced = _is_paced(analysis, device, counted)
    families, names = _most(analysis, rows)
    each, of_each = half_up(len(rows), counted.count), half_up(len(kernels), counted.count)
    spent_each, between_each = (half_up(value, counted.count) for value in (spent, int(between.sum())))
    facts = {
        "tiny_kernels_per_step": each,
        "kernels_per_step": of_each,
        "tiny_kernels_share": len(rows) / len(kernels),
        "tiny_kernels_ns_per_step": spent_each,
        "gaps_ns_per_step": between_each,
        **{f"{family}_kernels": count for family, count in families},
    }
    finding = priced(
        analysis,
        device=device,
        cost=between,
        saving=-1 if paced else between,
        step=step,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:{counted.kind}:",
        message=(
            f"{text.percent(len(rows) / len(kernels))} of the kernel launches of a {counted.kind} step on "
            f"{analysis.device_name(device)} ({each:,} of {of_each:,}) are elementwise or copy kernels under "
            f"{text.ns(TINY_NS)} in a row: {text.ns(spent_each)} a step, and "
            f"{text.ns(between_each)} between them; most often {names}"
        ),
        cause="operations that could be one kernel are launched one by one",
        advice=RULE.advice,
        facts=facts,
        evidence=of_work(analysis, rows),
    )
    yield replace(finding, severity="info", cost_ns=-1) if paced else finding


def _gaps(analysis: Analysis, rows: Ints) -> Ints:
    """Gaps of the device that these rows end."""
    ends = np.zeros(len(analysis.work), bool)
    ends[rows] = True
    return np.flatnonzero(ends[analysis.idle.ends_at])


def _is_paced(analysis: Analysis, device: int, counted: CountedSteps) -> bool:
    """Whether launches set the pace of these steps: then gaps are what PK201 prices."""
    idle = analysis.idle
    gaps = np.flatnonzero(analysis.launch_paced & (idle.device == device))
    step = analysis.steps.of_work[idle.ends_at[gaps]]
    gaps = gaps[(step >= 0) & counted.mask[np.maximum(step, 0)]]
    return int(idle.length[gaps].sum()) >= LAUNCH_BOUND * counted.total_ns


def _most(analysis: Analysis, rows: Ints) -> tuple[list[tuple[str, int]], str]:
    """(kernels by family, the most frequent names in words)."""
    name: Array = analysis.trace.array("kernels", "name")[analysis.work.row[rows]]
    code, count = np.unique(name, return_counts=True)
    family = np.asarray(analysis.trace.tables["names"].column("family").take(code).to_pylist())
    families = [(word, int(count[family == word].sum())) for word in FAMILIES]
    shorts: dict[str, int] = {}
    for row, times in zip(code.tolist(), count.tolist(), strict=True):
        short = text.clip(analysis.trace.name(row, "short"), 80)
        shorts[short] = shorts.get(short, 0) + times
    most = sorted(shorts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_NAMES]
    return families, ", ".join(short for short, _ in most)


def _counted(analysis: Analysis) -> str:
    return "" if analysis.counted_steps().count else "no whole step behind warm-up with one before it"


def _steps(tiny: int) -> Trace:
    """Steps of which the host is far ahead: a gemm, then elementwise kernels 1 us apart."""
    rows, t = [], 1_000_000
    for step in range(6):
        at = step * 100_000
        rows.append(span("decode", at, 99_000, payload=1))
        for i in range(30):
            is_tiny = i < tiny
            dur = 2_000 if is_tiny else 20_000
            name = "vectorized_elementwise_kernel" if is_tiny else "gemm"
            rows += launch(name, at=at + i * 3_000, start=t, dur=dur, call_dur=1_000)
            t += dur + 1_000
    return build_trace(*rows)


def fires() -> Trace:
    """Six decode steps of 30 kernels, 24 of which are elementwise ones of 2 us."""
    return _steps(24)


def quiet() -> Trace:
    """The same steps, with 8 of them."""
    return _steps(8)


RULE = Rule(
    code="PK205",
    title="Many tiny kernels",
    unmet=needs_all(needs_gpu_rows, needs_steps, needs_joined_work, no_kernels, _counted),
    check=check,
    advice="Fuse what runs in a row: torch.compile, fused activation and norm kernels, a fused or foreach optimizer.",
    fires=fires,
    quiet=quiet,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx --cuda-graph-trace=node).",
)
