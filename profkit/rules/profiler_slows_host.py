"""PK506 profiler slows the host.

What it finds
    Time that the profiler took for itself on threads that launch GPU work (flushing buffers, instrumenting, its own
    set-up), where that is 0.5 % of the window or more; and launch calls that are far slower than is usual although
    nothing was queued: at least 100 launches onto an idle GPU of which nine in ten take over 20 us each, apart from
    the time in which the GPU already worked.

Why it costs time
    The run itself may be fast: what is measured is a run that carries a profiler. Where the host sets the pace,
    steps are longer in the capture than without it, and a launch-bound finding is larger.

How the cost is computed
    No price: nobody can tell from a capture how long the same step takes without it. The facts say the profiler's
    own time in the window (of the launching thread that lost most, never counted twice), for each call and for the
    median step. It is a warning where the median step holds 10 % of its time on the host of it (without steps: 25 %
    of the window): a few long flushes change no median. Slow launches are a warning where they take 10 % of the
    window.

What to do
    Time the same load without a profiler, and compare TPOT or the time of a step with that of this capture. Then
    record less: no CPU sampling, no call stacks, no shapes, no operating system calls, only a few steps, graphs as
    one piece (--cuda-graph-trace=graph).

When it is wrong
    A slow processor, a debugger, or CUDA_LAUNCH_BLOCKING make launches slow, too. Of captures that were looked at,
    the quickest launches of most take 1 to 7 us; a machine may be slower than these. Profilers do not record all of
    their own time, and most captures of PyTorch's have none of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import text
from profkit.analysis.calls import LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, clip, percentile, union
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_owned_work
from profkit.rules._evidence import longest_first, of_calls
from profkit.schema import FLAG_OPEN_END
from profkit.testing import Row, build_trace, launch, overhead

SMALLEST_SHARE = 0.005
DOUBTFUL_SHARE = 0.10
"""Of the median step: from here on the times of steps are not those of the program alone."""
DOUBTFUL_WITHOUT_STEPS = 0.25
"""Of the window, where the profiler's pauses cannot be told to be few and long."""
SLOW_LAUNCH_NS = 20_000
"""Four times what the quickest launches take in most captures."""
FEWEST_LAUNCHES = 100
_QUICKEST = 10
_MOST_LAUNCHES = 50_000
"""Of more launches every n-th one is looked at: a tenth of them is as well known from these."""
_OWN = pa.array(["profiler", "instrumentation", "buffer_flush", "resource"])
_NOT_OWN = re.compile(r"(?i)lazy|module|jit|compil|command buffer")
"""Some sources put the driver's own work under the same kind, by these names."""
_NOT_KNOWN = "how long a step takes without the profiler is not known from this capture"


@dataclass(frozen=True)
class OwnTime:
    """The profiler's own time in the window on the launching thread that lost most: its rows, their union."""

    thread: int
    rows: Ints
    times: Intervals


def check(analysis: Analysis) -> Iterator[Finding]:
    window = analysis.window
    if window is None or not window.dur_ns:
        return
    own = _own_time(analysis, window)
    if own is not None and own.times.total >= SMALLEST_SHARE * window.dur_ns:
        yield _taken(analysis, window, own)
    calls, alone = _launches_onto_idle(analysis)
    quickest = percentile(alone, _QUICKEST) or 0
    if len(calls) >= FEWEST_LAUNCHES and quickest > SLOW_LAUNCH_NS:
        yield _slow_launches(analysis, window, calls, alone, quickest)


def _taken(analysis: Analysis, window: Window, own: OwnTime) -> Finding:
    trace, taken = analysis.trace, own.times.total
    start = trace.array("calls", "start_ns")
    made = (trace.array("calls", "track") == own.thread) & (start >= window.start_ns) & (start < window.end_ns)
    calls = int(made.sum())
    length = trace.array("overheads", "dur_ns")[own.rows]
    rows = own.rows[longest_first(length)]
    name = text.clip(trace.name(int(trace.array("overheads", "name")[rows[0]])), 60)
    per_call = taken // calls if calls else -1
    how = f"in {text.count(len(rows), 'piece')}, the longest {text.ns(int(length.max()))}{f' ({name})' if name else ''}"
    if 2 * len(rows) >= calls > 0:
        how = f"{text.ns(per_call)} for each of its {text.count(calls, 'call')}"
    step, of_step = _per_step(analysis, own.times)
    in_steps = f"; the median step holds {text.ns(step) if step else 'nothing'} of it" if of_step >= 0 else ""
    per_window = taken >= DOUBTFUL_WITHOUT_STEPS * window.dur_ns
    doubtful = step >= DOUBTFUL_SHARE * of_step > 0 if of_step >= 0 else per_window
    idle = analysis.idle.by_cause().get("profiler", 0)
    first = int(trace.array("overheads", "start_ns")[rows[0]])
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:own time:",
        severity="warning" if doubtful else "info",
        message=(
            f"The profiler took {text.ns(taken)} ({text.percent(taken / window.dur_ns)} of the window of "
            f"{text.ns(window.dur_ns)}) of a launching thread's time, {how}{in_steps}; idle time that it explains: "
            f"{text.ns(idle) if idle else 'none'}; {_NOT_KNOWN}"
        ),
        cause="the profiler works on the thread that launches",
        advice=RULE.advice,
        facts={
            "profiler_own_ns": taken,
            "window_ns": window.dur_ns,
            "pieces": len(rows),
            "longest_ns": int(length.max()),
            "calls": calls,
            "profiler_own_ns_per_call": per_call,
            "profiler_own_ns_per_median_step": step,
            "gpu_idle_by_profiler_ns": idle,
        },
        evidence=(
            evidence("overheads", rows, tracks=(own.thread,), window=Window(first, first + max(int(length.max()), 1))),
        ),
    )


def _per_step(analysis: Analysis, times: Intervals) -> tuple[int, int]:
    """(what the median counted step holds of these times, how long it lasts on the host); -1 where no step is known."""
    steps = analysis.steps
    rows = np.flatnonzero(steps.counted & steps.lead & (steps.host_start >= 0) & (steps.host_end > steps.host_start))
    if not len(rows):
        return -1, -1
    start, end = steps.host_start[rows], steps.host_end[rows]
    return percentile(times.covered(start, end), 50) or 0, percentile(end - start, 50) or 0


def _slow_launches(analysis: Analysis, window: Window, calls: Ints, alone: Ints, quickest: int) -> Finding:
    order = longest_first(alone)
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:launches:",
        severity="warning" if int(alone.sum()) >= DOUBTFUL_SHARE * window.dur_ns else "info",
        message=(
            "Launch calls are slow although nothing was queued: nine in ten of "
            f"{text.count(len(calls), 'launch call')} onto an idle GPU took {text.ns(quickest)} or longer, "
            f"{text.ns(percentile(alone, 50))} (median); usual is a few µs. The profiler or the machine is slow; "
            f"{_NOT_KNOWN}"
        ),
        cause="each launch call costs the host many times what is usual",
        advice=RULE.advice,
        facts={
            "launches_onto_idle_gpu": len(calls),
            "launch_p10_ns": quickest,
            "launch_p50_ns": percentile(alone, 50) or 0,
            "launches_ns": int(alone.sum()),
            "window_ns": window.dur_ns,
        },
        evidence=of_calls(analysis, calls[order]),
    )


def _own_time(analysis: Analysis, window: Window) -> OwnTime | None:
    """The profiler's own time, of the launching thread that lost most inside the window; None where none lost any."""
    trace = analysis.trace
    launching = distinct(trace.array("calls", "track")[analysis.launch_calls])
    track, name = trace.array("overheads", "track"), trace.array("overheads", "name")
    start = trace.array("overheads", "start_ns")
    end = start + trace.array("overheads", "dur_ns")
    own = np.asarray(pc.is_in(trace.tables["overheads"].column("kind"), _OWN).to_numpy())
    own &= np.isin(track, launching) & (end > window.start_ns) & (start < window.end_ns)
    others = [row for row in np.unique(name[own]).tolist() if _NOT_OWN.search(trace.name(row))]
    rows = np.flatnonzero(own & ~np.isin(name, others))
    most: OwnTime | None = None
    for thread in np.unique(track[rows]).tolist():
        mine = rows[track[rows] == thread]
        times = clip(union(start[mine], end[mine]), window.start_ns, window.end_ns)
        if times.total > (most.times.total if most else 0):
            most = OwnTime(thread, mine, times)
    return most


def _launches_onto_idle(analysis: Analysis) -> tuple[Ints, Ints]:
    """(launches of kernels that found the GPU of their process idle, how long each lasted while it still was)."""
    trace = analysis.trace
    whole = (trace.array("calls", "flags") & FLAG_OPEN_END) == 0
    calls = np.flatnonzero((analysis.call_kind == LAUNCH) & whole & analysis.begins_inside("calls"))
    work = analysis.whole_work
    has_row = np.zeros(trace.rows("calls"), bool)
    has_row[work.call[work.call >= 0]] = True
    calls = calls[has_row[calls]]
    calls = calls[:: len(calls) // _MOST_LAUNCHES + 1]
    start, end = trace.array("calls", "start_ns")[calls], analysis.call_end[calls]
    process = trace.array("calls", "process")[calls]
    idle, alone = np.zeros(len(calls), bool), end - start
    for owner, runs in analysis.whole_process_runs.items():
        mine, busy = np.flatnonzero(process == owner), Intervals(runs.start, runs.end)
        alone[mine] -= busy.covered(start[mine], end[mine])
        idle[mine] = busy.covered(start[mine], start[mine] + 1) == 0
    return calls[idle], alone[idle]


def _something_to_see(analysis: Analysis) -> str:
    if analysis.trace.rows("overheads") or len(_launches_onto_idle(analysis)[0]) >= FEWEST_LAUNCHES:
        return ""
    return f"the profiler's own time was not recorded, and fewer than {FEWEST_LAUNCHES} launches found the GPU idle"


def _trace(own: int) -> Trace:
    rows: list[Row | list[Row]] = []
    for i in range(100):
        t = i * 100_000
        rows += [launch("gemm", at=t, start=t + 8_000, dur=20_000), overhead(t + 60_000, own, "instrumentation")]
    return build_trace(*rows)


def fires() -> Trace:
    """A hundred launches, one each 100 us, of which the profiler takes 30 us for itself."""
    return _trace(30_000)


def quiet() -> Trace:
    """The same, of which it takes 0.1 us."""
    return _trace(100)


RULE = Rule(
    code="PK506",
    title="Profiler slows the host",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_owned_work, _something_to_see),
    check=check,
    advice=(
        "Time the same load without a profiler and compare TPOT or step time; record less: no CPU sampling, call "
        "stacks, shapes or operating system calls, only a few steps, graphs as one piece."
    ),
    fires=fires,
    quiet=quiet,
    record="Record with nsys, which says its own overhead, and CUDA calls with it (--trace=cuda).",
)
