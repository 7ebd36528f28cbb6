"""PK503 wait for work that was not recorded.

What it finds
    Synchronisations that went on for more than a millisecond, and for most of their length, after the last recorded GPU
    work of their process had ended: the host waited for something, and the capture does not show it.

Why it costs time
    It costs no run time. It makes the idle time of this capture doubtful: the GPU may well have worked.

How the cost is computed
    No price. The facts say how long such waits lasted behind the last recorded work.

What to do
    Start the profiler before CUDA graphs are captured and record them at node level (profkit trace does both); nodes of
    conditional and while bodies need a newer driver and profiler. Look for lost records in the profiler's own messages.

When it is wrong
    A stream may wait for a host callback, for an event of another process, or for a GPU that others use; the wait is
    real then, and nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.calls import GRAPH_LAUNCH, LAUNCH, SYNC
from profkit.analysis.context import Analysis
from profkit.model import Finding, Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_owned_work
from profkit.schema import FLAG_OPEN_END
from profkit.testing import build_trace, call, kernel, launch, sync

LONGEST_WAKE_UP_NS = 1_000_000
"""A host thread that takes longer than this to return was held by something on the device."""
_MOSTLY = 0.5


def check(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    whole = (trace.array("calls", "flags") & FLAG_OPEN_END) == 0
    calls = np.flatnonzero((analysis.call_kind == SYNC) & whole & analysis.begins_inside("calls"))
    behind = _behind_work(analysis, calls)
    length = trace.array("calls", "dur_ns")[calls]
    long = (behind > LONGEST_WAKE_UP_NS) & (behind >= _MOSTLY * length)
    if not long.any():
        return
    order = np.argsort(-behind[long], kind="stable")
    calls, behind = calls[long][order], behind[long][order]
    names = sorted({trace.name(int(name), "base") for name in trace.array("calls", "name")[calls]})
    end = int(analysis.call_end[calls[0]])
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:waits:",
        severity="warning",
        message=(
            f"The host waited {text.ns(int(behind.sum()))} in {text.count(len(calls), 'call')} of {', '.join(names)}"
            f"{_streams(trace, calls)} with no recorded GPU work: records may be missing{_graphs(analysis, calls)}"
        ),
        cause="the capture does not show what these calls waited for",
        advice=RULE.advice,
        facts={
            "waits": len(calls),
            "wait_without_gpu_work_ns": int(behind.sum()),
            "longest_wait_without_gpu_work_ns": int(behind[0]),
        },
        evidence=(
            evidence(
                "calls",
                calls,
                tracks=tuple(np.unique(trace.array("calls", "track")[calls[:100]]).tolist()),
                window=Window(end - int(behind[0]), end),
            ),
        ),
    )


def _behind_work(analysis: Analysis, calls: Ints) -> Ints:
    """How long each call lasted after the last recorded GPU work of its process, ns; 0 where none is recorded."""
    trace = analysis.trace
    process = trace.array("calls", "process")[calls]
    start, end = trace.array("calls", "start_ns")[calls], analysis.call_end[calls]
    out = np.zeros(len(calls), np.int64)
    for owner in np.unique(process).tolist():
        busy = analysis.whole_process_runs.get(owner)
        mine = np.flatnonzero(process == owner)
        if busy is not None and len(busy):
            at = np.searchsorted(busy.start, end[mine], side="left") - 1
            last = np.where(at >= 0, busy.end[np.maximum(at, 0)], start[mine])
            out[mine] = np.maximum(end[mine] - np.maximum(last, start[mine]), 0)
    return out


def _streams(trace: Trace, calls: Ints) -> str:
    """The streams that were waited for, where synchronisation records say them."""
    rows = np.isin(trace.array("syncs", "correlation"), trace.array("calls", "correlation")[calls])
    track = trace.array("syncs", "stream_track")[rows]
    streams = np.unique(trace.array("tracks", "stream")[track[track >= 0]]).tolist()
    return f" on stream {', '.join(map(str, streams[:4]))}" if streams else ""


def _graphs(analysis: Analysis, calls: Ints) -> str:
    """Whether the last launch before the longest wait was a graph launch: the usual reason."""
    trace = analysis.trace
    launches = np.flatnonzero((analysis.call_kind == LAUNCH) | (analysis.call_kind == GRAPH_LAUNCH))
    same = launches[trace.array("calls", "process")[launches] == trace.array("calls", "process")[calls[0]]]
    before = same[trace.array("calls", "start_ns")[same] < trace.array("calls", "start_ns")[calls[0]]]
    if len(before) and analysis.call_kind[before[-1]] == GRAPH_LAUNCH:
        return " (the last launch before was a CUDA graph: of its nodes some may have no rows)"
    return ""


def _trace(recorded_ns: int) -> Trace:
    return build_trace(
        launch("gemm", at=0, start=20_000, dur=recorded_ns),
        call(100_000, 49_900_000, "cudaStreamSynchronize", correlation=9),
        sync(100_000, 49_900_000, correlation=9),
        kernel(51_000_000, 1_000_000),
    )


def fires() -> Trace:
    """A wait of 50 ms for a kernel of 5 ms."""
    return _trace(5_000_000)


def quiet() -> Trace:
    """The same wait for a kernel of 49.9 ms."""
    return _trace(49_900_000)


RULE = Rule(
    code="PK503",
    title="Wait for work that was not recorded",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_owned_work),
    check=check,
    advice=(
        "Start the profiler before graphs are captured, record them at node level (profkit trace does both), and look "
        "for lost records in the profiler's messages; do not read this idle time as the GPU's."
    ),
    fires=fires,
    quiet=quiet,
)
