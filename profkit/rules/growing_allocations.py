"""PK706 device memory grows from step to step.

What it finds
    Allocations of device memory that outlive their steps: the least that is allocated during a step (the trough)
    never falls over at least 8 counted steps in a row of one process, rises in three of four of them, and by 32 MB
    or more in all.

Why it costs time
    Memory that grows has an end: then requests are preempted, the allocator gives its cache back, or the run stops.
    Until then each growth is an allocation on the way of a step.

How the cost is computed
    There is no price. The facts say how much a step adds.

What to do
    Find what keeps tensors: a list of outputs, of logits or of past key-values; a cache without an upper bound; a KV
    cache that grows by concatenation, where one that is reserved once would do. PyTorch's memory history
    (torch.cuda.memory._record_memory_history) names the line.

When it is wrong
    A KV cache of running sequences grows by design until they end, and a capture that is shorter than a request sees
    nothing else. Memory that was allocated before the capture is not known: only the change is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from profkit import text
from profkit.analysis.context import Analysis
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.testing import Row, alloc, build_trace, launch, span

FEWEST_STEPS = 8
RISING_SHARE = 0.75
SMALLEST_GROWTH_BYTES = 32 * 1024 * 1024
"""Less may be a cache that fills once: workspaces of libraries are of this size."""
_SANE_BYTES = 1 << 50


@dataclass(frozen=True)
class _Troughs:
    """The least that a process had allocated on a device during each of its counted steps, less what it began with."""

    device: int
    process: int
    steps: Ints
    least: Ints


def check(analysis: Analysis) -> Iterator[Finding]:
    for troughs in _troughs(analysis):
        change = np.diff(troughs.least)
        grown = int(troughs.least[-1] - troughs.least[0])
        rising = int((change > 0).sum())
        if (change >= 0).all() and rising >= RISING_SHARE * len(change) and grown >= SMALLEST_GROWTH_BYTES:
            yield _finding(analysis, troughs, grown, rising)


def _finding(analysis: Analysis, troughs: _Troughs, grown: int, rising: int) -> Finding:
    steps, trace = analysis.steps, analysis.trace
    count = len(troughs.steps)
    each = (2 * grown + count - 1) // (2 * (count - 1))
    kind = steps.word(int(steps.kind[troughs.steps[0]]))
    start, end = int(steps.host_start[troughs.steps[0]]), int(steps.host_end[troughs.steps[-1]])
    time = trace.array("allocs", "start_ns")
    mine = (trace.array("allocs", "device") == troughs.device) & (trace.array("allocs", "process") == troughs.process)
    rows = np.flatnonzero(mine & (time >= start) & (time < end))
    rows = rows[np.argsort(-trace.array("allocs", "bytes")[rows], kind="stable")]
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{troughs.device}:allocations:",
        message=(
            f"Device memory grows on {text.printable(text.clip(analysis.device_name(troughs.device), 80))}: over "
            f"{text.count(count, f'{kind} step')} what stays allocated rose by {text.size(grown)}, {text.size(each)} a "
            f"step, in {rising:,} of {count - 1:,} steps, and never fell"
        ),
        cause="memory that is allocated in a step outlives it",
        advice=RULE.advice,
        facts={"steps": count, "rising_steps": rising, "growth_bytes": grown, "growth_per_step_bytes": each},
        evidence=(
            evidence(
                "allocs",
                rows,
                tracks=tuple(np.unique(trace.array("allocs", "track")[rows[:100]]).tolist()),
                window=Window(start, max(end, start + 1)),
            ),
        ),
    )


def _troughs(analysis: Analysis) -> Iterator[_Troughs]:
    """Of each device and process with allocations and enough counted steps of the main kind."""
    trace, steps, kind = analysis.trace, analysis.steps, analysis.steps.main_kind()
    device, process = trace.array("allocs", "device"), trace.array("allocs", "process")
    time, size = trace.array("allocs", "start_ns"), trace.array("allocs", "bytes")
    freed = pc.equal(trace.tables["allocs"].column("operation"), "free").combine_chunks()
    change = np.where(freed.to_numpy(zero_copy_only=False), -size, size)
    for row in distinct(device).tolist():
        for owner in distinct(process[device == row]).tolist():
            mine = (device == row) & (process == owner)
            of = np.flatnonzero(
                (steps.process == owner) & steps.counted & (steps.kind == kind) & (steps.host_start >= 0)
            )
            of = of[np.argsort(steps.host_start[of], kind="stable")]
            if len(of) < FEWEST_STEPS or (size[mine] < 0).any() or (size[mine] > _SANE_BYTES).any():
                continue
            held = np.concatenate(([0], np.cumsum(change[mine])))
            edges = np.searchsorted(time[mine], np.append(steps.host_start[of], steps.host_end[of[-1]]), side="left")
            yield _Troughs(row, owner, of, np.minimum.reduceat(held, edges)[:-1])


def _allocations(analysis: Analysis) -> str:
    if not analysis.trace.rows("allocs"):
        return analysis.trace.why_missing("allocs") or "no allocations of device memory were recorded"
    if any(True for _ in _troughs(analysis)):
        return ""
    return f"no process with allocations of known size has {FEWEST_STEPS} counted steps"


def _decodes(freed: bool) -> Trace:
    rows: list[Row] = []
    for i in range(12):
        t = i * 1_000_000
        rows += [span("decode", t, 990_000, payload=1), *launch("gemm", at=t, start=t + 10_000, dur=900_000)]
        rows += [alloc(t + 1_000, 8_000_000, address=i), alloc(t + 2_000, 64_000_000, address=100 + i)]
        rows.append(alloc(t + 900_000, 64_000_000, freed=True, address=100 + i))
        if freed:
            rows.append(alloc(t + 910_000, 8_000_000, freed=True, address=i))
    return build_trace(*rows)


def fires() -> Trace:
    """Twelve decode steps, each of which keeps 8 MB of the 72 MB that it allocates."""
    return _decodes(freed=False)


def quiet() -> Trace:
    """The same steps, which free all that they allocate."""
    return _decodes(freed=True)


RULE = Rule(
    code="PK706",
    title="Device memory grows from step to step",
    unmet=needs_all(needs_gpu_rows, needs_steps, _allocations),
    check=check,
    advice="Find what keeps memory from step to step; reserve the KV cache once instead of letting it grow.",
    fires=fires,
    quiet=quiet,
    record="Record allocations: torch.profiler.profile(profile_memory=True), or nsys --cuda-memory-usage=true.",
)
