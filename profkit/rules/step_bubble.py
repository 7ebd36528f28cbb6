"""PK102 bubble between steps.

What it finds
    Gaps of at least 20 us in which the GPU stood still while the thread that ended the gap was, for at least half
    of it, in ranges called schedule, sample or detokenize: the host prepares the next step only after this one is
    done.

Why it costs time
    Scheduling, sampling on the host and detokenizing take milliseconds in engines written in Python, and come back
    with every token of every request.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies in which these ranges take no
    time on the launching thread. Where no call is joined to its work, what was measured of these gaps inside of
    such ranges.

What to do
    Schedule a step ahead while the GPU works (asynchronous scheduling, multi-step), sample on the GPU, detokenize
    on another thread or process.

When it is wrong
    A schedule that depends on the tokens of the step before (stop conditions, structured output) can only be made
    ahead where the engine may take it back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes.overlapped_host_work import long_gaps
from profkit.analysis.intervals import percentile
from profkit.model import Ints, Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import Seen, by_fix
from profkit.rules._price import Priced
from profkit.schema import STAGES
from profkit.testing import build_trace, launch, span

PARTS = ("schedule", "sample", "detokenize")
CAUSES = tuple(f"stage_{part}" for part in PARTS)
_MOSTLY = 0.5


def check(analysis: Analysis) -> Iterator[Priced]:
    gaps = bubbles(analysis)
    cause = "the host prepares the next step while the GPU has nothing to do"
    return by_fix(analysis, RULE, ("overlapped-scheduling",), lambda seen: _words(analysis, gaps, seen), cause)


def bubbles(analysis: Analysis) -> Ints:
    """Gaps of ``analysis.idle`` that are mostly scheduling, sampling and detokenizing."""
    idle = analysis.idle
    inside = idle.part(*CAUSES)
    return np.flatnonzero(long_gaps(analysis) & (inside >= _MOSTLY * idle.length) & (inside > 0))


def _words(analysis: Analysis, gaps: Ints, seen: Seen) -> str:
    idle = analysis.idle
    length, window = idle.length[gaps], analysis.window.dur_ns if analysis.window else 0
    total, replayed = int(length.sum()), f" in what was replayed ({seen.where})" if seen.where else ""
    host = f"these ranges take the launching thread {seen.time}{replayed}"
    if not len(gaps):
        return f"Scheduling, sampling or detokenizing holds the next step back: {host}"
    causes = idle.where(gaps).by_cause()
    parts = ", ".join(f"{part} {text.ns(causes[f'stage_{part}'])}" for part in PARTS if causes[f"stage_{part}"])
    share = text.percent(total / window if window else None)
    return (
        f"Decode-step bubble: the GPU stood still for {text.ns(total)} ({share} of {text.ns(window)}) in "
        f"{text.count(len(gaps), 'gap')} of {text.ns(percentile(length, 50))} (median) while the host was in {parts}; "
        f"{host}"
    )


def _has_ranges(analysis: Analysis) -> str:
    """Without a range that says so nothing tells scheduling from other work."""
    if np.isin(analysis.ranges.stage, [STAGES.index(part) for part in PARTS]).any():
        return ""
    return "no range called schedule, sample or detokenize in this trace"


def _steps(tid: int) -> Trace:
    rows = []
    for i in range(10):
        t = i * 1_500_000
        rows.append(span("decode", t, 100_000, payload=1))
        rows += launch("gemm", at=t, start=t + 10_000, dur=1_000_000, call_dur=5_000)
        rows.append(span("schedule", t + 1_010_000, 480_000, tid=tid))
    return build_trace(*rows)


def fires() -> Trace:
    """Ten kernels of 1 ms, 0.5 ms of scheduling between them."""
    return _steps(100)


def quiet() -> Trace:
    """The same, scheduled on another thread."""
    return _steps(200)


RULE = Rule(
    code="PK102",
    title="Bubble between steps",
    unmet=needs_all(needs_gpu_rows, _has_ranges, needs_calls, needs_joined_work),
    check=check,
    advice="Schedule the next step while this one runs, sample on the GPU, detokenize on another thread.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Put profkit.stage('schedule'), 'sample' and 'detokenize' around these parts of the loop.",
)
