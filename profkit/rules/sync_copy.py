"""PK302 synchronous copy.

What it finds
    cudaMemcpy and its relatives without Async in their name, between host and device. What each step reads back and
    waits for is PK303.

Why it costs time
    The call returns when the copy is done: the host cannot submit anything meanwhile, and the GPU finds an empty
    queue behind it.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: cost: the copies and their
    calls take no time. saving: each call submits its copy and waits for nothing; copies of pageable memory run from
    pinned memory. It fires where that gives back anything; the severity says whether it matters.

What to do
    cudaMemcpyAsync (non_blocking=True) from pinned memory on the stream that needs the data; no synchronisation is
    needed for an upload.

When it is wrong
    A host buffer that is written again right after the call has to be waited for, or doubled. A pageable upload of
    up to 64 kB returns early either way.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_copies, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, call, copy, launch, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("async-copies",),
        lambda seen: f"Copies that the host waits for: {text.count(seen.count, 'call')} of {seen.names}{seen.on_host}",
        "the call waits until its copy is done",
    )


def _steps(name: str, call_dur: int) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(call(t + 10_000, call_dur, name, correlation=i + 1))
        rows.append(copy(t + 17_000, 100_000, "h2d", 1_000_000, "pinned", "device", correlation=i + 1))
        rows += launch("gemm", at=t + 20_000 + call_dur, start=t + 140_000, dur=700_000)
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each with a cudaMemcpy of 1 MB."""
    return _steps("cudaMemcpy", 110_000)


def quiet() -> Trace:
    """The same steps with cudaMemcpyAsync."""
    return _steps("cudaMemcpyAsync", 5_000)


RULE = Rule(
    code="PK302",
    title="Synchronous copy",
    unmet=needs_all(needs_copies, needs_gpu_rows, needs_calls, needs_joined_work),
    check=check,
    advice="Copy with cudaMemcpyAsync (non_blocking=True) from pinned memory, on the stream that needs the data.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
