"""PK204 eager steps among graph replays.

What it finds
    Steps that launch kernel by kernel while at least half of the steps replay a CUDA graph: their batch size (or
    shape) has no graph. Launches while a graph is captured are not meant.

Why it costs time
    A miss takes the launch time of all of its kernels, several times what a replay takes, and the other requests of
    the batch wait with it.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: each run of at least 16
    launches of these steps is one graph launch, as long on the host as the trace's own, with the gaps that nodes
    have. It fires where that gives back anything; the severity says whether it matters.

What to do
    Capture graphs for the batch sizes that the message names, or pad these batches to the next size that has one.

When it is wrong
    Prefills are eager on purpose in most engines. A step that has to stay eager (a shape that is never seen again)
    gains nothing from a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._find import step_of_calls
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, launch, span

_MOST_SIZES = 6


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("replay-every-step",),
        lambda seen: (
            f"{text.count(seen.steps, 'step')} of {seen.of_steps:,} launch kernel by kernel, others replay a graph: "
            f"{text.count(seen.count, 'launch', 'launches')}, {seen.time} of the host's time{_batches(analysis)}"
        ),
        "no graph was captured for the shape of these steps",
    )


def _batches(analysis: Analysis) -> str:
    """Which batch sizes missed, as far as the steps say: ``; batch sizes 3 (12 steps), 5 (4 steps)``."""
    found = analysis.found("replay-every-step")
    step = step_of_calls(analysis, analysis.replayed.model)[found.calls] if found is not None else np.zeros(0, np.int64)
    batch = analysis.steps.batch[np.unique(step[step >= 0])]
    size, count = np.unique(batch[batch >= 0], return_counts=True)
    most = np.argsort(-count, kind="stable")[:_MOST_SIZES]
    words = ", ".join(f"{int(size[i]):,} ({text.count(int(count[i]), 'step')})" for i in np.sort(most))
    return f"; batch sizes {words}" if words else ""


def _steps(is_eager: Callable[[int], bool]) -> Trace:
    rows, t = [], 0
    for step in range(8):
        begin = t
        if is_eager(step):
            for i in range(20):
                rows += launch(f"k{i}", at=t, start=t + 8_000, dur=4_000, call_dur=6_000)
                t += 20_000
        else:
            rows += launch("graph", at=t, start=t + 8_000, dur=90_000, call_dur=6_000, api="cudaGraphLaunch")
            t += 100_000
        rows.append(span("decode", begin, t - begin, payload=3 if is_eager(step) else 4))
    return build_trace(*rows)


def fires() -> Trace:
    """Eight decode steps: six replay a graph, two launch twenty kernels one by one."""
    return _steps(lambda step: step in (3, 6))


def quiet() -> Trace:
    """Eight decode steps that replay a graph."""
    return _steps(lambda step: False)


RULE = Rule(
    code="PK204",
    title="Eager steps among graph replays",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps),
    check=check,
    advice="Capture graphs for these batch sizes too, or pad the batch to the next size that has one.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda,nvtx,osrt), and put ranges around the steps.",
)
