"""PK305 upload waited for in its own step.

What it finds
    Uploads of more than 64 kB from pinned memory, of at least 1 % of a step, that the kernels of the same step wait
    for: asynchronous by name, but nothing runs beside them. What counts is the overlap that was reached, not the
    name of the call.

Why it costs time
    A copy engine works beside the kernels, and here it works instead of them.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: the upload of a step is
    issued a step ahead on a stream of its own; the kernels wait for it by an event. It fires where that gives back
    anything; the severity says whether it matters.

What to do
    Issue the upload of the next step on a second stream while this one runs (two pinned buffers, one event each).

When it is wrong
    What is uploaded may depend on the result of the step before: then it cannot be known a step ahead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import union
from profkit.analysis.work import COPIES
from profkit.model import Ints, Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_copies, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, call, copy, launch, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("prefetch",),
        lambda seen: (
            f"Uploads that their own step waits for: {text.count(seen.count, 'pinned H2D copy', 'pinned H2D copies')}"
            f"{seen.each_step}, {text.ns(_copy_ns(analysis))}, {text.percent(_overlap(analysis))} of it beside kernels"
        ),
        "the kernels of a step are queued behind its own upload",
    )


def _copies(analysis: Analysis) -> tuple[Ints, Ints]:
    """(start, end) of these copies."""
    found, work = analysis.found("prefetch"), analysis.replayed.model.work
    ops = found.ops if found is not None else np.zeros(0, np.int64)
    return work.start[ops], work.end[ops]


def _copy_ns(analysis: Analysis) -> int:
    start, end = _copies(analysis)
    return int((end - start).sum())


def _overlap(analysis: Analysis) -> float | None:
    """Part of their time in which a kernel ran on any stream of any device that they are for."""
    start, end = _copies(analysis)
    work = analysis.replayed.model.work
    kernels = np.flatnonzero(work.table != COPIES)
    busy = union(work.start[kernels], work.end[kernels])
    total = int((end - start).sum())
    return int(busy.covered(start, end).sum()) / total if total else None


def _steps(size: int, dur: int) -> Trace:
    rows, free = [], 0
    for i in range(10):
        t = i * 1_000_000
        rows.append(span("decode", t, 900_000, payload=1))
        rows.append(call(t + 10_000, 4_000, "cudaMemcpyAsync", correlation=i + 1))
        start = max(free, t + 20_000)
        rows.append(copy(start, dur, "h2d", size, "pinned", "device", correlation=i + 1))
        rows += launch("gemm", at=t + 20_000, start=start + dur + 1_000, dur=900_000)
        free = start + dur + 902_000
    return build_trace(*rows)


def fires() -> Trace:
    """Ten decode steps whose kernel waits for an upload on the same stream."""
    return _steps(size=5_000_000, dur=200_000)


def quiet() -> Trace:
    """The same with uploads of a few microseconds."""
    return _steps(size=100_000, dur=4_000)


RULE = Rule(
    code="PK305",
    title="Upload waited for in its own step",
    unmet=needs_all(needs_copies, needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Issue the upload a step ahead on a stream of its own, and let the kernels wait for its event.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
