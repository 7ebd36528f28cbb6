"""PK210 device memory allocated in steady state.

What it finds
    cudaMalloc, cuMemAlloc, cuMemCreate and cuMemMap after the first counted step.

Why it costs time
    An allocation takes the driver 10 us to milliseconds, holds locks that launches need, and is often followed by a
    cudaFree, which waits for the device.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: these calls are not made. It
    fires where that gives back anything; the severity says whether it matters.

What to do
    Reserve memory before the first step (a KV pool, a caching allocator with expandable segments); avoid
    torch.cuda.empty_cache in the loop. Allocation retries mean that the pool is too small or fragmented.

When it is wrong
    The first requests of a server may grow a pool to its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._examples import called_before_the_steps, called_in_each_step
from profkit.rules._price import Priced


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("pooled-allocations",),
        lambda seen: (
            f"Device memory is allocated in steady state (that is no synchronisation): "
            f"{text.count(seen.count, 'call')} of {seen.names}{seen.on_host}"
        ),
        "memory is asked from the driver in the loop",
    )


def fires() -> Trace:
    """Five decode steps that allocate before they launch."""
    return called_in_each_step("cudaMalloc")


def quiet() -> Trace:
    """The same steps, with the memory of the first one."""
    return called_before_the_steps("cudaMalloc")


RULE = Rule(
    code="PK210",
    title="Device memory allocated in steady state",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Reserve device memory before the first step, or use a caching allocator that is warm.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
