"""PK309 synchronous memset.

What it finds
    cudaMemset without Async. Whether one waited is measured.

Why it costs time
    Of pinned host memory, or on the default stream beside others, the call waits for work that was submitted
    before; the host submits nothing meanwhile.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: cost: the memsets and their
    calls take no time. saving: the calls wait for nothing. It fires where that gives back anything; the severity
    says whether it matters.

What to do
    cudaMemsetAsync on the stream that needs it; clear inside the kernel that writes the buffer.

When it is wrong
    Of device memory cudaMemset does not wait: then the replay gives back next to nothing.
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
        ("async-memset",),
        lambda seen: f"Synchronous memsets: {text.count(seen.count, 'call')} of {seen.names}{seen.on_host}",
        "the call waits for the device",
    )


def _steps(name: str, call_dur: int) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=680_000)
        rows.append(call(t + 20_000, call_dur, name, correlation=i + 1))
        rows.append(copy(t + 701_000, 5_000, "memset", 4_096, "device", "device", correlation=i + 1))
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each with a cudaMemset that waits for the kernel before it."""
    return _steps("cudaMemset", 690_000)


def quiet() -> Trace:
    """The same steps with cudaMemsetAsync."""
    return _steps("cudaMemsetAsync", 3_000)


RULE = Rule(
    code="PK309",
    title="Synchronous memset",
    unmet=needs_all(needs_copies, needs_gpu_rows, needs_calls, needs_joined_work),
    check=check,
    advice="Clear memory with cudaMemsetAsync on the stream that needs it.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
