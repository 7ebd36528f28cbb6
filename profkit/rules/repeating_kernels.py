"""PK202 repeating kernels not in a graph.

What it finds
    A sequence of kernels that repeats on a stream, launched one by one, with the GPU waiting for the next launch
    inside of it: what a CUDA graph is for. Where ranges or an engine's annotations name the decode steps, PK201 judges
    them instead.

Why it costs time
    Each launch costs the host some microseconds, and the GPU stands still when a kernel is shorter than that. A graph
    submits the whole sequence with one call.

How the cost is computed
    Fires where idle gaps inside the repetitions that hold nothing but launching (see PK201; where the capture has no
    calls, every gap inside) are at least 10 % of the window. Both prices are the recorded window minus a replay of the
    trace's own dependencies, as PK201's: the launches take no time, or each run of them is one graph launch.

What to do
    Capture the sequence once and replay it. A capture fails on a synchronisation or a blocking copy inside: remove what
    the message names first. Or compile it (torch.compile with mode="reduce-overhead").

When it is wrong
    What repeats by name may still differ in shapes or addresses: a graph needs both fixed, or one graph for each shape.
    Under a profiler each launch costs more than without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.steps_kernels import KernelSequence
from profkit.analysis.waits import Waits, find_waits, is_pageable
from profkit.model import Ints, Mask, Trace, Window, evidence
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._launches import as_graphs, sequences_that_wait
from profkit.rules._price import Priced, priced_by_replay
from profkit.testing import build_trace, launch

_MOSTLY = 0.5


def check(analysis: Analysis) -> Iterator[Priced]:
    for waiting in sequences_that_wait(analysis):
        yield _finding(analysis, waiting.sequence, waiting.gaps)


def _finding(analysis: Analysis, sequence: KernelSequence, inside: Mask) -> Priced:
    idle, work, repeats = analysis.idle, analysis.work, sequence.repeats
    window = analysis.window.dur_ns if analysis.window else 0
    count, length = int(repeats.whole.sum()), repeats.length
    cost = int(idle.length[inside].sum())
    device = int(work.device[sequence.rows[0]])
    first = sequence.rows[repeats.starts[0] : repeats.ends[0]]
    waits = _waits_inside(analysis, sequence)
    blocked = _blocked(analysis.trace, waits, count)
    return priced_by_replay(
        analysis,
        as_graphs(analysis, sequence.rows),
        measured=cost,
        most=cost,
        fixes=("cuda-graphs",),
        device=device,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:sequence:",
        message=(
            f"A sequence of {text.count(length, 'kernel')} repeats {count:,} times on {analysis.device_name(device)}, "
            f"launched one by one: the GPU waited {text.ns(cost)} ({text.percent(cost / window)} of {text.ns(window)}) "
            f"for launches inside of it{_in_the_way(blocked)}"
        ),
        cause="the GPU is launch-bound: what repeats is submitted kernel by kernel",
        advice=f"Remove {blocked} first: no graph can be captured with it. {RULE.advice}" if blocked else RULE.advice,
        facts={
            "kernels_per_repetition": length,
            "repetitions": count,
            "waits_inside": len(waits),
            "waits": blocked,
            "waited_ns": cost,
            "of_ns": window,
        },
        evidence=(
            evidence(
                "kernels",
                work.row[first],
                tracks=(sequence.track,),
                window=Window(int(work.start[first[0]]), int(work.end[first].max())),
            ),
        ),
    )


def _waits_inside(analysis: Analysis, sequence: KernelSequence) -> Waits:
    """Waits of the process between the first launch of a whole repetition and the next repetition's, or its end."""
    waits = find_waits(analysis)
    start = _launched(analysis, sequence.rows[sequence.repeats.starts])
    closed = _launched(analysis, sequence.rows[sequence.repeats.ends - 1])
    if not len(waits) or (start < 0).any() or (closed < 0).any():
        return waits.where(np.zeros(len(waits), bool))
    last = max(int(closed[-1]), int(start[-1] + np.diff(start).max(initial=0)))
    at = np.searchsorted(start, waits.start, side="right") - 1
    inside = (at >= 0) & (waits.process == sequence.process) & (waits.start < last)
    return waits.where(inside & sequence.repeats.whole[np.maximum(at, 0)])


def _launched(analysis: Analysis, rows: Ints) -> Ints:
    """Start of the call of each device row, -1 without one."""
    call, start = analysis.work.call[rows], analysis.trace.array("calls", "start_ns")
    return np.where(call >= 0, start[np.maximum(call, 0)], -1) if len(start) else np.full(len(rows), -1)


def _blocked(trace: Trace, waits: Waits, repetitions: int) -> str:
    """What waits in most repetitions, in words: ``cudaStreamSynchronize (for a pageable D2H copy)``; else nothing."""
    if len(waits) < _MOSTLY * repetitions:
        return ""
    names = Counter(trace.name(int(name), "base") for name in trace.array("calls", "name")[waits.call])
    copies = np.unique(waits.copy[waits.copy >= 0])
    memory = "pageable D2H copy" if is_pageable(trace, copies).any() else "D2H copy"
    what = f" (for a {memory})" if 2 * len(copies) >= repetitions else ""
    return " and ".join(name for name, _ in names.most_common(2)) + what


def _in_the_way(blocked: str) -> str:
    return f"; {blocked} {'stand' if ' and ' in blocked else 'stands'} in the way of a CUDA graph" if blocked else ""


def _iterations(in_order: bool) -> Trace:
    rows = []
    order = np.random.default_rng(0)
    for i in range(20):
        kernels = np.arange(10) if in_order else order.permutation(10)
        for j, name in enumerate(kernels.tolist()):
            at = (10 * i + j) * 8_000
            rows += launch(f"kernel_{name}", at=at, start=at + 4_000, dur=3_000, call_dur=3_000)
    return build_trace(*rows)


def fires() -> Trace:
    """Ten kernels of 3 us, twenty times in the same order, a launch every 8 us."""
    return _iterations(True)


def quiet() -> Trace:
    """The same kernels in another order each time: nothing that a graph could replay."""
    return _iterations(False)


RULE = Rule(
    code="PK202",
    title="Repeating kernels not in a graph",
    unmet=needs_gpu_rows,
    check=check,
    advice="Capture the sequence as a CUDA graph, one for each shape, or compile it (mode='reduce-overhead').",
    fires=fires,
    quiet=quiet,
)
