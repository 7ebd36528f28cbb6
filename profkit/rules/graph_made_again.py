"""PK203 graph captured or instantiated again.

What it finds
    CUDA graphs that are captured, instantiated, updated or destroyed in steady state: after the first counted step,
    or, without steps, after the first replay.

Why it costs time
    A capture runs the step's host code once more without running a kernel, and an instantiation takes some
    microseconds a node. In the loop that is paid with every token, and the GPU waits meanwhile.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: all of these calls, and what
    is captured between the begin and the end of a capture, are not made. It fires where that gives back anything;
    the severity says whether it matters.

What to do
    Capture and instantiate each graph once, before the first step; keep one for each batch size (or bucket of
    them); update parameters of nodes in place instead of making the graph again.

When it is wrong
    A server that meets a new shape has to make its graph once: a few of these calls early in a capture are warm-up
    that went on for longer than the steps that were left out as such.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._examples import GRAPH_LAUNCH, called_before_the_steps, called_in_each_step
from profkit.rules._price import Priced


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("reuse-graphs",),
        lambda seen: (
            f"Graphs are captured or instantiated in steady state: {text.count(seen.count, 'call')} ({seen.names})"
            f"{seen.on_host}"
        ),
        "the loop makes graphs that it could keep",
    )


def fires() -> Trace:
    """Five decode steps, each of which instantiates the graph that it launches."""
    return called_in_each_step("cudaGraphInstantiate", api=GRAPH_LAUNCH)


def quiet() -> Trace:
    """The same steps, with the graph that was made before the first one."""
    return called_before_the_steps("cudaGraphInstantiate", instead="cudaStreamIsCapturing", api=GRAPH_LAUNCH)


RULE = Rule(
    code="PK203",
    title="Graph captured or instantiated again",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work),
    check=check,
    advice="Make each graph once, before the first step, one for each batch size; update it in place.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
