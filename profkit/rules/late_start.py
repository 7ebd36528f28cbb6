"""PK105 late start.

What it finds
    A process whose first kernel begins at least 0.5 s, and at least 10 % of the capture, after its first CUDA call:
    start-up is inside the capture. And a GPU whose first kernel begins at least 0.1 s, and at least 10 % of the
    window, after those of most other GPUs of the same host.

Why it costs time
    Start-up is paid once and is no part of a step, but for this time the GPU is paid for and does nothing; a capture
    that holds it shows less of what repeats. A GPU that comes late may keep all others waiting.

How the cost is computed
    No price: a fix of start-up saves no time of a step. The facts say how long it took, and in which calls and
    ranges; calls that lie in each other count for each name.

What to do
    For the capture: begin to record behind start-up (cudaProfilerStart, nsys --capture-range, --delay). For
    start-up itself: keep the process alive, load weights from pinned or mapped memory, CUDA_MODULE_LOADING=LAZY.

When it is wrong
    A GPU may be meant to begin later: a stage of a pipeline, a draft model, a process that joins.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import sum_by, union
from profkit.analysis.work import COPIES
from profkit.arrays import numbered
from profkit.model import Finding, Ints, Mask, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows
from profkit.rules._evidence import of_work
from profkit.schema import SPAN_KINDS
from profkit.testing import build_trace, call, launch

SHORTEST_NS = 500_000_000
"""To make a context and to load a small library takes a third of a second."""
SHORTEST_AFTER_OTHERS_NS = 100_000_000
SMALLEST_SHARE = 0.10
_MOST_NAMES = 3
_SMALLEST_PART = 0.02
"""Of the start-up, for a name to be worth saying."""
_NAMED = [SPAN_KINDS.index(kind) for kind in ("push_pop", "annotation", "start_end")]


def check(analysis: Analysis) -> Iterator[Finding]:
    work = analysis.work
    kernels = np.flatnonzero(work.table != COPIES)
    yield from _start_up(analysis, kernels)
    yield from _behind_others(analysis, kernels)


def _start_up(analysis: Analysis, kernels: Ints) -> Iterator[Finding]:
    """The process of the longest start-up, if that is long."""
    work, calls = analysis.work, analysis.trace.array("calls", "start_ns")
    known = kernels[work.process[kernels] >= 0]
    owner, first, _ = numbered(work.process[known])
    begun, earliest, _ = numbered(analysis.trace.array("calls", "process"))
    both, at_kernel, at_call = np.intersect1d(owner, begun, return_indices=True)
    if not len(both):
        return
    first_kernel, first_call = known[first[at_kernel]], earliest[at_call]
    late = work.start[first_kernel] - calls[first_call]
    longest = int(np.argmax(late))
    begin, row = int(calls[first_call[longest]]), int(first_kernel[longest])
    whole = int(work.end.max()) - begin
    if late[longest] < max(SHORTEST_NS, SMALLEST_SHARE * whole):
        return
    long = int((late >= max(SHORTEST_NS, SMALLEST_SHARE * whole)).sum())
    yield _of_start_up(analysis, int(both[longest]), Window(begin, int(work.start[row])), row, whole, long)


def _of_start_up(analysis: Analysis, process: int, time: Window, row: int, whole: int, processes: int) -> Finding:
    trace, work = analysis.trace, analysis.work
    calls = np.flatnonzero(trace.array("calls", "start_ns")[: _until(trace, "calls", time.end_ns)] >= time.start_ns)
    calls = calls[trace.array("calls", "process")[calls] == process]
    spans = np.arange(_until(trace, "spans", time.end_ns))
    spans = spans[np.isin(trace.array("spans", "kind")[spans], _NAMED)]
    spans = spans[trace.process_of(trace.array("spans", "track")[spans]) == process]
    in_calls, in_spans = _by_name(trace, "calls", calls, time), _by_name(trace, "spans", spans, time)
    copies = np.flatnonzero((work.table == COPIES) & (work.process == process) & (work.start < time.end_ns))
    copied = union(work.start[copies], np.minimum(work.end[copies], time.end_ns)).total
    where = analysis.device_name(int(work.device[row]))
    said = ", ".join(f"{text.clip(name, 60)} {text.ns(value)}" for name, value in in_calls)
    ranges = ", ".join(f"{text.clip(name, 60)} {text.ns(value)}" for name, value in in_spans)
    return Finding(
        code=RULE.code,
        title="Start-up is inside the capture",
        key=f"{RULE.code}:{int(work.device[row])}:startup:",
        message=(
            f"The first kernel on {where} begins {text.ns(time.dur_ns)} after the first CUDA call "
            f"({text.percent(time.dur_ns / whole)} of {text.ns(whole)})"
            + (f"; in calls: {said}" if said else "")
            + (f"; in ranges: {ranges}" if ranges else "")
            + (f"; copies {text.ns(copied)}" if copied else "")
            + (f"; {text.count(processes, 'process', 'processes')} so" if processes > 1 else "")
        ),
        cause="the capture begins with the program: contexts, modules, memory and weights come before the first kernel",
        advice=RULE.advice,
        facts={
            "startup_ns": time.dur_ns,
            "of_ns": whole,
            "copies_ns": copied,
            "processes": processes,
            **{f"in_{text.clip(name, 60)}_ns": value for name, value in in_calls},
        },
        evidence=(
            evidence(
                "calls",
                calls[np.argsort(-trace.array("calls", "dur_ns")[calls], kind="stable")],
                tracks=tuple(np.unique(trace.array("calls", "track")[calls[:100]]).tolist()),
                window=time,
            ),
        ),
    )


def _until(trace: Trace, table: str, time: int) -> int:
    """How many rows of a table begin before a time."""
    return int(np.searchsorted(trace.array(table, "start_ns"), time))


def _by_name(trace: Trace, table: str, rows: Ints, time: Window) -> list[tuple[str, int]]:
    """The names that take most of a time, and how much of it, ns."""
    start = trace.array(table, "start_ns")[rows]
    end = np.minimum(start + trace.array(table, "dur_ns")[rows], time.end_ns)
    length = np.maximum(end - np.maximum(start, time.start_ns), 0)
    total = sum_by(trace.array(table, "name")[rows] + 1, length, trace.rows("names") + 1)
    most = np.argsort(-total, kind="stable")[:_MOST_NAMES]
    column = "base" if table == "calls" else "text"
    return [
        (trace.name(int(row) - 1, column), int(total[row]))
        for row in most
        if row and total[row] >= max(_SMALLEST_PART * time.dur_ns, 1)
    ]


def _behind_others(analysis: Analysis, kernels: Ints) -> Iterator[Finding]:
    """GPUs that begin long after the other ones of their host."""
    work = analysis.work
    known = kernels[work.device[kernels] >= 0]
    device, first, _ = numbered(work.device[known])
    host = analysis.trace.array("devices", "host")[device]
    begin = work.start[known[first]]
    window = analysis.window.dur_ns if analysis.window else 0
    for one in np.unique(host).tolist():
        mine = np.flatnonzero(host == one)
        if len(mine) < 2:
            continue
        usual = int(np.sort(begin[mine])[(len(mine) - 1) // 2])
        late: Mask = begin[mine] - usual >= max(SHORTEST_AFTER_OTHERS_NS, SMALLEST_SHARE * window)
        for at in mine[late].tolist():
            yield _of_device(analysis, int(device[at]), int(known[first[at]]), usual, len(mine), window)


def _of_device(analysis: Analysis, device: int, row: int, usual: int, devices: int, window: int) -> Finding:
    late = int(analysis.work.start[row]) - usual
    return Finding(
        code=RULE.code,
        title="A GPU starts late",
        key=f"{RULE.code}:{device}:device:",
        message=(
            f"{analysis.device_name(device)} runs its first kernel {text.ns(late)} ({text.percent(late / window)} of "
            f"{text.ns(window)}) after most of the {devices} GPUs have begun"
        ),
        cause="its process or its part of the work begins later",
        advice="Look at what this GPU's process does until then; let all ranks meet before the first step is timed.",
        facts={"late_ns": late, "window_ns": window, "devices": devices},
        evidence=of_work(analysis, np.asarray([row])),
    )


def _whole_capture(analysis: Analysis) -> str:
    if analysis.selected is not None:
        return "a part of the capture was chosen: how it began is outside"
    if not (analysis.work.table != COPIES).any():
        return "no kernels were recorded"
    return ""


def _run(startup: int) -> Trace:
    rows = [call(0, 5_000, "cuInit"), call(10_000, startup, "cudaMalloc")]
    for i in range(10):
        t = startup + 20_000 + i * 200_000_000
        rows += launch("gemm", at=t, start=t + 10_000, dur=150_000_000)
    return build_trace(*rows)


def fires() -> Trace:
    """2 s of run behind 1 s of start-up."""
    return _run(1_000_000_000)


def quiet() -> Trace:
    """The same run behind 0.1 s."""
    return _run(100_000_000)


RULE = Rule(
    code="PK105",
    title="Late start",
    unmet=needs_all(needs_gpu_rows, needs_calls, _whole_capture),
    check=check,
    advice="Begin to record behind start-up: nsys --capture-range=cudaProfilerApi, or --delay.",
    fires=fires,
    quiet=quiet,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx), from the start of the program.",
)
