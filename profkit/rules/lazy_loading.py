"""PK206 kernels loaded in steady state.

What it finds
    Modules and kernels that are loaded, or compiled by the driver, after the first counted step: by calls of their
    own (cuModuleLoad, cuLibraryLoad), inside the first launch of a kernel (lazy loading), or as overhead rows of
    the driver.

Why it costs time
    The first launch of a kernel that is not on the device yet takes from 0.1 ms to seconds, the whole context
    waits, and a graph cannot be captured meanwhile.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: what of these calls was
    loading takes no time. It fires where that gives back anything; the severity says whether it matters.

What to do
    Run every shape once before the first request; set CUDA_MODULE_LOADING=EAGER where start-up time does not
    matter.

When it is wrong
    A capture that begins with the program shows loading in steps that were not left out as warm-up.
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
        ("preloaded-modules",),
        lambda seen: (
            f"Kernels are loaded in steady state: {text.count(seen.count, 'call')} ({seen.names}){seen.on_host}"
        ),
        "the first launch of a kernel loads it, in the middle of the run",
    )


def fires() -> Trace:
    """Five decode steps that each load a module."""
    return called_in_each_step("cuModuleLoadData")


def quiet() -> Trace:
    """The same steps, loaded before the first one."""
    return called_before_the_steps("cuModuleLoadData")


RULE = Rule(
    code="PK206",
    title="Kernels loaded in steady state",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Load kernels before the first request: warm up every shape, or set CUDA_MODULE_LOADING=EAGER.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
