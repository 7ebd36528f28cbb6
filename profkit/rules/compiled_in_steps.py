"""PK213 compiled in steady state.

What it finds
    Compilers at work on a thread that launches, behind the start of the first counted step of its process: ranges and
    calls of TorchDynamo, Inductor, Triton, NVRTC and XLA, by their names. Loading of modules, also by the driver's own
    compiler (cuModuleLoad, cuLinkComplete), is PK206's.

Why it costs time
    To compile a graph takes from 0.1 s to minutes. All requests of the batch wait, and it happens again for each new
    shape, guard or configuration.

How the cost is computed
    cost: the time of these ranges, a union per thread. saving: the part of it in which the process's GPUs did
    nothing: a ceiling, since the step could have waited for something else meanwhile.

What to do
    Warm up every shape before the first request; mark what varies as dynamic (torch.compile(dynamic=True),
    mark_dynamic); look at what recompiles (TORCH_LOGS=recompiles); keep the caches of Inductor and Triton on disk.

When it is wrong
    A capture that begins with the program, whose first steps were not left out as warm-up, compiles in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, merge_by_group, sum_by
from profkit.model import Evidence, Finding, Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._names import used_names
from profkit.rules._price import priced
from profkit.schema import NOT_WHOLE, SPAN_KINDS
from profkit.testing import build_trace, launch, span

COMPILES = re.compile(
    r"(compile_inner|entire_frame_compile|entire_backward_compile|backend_compile|inductor_compile|compile_fx_inner"
    r"|async_compile\.wait|benchmark_all_configs|call_user_compiler)\b"
    r"|torch/_dynamo/convert_frame\.py\(\d+\): (_compile|compile_inner)$"
    r"|triton/compiler/compiler\.py\(\d+\): compile$|triton/runtime/jit\.py\(\d+\): _do_compile$"
    r"|\bnvrtc(CompileProgram|LinkProgram)|\bXlaCompile|^((re|jit_|triton_)?compile|XLA compilation)$"
)
_MARK, _OP = SPAN_KINDS.index("mark"), SPAN_KINDS.index("op")
_MOST_NAMES = 3
SMALLEST_NS = 1_000_000
"""Of all in all: less is a look into a cache, no compiler."""


def check(analysis: Analysis) -> Iterator[Finding]:
    spans = _compiling(analysis)
    if not len(spans):
        return
    trace = analysis.trace
    start, track = trace.array("spans", "start_ns")[spans], trace.array("spans", "track")[spans]
    merged, lane = merge_by_group(start, start + trace.array("spans", "dur_ns")[spans], track)
    if merged.total >= SMALLEST_NS:
        yield _finding(analysis, spans, merged, trace.process_of(lane))


def _compiling(analysis: Analysis) -> Ints:
    """Ranges of compilers on threads that launch, behind the first counted step of their process."""
    trace, steps = analysis.trace, analysis.steps
    names = used_names(analysis, "spans", COMPILES, "text")
    if not len(names):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(np.isin(trace.array("spans", "name"), names) & analysis.begins_inside("spans"))
    rows = rows[trace.array("spans", "kind")[rows] != _MARK]
    rows = rows[(trace.array("spans", "flags")[rows] & NOT_WHOLE) == 0]
    track = trace.array("spans", "track")[rows]
    calls = analysis.work.call[analysis.work.call >= 0]
    launching = np.unique(trace.array("calls", "track")[calls])
    rows, track = rows[np.isin(track, launching)], track[np.isin(track, launching)]
    begin = np.where(steps.host_start >= 0, steps.host_start, steps.gpu_start)
    end = np.maximum(steps.host_end, steps.gpu_end)
    counted = steps.counted & (begin >= 0)
    keep = np.zeros(len(rows), bool)
    start, process = trace.array("spans", "start_ns")[rows], trace.process_of(track)
    for owner in np.unique(process).tolist():
        mine = counted & (steps.process == owner)
        if int(mine.sum()) > 1:
            keep |= (process == owner) & (start >= begin[mine].min()) & (start < end[mine].max())
    kept: Ints = rows[keep]
    return kept


def _finding(analysis: Analysis, spans: Ints, merged: Intervals, process: Ints) -> Finding:
    idle = merged.end - merged.start
    for owner, runs in analysis.process_runs.items():
        mine = np.flatnonzero(process == owner)
        busy = Intervals(runs.start, runs.end).covered(merged.start[mine], merged.end[mine])
        idle[mine] -= busy
    length = merged.end - merged.start
    step = analysis.step_of_time(merged.start, process)
    steps = len(np.unique(step[step >= 0]))
    names = ", ".join(text.clip(name, 80) for name in _names(analysis, spans))
    return priced(
        analysis,
        cost=length,
        saving=idle,
        step=step,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:compile:",
        message=(
            f"Code is compiled behind the first counted step: {text.count(len(length), 'time')} for "
            f"{text.ns(int(length.sum()))} (longest {text.ns(int(length.max()))}), "
            + (f"in {text.count(steps, 'step')}, " if steps else "")
            + f"{text.ns(int(idle.sum()))} of it with the GPU idle; ranges: {names}"
        ),
        cause="a shape, a guard or a configuration came up that was not compiled before",
        advice=RULE.advice,
        facts={
            "compilations": len(length),
            "compile_ns": int(length.sum()),
            "longest_ns": int(length.max()),
            "gpu_idle_ns": int(idle.sum()),
            "steps_with_it": steps,
        },
        evidence=_evidence(analysis, spans),
    )


def _names(analysis: Analysis, spans: Ints) -> list[str]:
    """The names that take most time."""
    name = analysis.trace.array("spans", "name")[spans]
    total = sum_by(name, analysis.trace.array("spans", "dur_ns")[spans], analysis.trace.rows("names"))
    most = np.argsort(-total, kind="stable")[:_MOST_NAMES]
    return [analysis.trace.name(int(row)) for row in most if total[row]]


def _evidence(analysis: Analysis, spans: Ints) -> tuple[Evidence, ...]:
    trace = analysis.trace
    rows = spans[np.argsort(-trace.array("spans", "dur_ns")[spans], kind="stable")]
    start, dur = (int(trace.array("spans", column)[rows[0]]) for column in ("start_ns", "dur_ns"))
    tracks = tuple(np.unique(trace.array("spans", "track")[rows[:100]]).tolist())
    return (evidence("spans", rows, tracks=tracks, window=Window(start, start + max(dur, 1))),)


def _judged(analysis: Analysis) -> str:
    """Compilers show in ranges of their own only: PyTorch's profiler records them, nsys with NVTX of the framework."""
    trace = analysis.trace
    if int(analysis.steps.counted.sum()) < 2:
        return "fewer than two whole steps behind warm-up: nothing tells steady state from start-up"
    if (trace.array("spans", "kind") == _OP).any() or len(used_names(analysis, "spans", COMPILES, "text")):
        return ""
    return "no ranges in which a framework would show that it compiles"


def _steps(compiled_in: int) -> Trace:
    rows, t = [], 0
    rows.append(span("compile_inner (dynamo_timed)", -50_000_000, 40_000_000))
    rows += launch("gemm", at=-9_000_000, start=-8_990_000, dur=900_000)
    for i in range(8):
        begin = t
        if i == compiled_in:
            rows.append(span("_compile.compile_inner (dynamo_timed)", t + 10_000, 3_000_000))
            t += 3_020_000
        rows += launch("gemm", at=t + 5_000, start=t + 20_000, dur=900_000)
        t += 1_000_000
        rows.append(span("decode", begin, t - begin - 10_000, payload=1))
    return build_trace(*rows)


def fires() -> Trace:
    """Eight decode steps, in the sixth of which 3 ms are spent to compile."""
    return _steps(5)


def quiet() -> Trace:
    """The same steps, compiled before the first one only."""
    return _steps(-1)


RULE = Rule(
    code="PK213",
    title="Compiled in steady state",
    unmet=needs_all(needs_gpu_rows, needs_joined_work, needs_steps, _judged),
    check=check,
    advice="Warm up every shape before the first request; mark what varies as dynamic (TORCH_LOGS=recompiles).",
    fires=fires,
    quiet=quiet,
    record="Record the framework's own ranges: PyTorch's profiler, or NVTX of TorchDynamo in nsys.",
)
