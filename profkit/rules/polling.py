"""PK209 polling for the end of work.

What it finds
    cudaEventQuery or cudaStreamQuery in a loop: several queries in a row, of which the last one finds the work
    done.

Why it costs time
    A loop that sleeps between its queries finds out late, on average half a sleep; one that does not sleep keeps a
    core and the interpreter from other threads.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: cost: the host goes on as
    soon as the work is done. saving: as long after it as a synchronisation of this trace returns, or 5 us. It fires
    where that gives back anything; the severity says whether it matters.

What to do
    Wait with cudaEventSynchronize (blocking sync where the core is wanted elsewhere), or look at the result when
    the next step needs it.

When it is wrong
    An event loop that has other work between its queries loses nothing by asking.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, call, launch, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("no-polling",),
        lambda seen: (
            f"The host asks again and again whether work is done: {text.count(seen.count, 'wait')} by polling "
            f"({seen.names}){seen.each_step}"
        ),
        "the end of the work is noticed at the next query only",
    )


def _steps(late: int) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=700_000)
        rows += [call(t + 20_000 + k * 100_000, 1_000, "cudaEventQuery") for k in range(7)]
        rows.append(call(t + 720_000 + late, 1_000, "cudaEventQuery"))
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each of which polls every 100 us until its kernel is done."""
    return _steps(40_000)


def quiet() -> Trace:
    """The same steps, whose last query comes right behind the kernel."""
    return _steps(1_000)


RULE = Rule(
    code="PK209",
    title="Polling for the end of work",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work),
    check=check,
    advice="Wait by cudaEventSynchronize in place of the loop of queries.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
