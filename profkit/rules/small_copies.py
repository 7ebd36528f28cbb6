"""PK306 many small uploads.

What it finds
    Steps with at least four asynchronous uploads of up to 64 kB each. Synchronous ones are PK302.

Why it costs time
    A copy of a few bytes takes as long as one of some kilobytes: 1 to 2 us on the device with the gap around it,
    and a call of some microseconds on the host.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: all small uploads of a step
    are one, which takes as long as one of them. It fires where that gives back anything; the severity says whether
    it matters.

What to do
    Put the inputs of a step (ids, positions, block tables, lengths) next to each other in one pinned buffer, upload
    it once, and slice it on the device.

When it is wrong
    Uploads that other kernels have to come between cannot be one.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_copies, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, call, copy, launch, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("batched-copies",),
        lambda seen: (
            f"Many small uploads: {text.count(seen.count, 'copy', 'copies')} of up to 64 kB{seen.each_step}, "
            f"{text.ns(seen.ns)} on the device"
        ),
        "inputs of a step are uploaded one by one",
    )


def _steps(copies: int) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        for k in range(copies):
            number = 100 * i + k + 1
            rows.append(call(t + 10_000 + 30_000 * k, 5_000, "cudaMemcpyAsync", correlation=number))
            rows.append(copy(t + 18_000 + 30_000 * k, 1_500, "h2d", 64, "pinned", "device", correlation=number))
        rows += launch("gemm", at=t + 20_000 + 30_000 * copies, start=t + 30_000 + 30_000 * copies, dur=600_000)
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each with ten uploads of 64 B."""
    return _steps(10)


def quiet() -> Trace:
    """The same steps with one."""
    return _steps(1)


RULE = Rule(
    code="PK306",
    title="Many small uploads",
    unmet=needs_all(needs_copies, needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Gather the small inputs of a step in one pinned buffer, and upload it with one copy.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
