"""PK502 calls but no GPU rows.

What it finds
    Launch calls of a process none of whose GPU work was recorded: the program used the GPU, the capture does not show
    it.

Why it costs time
    It costs no run time. It makes every GPU number of the capture unknown: not 0, and not "100 % idle".

How the cost is computed
    No price.

What to do
    Check in this order: does nsys or CUPTI know this driver (profkit doctor); is another profiler attached (only one
    can be); were workers forked (use spawn, or --trace-fork-before-exec=true); did the capture range begin; WSL and
    containers without the driver's profiling libraries record calls only.

When it is wrong
    A window that ends right after the launches can miss their kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Finding, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_owned_work
from profkit.testing import build_trace, call, launch


def check(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    recorded = np.asarray(trace.tables["processes"].column("gpu_rows").to_pylist(), bool)
    process = trace.array("calls", "process")
    launches = np.flatnonzero(analysis.launch_calls & (process >= 0))
    lost = launches[~recorded[process[launches]]]
    if not len(lost):
        return
    callers, count = np.unique(process[lost], return_counts=True)
    everyone = np.unique(process[launches])
    start = trace.array("calls", "start_ns")[lost]
    who = (
        ""
        if len(everyone) == 1
        else f" in {len(callers)} of {len(everyone)} processes that used CUDA ({_pids(trace, callers.tolist())})"
    )
    what = "No GPU activity was recorded" if not analysis.has_gpu_rows else "GPU activity is missing"
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:processes:",
        severity="warning",
        message=(
            f"{what}{who} although {text.count(int(count.sum()), 'launch was', 'launches were')} made: "
            f"{trace.why_missing('kernels') or 'their kernels have no rows in this capture'}"
        ),
        cause="the profiler recorded calls, but no work of the device",
        advice=RULE.advice,
        facts={"launch_calls": int(count.sum()), "processes": len(callers), "processes_with_calls": len(everyone)},
        evidence=(
            evidence(
                "calls",
                lost,
                tracks=tuple(np.unique(trace.array("calls", "track")[lost[:100]]).tolist()),
                window=Window(int(start.min()), int(analysis.call_end[lost].max())),
            ),
        ),
    )


def _launches(analysis: Analysis) -> str:
    """Without a launch nothing can be missing, but nothing is proven sound either."""
    if analysis.launch_calls.any() or analysis.has_gpu_rows:
        return ""
    return "no launch calls were recorded"


def _pids(trace: Trace, processes: list[int]) -> str:
    pids = [str(trace.tables["processes"].column("pid")[row].as_py()) for row in processes[:8]]
    return "pid " + ", ".join(pids) + (" ..." if len(processes) > 8 else "")


def fires() -> Trace:
    """A hundred launches and not one kernel."""
    return build_trace(
        *(call(i * 10_000, 5_000, correlation=i + 1) for i in range(100)),
        missing={"kernels": "no kernel was recorded"},
    )


def quiet() -> Trace:
    """A hundred launches, each with its kernel."""
    return build_trace(*(launch("gemm", at=i * 10_000, start=i * 10_000 + 6_000, dur=2_000) for i in range(100)))


RULE = Rule(
    code="PK502",
    title="Calls but no GPU rows",
    unmet=needs_all(needs_calls, _launches, needs_owned_work),
    check=check,
    advice=(
        "Run profkit doctor; check for a second profiler, forked workers (use spawn, or "
        "--trace-fork-before-exec=true), a capture range that never "
        "began, or a driver newer than the profiler."
    ),
    fires=fires,
    quiet=quiet,
)
