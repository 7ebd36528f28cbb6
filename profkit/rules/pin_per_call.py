"""PK307 pinned memory made in steady state.

What it finds
    cudaHostAlloc, cudaMallocHost, cudaHostRegister and their counterparts after the first counted step.

Why it costs time
    Pinning takes the operating system some 0.1 ms a megabyte, and holds the context. A copy from pageable memory is
    faster than pinning for one copy.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: these calls are not made. It
    fires where that gives back anything; the severity says whether it matters.

What to do
    Pin buffers once, before the first step, and reuse them; a caching host allocator (pin_memory() in PyTorch)
    keeps them.

When it is wrong
    The first requests of a server may grow a pool of pinned buffers to its size.
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
        ("preallocated-pinned",),
        lambda seen: (
            f"Pinned memory is made in steady state: {text.count(seen.count, 'call')} of {seen.names}{seen.on_host}"
        ),
        "host memory is pinned for each use",
    )


def fires() -> Trace:
    """Five decode steps that pin a buffer each."""
    return called_in_each_step("cudaHostAlloc")


def quiet() -> Trace:
    """The same steps, with the buffer of the first one."""
    return called_before_the_steps("cudaHostAlloc")


RULE = Rule(
    code="PK307",
    title="Pinned memory made in steady state",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Pin host buffers once, before the first step, and reuse them.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
