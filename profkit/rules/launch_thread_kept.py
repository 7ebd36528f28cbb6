"""PK211 launching thread kept from running.

What it finds
    Time in which the thread that launches could have launched but did not run: off its CPU by the scheduler's
    records, waiting for the interpreter's lock (GIL) by the profiler's GIL trace, or in a call of the operating
    system (lock, sleep, poll).

Why it costs time
    Launching takes the CPU. A thread that waits for a core or for a lock leaves the GPU without work as soon as its
    queue is empty.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: the recorded waits before
    the calls of the launching thread take no time. It fires where that gives back anything; the severity says
    whether it matters.

What to do
    Off the CPU: pin the launching thread, leave it a core of its own, look at what else runs there. GIL: move
    Python work (tokenization, logging, HTTP) to other processes. Locks and sleeps: take them out of the loop.

When it is wrong
    A server that has no request waits in the operating system on purpose: that is load, not a fault; steps that
    follow each other do not show it.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes.no_interruptions import CAUSES
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import build_trace, launch, os_call, span


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("no-interruptions",),
        lambda seen: (
            f"The launching thread could not run for {seen.time}: {text.count(seen.count, 'interruption')}"
            f"{seen.each_step}, the longest {text.ns(seen.longest_ns)}; {_by_cause(analysis)}"
        ),
        "the launching thread waited for a core, for the interpreter's lock or in the operating system",
    )


def _by_cause(analysis: Analysis) -> str:
    """What the GPU's idle time meanwhile was due to, by kind."""
    idle = analysis.idle.by_cause()
    words = [f"{WORDS[cause]} {text.ns(idle[cause])}" for cause in CAUSES if idle[cause]]
    return f"GPU idle meanwhile: {', '.join(words)}" if words else "the GPU had work meanwhile"


def _recorded(analysis: Analysis) -> str:
    """Without a record of the threads' states nothing can be said."""
    if any(analysis.trace.rows(table) for table in ("sched", "os_calls")) or (analysis.idle.by_cause()["gil"]):
        return ""
    return "neither scheduling nor operating system calls nor waits for the GIL were recorded"


WORDS = {"off_cpu": "off the CPU", "gil": "waiting for the GIL", "os_wait": "in the operating system"}


def fires() -> Trace:
    """Five decode steps, in each of which the launching thread sleeps before it launches."""
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(os_call(t + 10_000, 300_000, "clock_nanosleep"))
        rows += launch("gemm", at=t + 320_000, start=t + 330_000, dur=600_000)
    return build_trace(*rows)


def quiet() -> Trace:
    """The same steps; another thread sleeps."""
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(os_call(t + 10_000, 300_000, "clock_nanosleep", tid=200))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=900_000)
    return build_trace(*rows)


RULE = Rule(
    code="PK211",
    title="Launching thread kept from running",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps, _recorded),
    check=check,
    advice="Give the launching thread a core of its own; take locks, sleeps and other Python threads out of its way.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace the operating system and the GIL: nsys --trace=cuda,nvtx,osrt,python-gil --cpuctxsw=process-tree.",
)
