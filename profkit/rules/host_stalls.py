"""PK212 launching thread stalls now and then.

What it finds
    Pauses of the launching thread's own code: more than 0.2 ms and more than ten times what stands between the same
    two calls elsewhere, at no more than a third of these places, and not recorded as anything else (a CPU stage,
    off the CPU, a lock, the profiler). The garbage collector, page faults, other programs on the core.

Why it costs time
    A pause of some milliseconds empties the queue of the GPU. It hits single steps, so that a median hides it and a
    p99 shows it.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: the host's work at these
    places takes what it usually takes there. It fires where that gives back anything; the severity says whether it
    matters.

What to do
    gc.freeze() after start-up and gc.disable() or a higher threshold in the loop; no logging, no allocation of many
    objects, huge pages and pinned threads; look at what Python did there with --python-sampling.

When it is wrong
    Work that is due now and then (a scheduler pass, a log line, a checkpoint) looks the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.ranges import range_of_most
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work, needs_many_steps, needs_steps
from profkit.rules._by_fix import Seen, by_fix
from profkit.rules._price import Priced
from profkit.testing import Row, build_trace, launch, span

_FEWEST_STEPS = 5


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("no-stalls",),
        lambda seen: (
            f"The launching thread stalls now and then: {text.count(seen.count, 'pause')} of {text.ns(seen.ns)} in all "
            f"beyond what is usual at the same place, the longest {text.ns(seen.longest_ns)}{_steps(seen)}"
            f"{_ranges(analysis)}"
        ),
        "the host's own code pauses where it usually does not: the garbage collector, a page fault, another program",
    )


def _steps(seen: Seen) -> str:
    part = f" that were replayed ({seen.where})" if seen.where else ""
    return f", in {seen.steps:,} of {text.count(seen.of_steps, 'step')}{part}" if seen.steps and seen.of_steps else ""


def _ranges(analysis: Analysis) -> str:
    """The range of the program's own that most of the pauses lie in, where there is one: a gc range, a logger's."""
    found = analysis.found("no-stalls")
    if found is None or found.host_ns is None:
        return ""
    calls = analysis.replayed.model.calls
    end = calls.start[found.calls]
    name = range_of_most(analysis, calls.track[found.calls], end - found.host_ns, end)
    return f"; in range {text.clip(name, 60)}" if name else ""


def _several(analysis: Analysis) -> str:
    return needs_many_steps(int(analysis.steps.counted.sum()), _FEWEST_STEPS)


def _with_pauses(pause: int) -> Trace:
    rows: list[Row | list[Row]] = []
    t = 0
    for i in range(10):
        begin = t
        t += 20_000 + (pause if i in (4, 7) else 0)
        rows.append(launch("gemm", at=t, start=t + 10_000, dur=100_000))
        t += 100_000
        rows.append(span("decode", begin, t - begin, payload=1))
    return build_trace(*rows)


def fires() -> Trace:
    """Ten decode steps, two of which pause for 3 ms before their launch."""
    return _with_pauses(3_000_000)


def quiet() -> Trace:
    """Ten decode steps that all take the same."""
    return _with_pauses(0)


RULE = Rule(
    code="PK212",
    title="Launching thread stalls now and then",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, needs_steps, _several),
    check=check,
    advice="Keep what pauses the launching thread out of the loop, first of all the garbage collector (gc.freeze).",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace CUDA calls together with GPU work, and put ranges around the steps.",
)
