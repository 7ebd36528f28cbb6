"""PK304 implicit synchronisation.

What it finds
    cudaFree, cuMemFree and their relatives after the first counted step: they wait until the device has nothing to
    do. Whether one waited is measured, never read from its name.

Why it costs time
    The host stops until all streams are empty, and the GPU then waits until the host has submitted work again.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: these calls are not made. It
    fires where that gives back anything; the severity says whether it matters.

What to do
    Return memory to a pool (cudaFreeAsync, a caching allocator), free at the end; torch.cuda.empty_cache() in a
    loop does this to every block.

When it is wrong
    A free that found an idle device waited for nothing: the replay then gives back little but the call.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, call, launch, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("no-implicit-sync",),
        lambda seen: (
            f"Implicit synchronisation in steady state: {text.count(seen.count, 'call')} of {seen.names}{seen.on_host}"
        ),
        "freeing device memory waits for the whole device",
    )


def _steps(name: str) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=700_000)
        rows += [call(t + 30_000, 700_000, name)] if name else []
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each of which frees memory while its kernel runs."""
    return _steps("cudaFree")


def quiet() -> Trace:
    """The same steps without it."""
    return _steps("")


RULE = Rule(
    code="PK304",
    title="Implicit synchronisation",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Give memory back to a pool (cudaFreeAsync, a caching allocator) instead of freeing it in the loop.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
