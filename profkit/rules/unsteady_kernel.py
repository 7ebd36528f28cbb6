"""PK402 a kernel whose run time spreads or drifts.

What it finds
    Of the steps that launch the same kernels with the same grids for the same batch (20 or more), each kernel is
    compared with itself at the same place of the other steps. It spreads where a tenth of its runs or more take over
    1.25 times their median and the time above the median is 2 % of these steps. It drifts where its median
    grows through six parts of the run without a step back, by 5 % or more from the first to the last third, and
    the time above the first third's median is 2 % of these steps. Where the batch of these steps is not known, what all
    kernels of a step have in common is left out: it may be a larger batch. Not compared are kernels whose work follows
    from more than their shapes (attention over a growing context, expert routing, sampling, sorting, collectives), and
    those of less than 5 us or with another kernel beside them.

Why it costs time
    The same work takes longer at times: another program on the GPU, a copy that shares the memory, a clock that falls.
    Steps wait for their slowest run, and a mean that drifts makes two captures differ for no reason of the program.

How the cost is computed
    cost: what the runs took above their usual time, the median of the place (for a drift, of the first third). What a
    fix gives back is not known: the cause stands in no kernel row.

What to do
    Record GPU metrics (--gpu-metrics-devices=all): they show clocks and memory traffic. Look for other processes on
    the GPU (nvidia-smi), for copies at the same time, for power and temperature limits; fix the clocks to compare.

When it is wrong
    Same name, grid and batch can still be other work: values that change how much is computed, a cache that is warm at
    times. A kernel that is slower in a few steps of a kind of their own is no fault of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.arrays import distinct
from profkit.model import Array, Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._kernels import dense_names, length_of, names_of, no_kernels, runs_alone
from profkit.rules._price import priced
from profkit.rules._repeats import FEWEST, Repeats, find_repeats
from profkit.testing import build_trace, launch, span

SHORTEST_NS = 5_000
"""Shorter kernels spread by the resolution of clocks and by what starts them."""
SLOW = 1.25
SLOW_RUNS = 0.10
SMALLEST_SHARE = 0.02
"""Of the time of the steps that are compared."""
DRIFT = 0.05
PARTS = 6


def check(analysis: Analysis) -> Iterator[Finding]:
    for device in distinct(analysis.work.device).tolist():
        repeats = find_repeats(analysis, device)
        if repeats is None:
            continue
        places = _comparable(analysis, repeats)
        if not places.any():
            continue
        rows = repeats.rows[:, places]
        length = _own(length_of(analysis, rows), repeats.alike)
        name = names_of(analysis, rows[0])
        period = analysis.steps.period[repeats.steps]
        total = int(period[period >= 0].sum())
        usual = np.median(length, axis=0)
        drifting = _drifting(length, usual, name)
        for what, chosen, base in (
            ("drifts", drifting, np.median(length[: len(length) // 3], axis=0)),
            ("spreads", _spreading(length, usual, name) & ~drifting, usual),
        ):
            if not total or not chosen.any():
                continue
            chosen &= runs_alone(analysis)[rows].mean(axis=0) > 1 - SLOW_RUNS / 2
            over = np.rint(np.maximum(length - base, 0)).astype(np.int64)[:, chosen]
            if int(over.sum()) >= SMALLEST_SHARE * total:
                yield _finding(analysis, repeats, what, rows[:, chosen], length[:, chosen], over, total, len(name))


def _comparable(analysis: Analysis, repeats: Repeats) -> Mask:
    """Places whose kernels can be compared with themselves."""
    names = names_of(analysis, repeats.rows[0])
    mask: Mask = dense_names(analysis)[names]
    resolution = 20 * analysis.trace.meta.resolution_ns  # else rounding alone is 5 %
    mask &= np.median(length_of(analysis, repeats.rows), axis=0) >= max(SHORTEST_NS, resolution)
    return mask


def _own(length: Ints, alike: bool) -> Ints:
    """Lengths as they are; of steps that may differ in batch, without what all kernels of a step have in common."""
    if alike:
        return length
    ratio = length / np.maximum(np.median(length, axis=0), 1)
    out: Ints = np.rint(length / np.maximum(np.median(ratio, axis=1, keepdims=True), 0.01)).astype(np.int64)
    return out


def _spreading(length: Ints, usual: Array, name: Ints) -> Mask:
    """Places of kernels, by name, of which a tenth of the runs is slow."""
    slow = (length > SLOW * usual).mean(axis=0)
    return _by_name(slow, name) >= SLOW_RUNS


def _drifting(length: Ints, usual: Array, name: Ints) -> Mask:
    """Places of kernels, by name, that get slower and slower."""
    ratio = length / np.maximum(usual, 1)
    bounds = np.linspace(0, len(length), PARTS + 1).astype(int)
    parts = np.stack([np.median(ratio[a:b], axis=0) for a, b in pairwise(bounds)])
    parts = np.stack([_by_name(part, name) for part in parts])
    third = PARTS // 3
    first, last = parts[:third].mean(axis=0), parts[-third:].mean(axis=0)
    mask: Mask = (np.diff(parts, axis=0) >= 0).all(axis=0) & (last >= (1 + DRIFT) * first)
    return mask


def _by_name(values: Array, name: Ints) -> Array:
    """The mean of the places of a name, at each of them."""
    _, number = np.unique(name, return_inverse=True)
    out: Array = (np.bincount(number, values) / np.bincount(number))[number]
    return out


def _finding(
    analysis: Analysis, repeats: Repeats, what: str, rows: Ints, length: Ints, over: Ints, total: int, places: int
) -> Finding:
    device = repeats.device
    names = names_of(analysis, rows[0])
    weight = np.bincount(names, over.sum(axis=0))
    worst = int(np.argmax(weight))
    mine = names == worst
    name = text.clip(analysis.trace.name(worst, "short"), 80)
    others = len(np.unique(names)) - 1
    more = f", as do {text.count(others, 'other kernel')}" if others else ""
    third = len(length) // 3
    early, late = (int(np.median(part[:, mine])) for part in (length[:third], length[-third:]))
    p50, p90 = (int(np.percentile(length[:, mine], p)) for p in (50, 90))
    said = (
        f"from {text.ns(early)} in the first third of the steps to {text.ns(late)} in the last"
        if what == "drifts"
        else f"its runs take {text.ns(p50)} (median), a tenth of them over {text.ns(p90)}"
    )
    cost, above = over.ravel(), int(over.sum())
    order = longest_first(cost)
    return priced(
        analysis,
        device=device,
        cost=cost,
        saving=-1,
        step=np.repeat(repeats.steps, over.shape[1]),
        code=RULE.code,
        title=f"A kernel whose run time {what}",
        key=f"{RULE.code}:{device}:{what}:",
        message=(
            f"{name} {what} on {analysis.device_name(device)}{more}: {said}, in "
            f"{text.count(len(length), 'step')} that launch the same kernels with the same grids; together "
            f"{text.ns(above)} above the usual time, {text.percent(above / total)} of {text.ns(total)}"
        ),
        cause=(
            "nearly all kernels are slower: a clock that falls, or another program on the GPU"
            if 2 * len(names) >= places
            else "not in this capture: the same launch took longer, and kernel rows do not say why"
        ),
        advice=RULE.advice,
        facts={
            "kernel": name,
            "steps": len(length),
            "kernels_per_step": len(names),
            "first_third_p50_ns": early,
            "last_third_p50_ns": late,
            "p50_ns": p50,
            "p90_ns": p90,
            "above_usual_ns": above,
            "of_ns": total,
        },
        evidence=of_work(analysis, rows.ravel()[order]),
    )


def _unmet(analysis: Analysis) -> str:
    if any(find_repeats(analysis, device) is not None for device in distinct(analysis.work.device).tolist()):
        return ""
    return f"no {FEWEST} steps launch the same kernels with the same grids: nothing to compare"


def _steps(slow: int) -> Trace:
    """Forty decode steps of a GEMM and a norm; every fourth GEMM takes ``slow`` times as long."""
    rows = []
    for i in range(40):
        t = i * 200_000
        rows.append(span("decode", t, 190_000, payload=4))
        rows += launch("gemm", at=t, start=t + 10_000, dur=40_000 * (slow if i % 4 == 1 else 1))
        rows += launch("norm_kernel", at=t + 6_000, start=t + 165_000, dur=20_000)
    return build_trace(*rows)


def fires() -> Trace:
    return _steps(3)


def quiet() -> Trace:
    return _steps(1)


RULE = Rule(
    code="PK402",
    title="A kernel whose run time spreads or drifts",
    unmet=needs_all(needs_gpu_rows, no_kernels, needs_steps, _unmet),
    check=check,
    advice="Record clocks and memory traffic (--gpu-metrics-devices=all); look for other programs on the GPU.",
    fires=fires,
    quiet=quiet,
    record="20 steps or more of one kind and batch, with kernels inside graphs (--cuda-graph-trace=node).",
)
