"""PK507 warm-up inside the window.

What it finds
    Time of the window that is not the steady state: GPU work before the first step (loading, compiling, capture of
    graphs; only where ranges or annotations say when a step begins), leading steps that took over twice the median
    of their kind, and further steps before the periods settle; where that is 2 % of the window or more. It needs
    four steps of a kind to tell.

Why it costs time
    It costs no run time in service. It changes the numbers of a capture: the more of it, the less shares of the
    window say of a long run.

How the cost is computed
    No price. The share is the union of these times over the window. Medians and percentiles of steps, and prices
    per step, leave out steps that are marked warm-up; busy and idle time, idle time by cause, times of stages, sums
    of kernels and prices over the window hold them, and steps that were not marked count everywhere. It is a
    warning from a quarter of the window on.

What to do
    Look at the rest with --window step:A-B (the advice says which), or begin to record after the warm-up:
    --capture-range=cudaProfilerApi, or torch.profiler.schedule(wait, warmup, active).

When it is wrong
    Steps at the start may be slow since their work is larger: long prompts, a full batch. A capture that is about
    start-up or the first request is not to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, clip, union
from profkit.model import Evidence, Finding, Ints, Mask, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.testing import Row, build_trace, launch, span

SMALLEST_SHARE = 0.02
DOUBTFUL_SHARE = 0.25
"""Of the window: from here on its shares are no longer those of the steady state, whatever they are."""
FEWEST_STEPS = 4
_KNOWN_BEGIN = ("stages", "profiler_steps", "engine_annotations")
"""Sources of steps that say when the first one begins; the others may find it in the middle of the work."""


@dataclass(frozen=True)
class WarmUp:
    """Steps that are marked, steps that are not but came before the periods settled, and what lies before the first."""

    marked: Ints
    unsettled: Ints
    before: Window | None
    times: Intervals


def check(analysis: Analysis) -> Iterator[Finding]:
    window = analysis.window
    if window is None or not window.dur_ns:
        return
    found = _warm_up(analysis, window)
    taken = found.times.total
    if taken < SMALLEST_SHARE * window.dur_ns:
        return
    before = found.before.dur_ns if found.before else 0
    steps = analysis.steps
    marked, unsettled = len(found.marked), len(found.unsettled)
    held = "busy and idle time, causes, stages and sums of kernels hold it" + (
        ", medians of steps leave it out" if marked and not unsettled else ""
    )
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:window:",
        severity="warning" if taken >= DOUBTFUL_SHARE * window.dur_ns else "info",
        message=(
            f"Warm-up takes {text.ns(taken)} ({text.percent(taken / window.dur_ns)} of {text.ns(window.dur_ns)}) of "
            f"the window: {', '.join(_parts(found, before, int(steps.lead.sum())))}; {held}"
        ),
        cause="the recording began before the program had settled",
        advice=RULE.advice + _rest(analysis),
        facts={
            "warm_up_ns": taken,
            "window_ns": window.dur_ns,
            "steps": int(steps.lead.sum()),
            "warm_up_steps": marked,
            "unsettled_steps": unsettled,
            "before_first_step_ns": before,
        },
        evidence=_evidence(analysis, found),
    )


def _parts(found: WarmUp, before: int, steps: int) -> Iterator[str]:
    if before:
        yield f"{text.ns(before)} before the first step"
    if len(found.marked):
        yield f"{len(found.marked):,} of {text.count(steps, 'step')} that took over twice the median of their kind"
    if len(found.unsettled):
        yield f"{text.count(len(found.unsettled), 'further step')} before the periods settled (medians hold them)"


def _warm_up(analysis: Analysis, window: Window) -> WarmUp:
    steps = analysis.steps
    start, end = _sides(analysis)
    lead = steps.lead & (end > start)
    marked = np.flatnonzero(lead & steps.warm_up)
    settled = analysis.steady.window if analysis.steady else None
    early: Mask = lead & steps.counted & (steps.period >= 0) & (steps.kind == steps.main_kind())
    early &= (steps.gpu_end <= settled.start_ns) if settled else False
    unsettled = np.flatnonzero(early)
    before = _before(analysis, window, start[lead])
    rows = np.concatenate((marked, unsettled))
    edges = [(before.start_ns, before.end_ns)] if before else []
    times = union(
        np.append(start[rows], np.asarray([low for low, _ in edges], np.int64)),
        np.append(end[rows], np.asarray([high for _, high in edges], np.int64)),
    )
    return WarmUp(marked, unsettled, before, clip(times, window.start_ns, window.end_ns))


def _sides(analysis: Analysis) -> tuple[Ints, Ints]:
    """When each step began, on the host where that is known, and when the last of it ended."""
    steps = analysis.steps
    start = np.where(steps.host_start >= 0, steps.host_start, steps.gpu_start)
    return start, np.maximum(np.where(steps.gpu_end >= 0, steps.gpu_end, steps.host_end), start)


def _before(analysis: Analysis, window: Window, starts: Ints) -> Window | None:
    """The part of the window before the first step, where it was not selected and steps say when they begin."""
    if analysis.selected is not None or analysis.steps.source not in _KNOWN_BEGIN or not len(starts):
        return None
    first = min(int(starts.min()), window.end_ns)
    return Window(window.start_ns, first) if first > window.start_ns else None


def _rest(analysis: Analysis) -> str:
    """The window of the steady state, as the command line takes it."""
    steps, steady = analysis.steps, analysis.steady
    if analysis.selected is not None or steady is None or steady.window is None:
        return ""
    return f" The steady state is --window step:{steady.first}-{int(steps.index[steps.lead].max())}."


def _evidence(analysis: Analysis, found: WarmUp) -> tuple[Evidence, ...]:
    spans = analysis.steps.span[np.concatenate((found.marked, found.unsettled))]
    spans = spans[spans >= 0]
    first = Window(int(found.times.start[0]), int(found.times.end[0]))
    return (evidence("spans", spans, window=first),) if len(spans) else ()


def _enough(analysis: Analysis) -> str:
    steps = analysis.steps
    most = max((int((steps.lead & (steps.kind == code)).sum()) for code in np.unique(steps.kind)), default=0)
    if most >= FEWEST_STEPS:
        return ""
    return f"{text.count(most, 'step')} of a kind: fewer than {FEWEST_STEPS} do not tell warm-up from the steady state"


def _trace(first: int) -> Trace:
    rows: list[Row | list[Row]] = []
    t = 0
    for i in range(10):
        length = first if i == 0 else 100_000
        rows.append(span("decode", t, length - 1_000, payload=1))
        rows.append(launch("gemm", at=t + 100, start=t + 10_000, dur=length - 12_000))
        t += length
    return build_trace(*rows)


def fires() -> Trace:
    """Ten decode steps, the first of which takes twenty times as long as the others."""
    return _trace(2_000_000)


def quiet() -> Trace:
    """Ten decode steps that all take the same."""
    return _trace(100_000)


RULE = Rule(
    code="PK507",
    title="Warm-up inside the window",
    unmet=needs_all(needs_gpu_rows, needs_steps, _enough),
    check=check,
    advice="Record after the warm-up (--capture-range=cudaProfilerApi, torch.profiler.schedule), or choose a window.",
    fires=fires,
    quiet=quiet,
    record="Record at least four steps, with profkit.stage('prefill') and profkit.stage('decode') around them.",
)
