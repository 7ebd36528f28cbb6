"""PK101 GPU idle gaps.

What it finds
    Gaps of at least 20 us in which a GPU did nothing although work was on its way, and what the host thread that
    ended the gap did meanwhile: its own code, a CPU stage, a synchronisation, an allocation, a wait in the
    operating system. Gaps that only launches pace are PK201's. It is about what is left: where the fixes of other
    findings take most of this time away, it is folded into them.

Why it costs time
    A GPU that waits for its host produces nothing. In a decode loop such a gap comes back with every token.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies in which the host's own work
    of these gaps (Python, CPU stages, waits in the operating system, off the CPU) takes no time, on top of the
    fixes of all other findings that matter: a ceiling, since that work can overlap with the GPU's if it is moved
    off the path between two steps. Synchronisations, launches and allocations have rules of their own. Where no
    call is joined to its work, the same part of the gaps as measured. Where more than half of the time has no
    recorded cause there is no price. Time before the first and after the last GPU row is not a gap.

What to do
    Look at the largest cause. Prepare the next step while the GPU works on this one (asynchronous scheduling), move
    sampling to the GPU, tokenize and detokenize on another thread, keep the garbage collector out of the loop.

When it is wrong
    If requests did not arrive, the engine had nothing to do: then a gap is load, not a fault. If another process
    feeds the GPU, its work is in this trace only if that process was traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes.overlapped_host_work import SHORTEST_GAP_NS, long_gaps
from profkit.analysis.idle_pieces import HOST_CAUSES
from profkit.analysis.ranges import idle_by_range
from profkit.model import Finding, Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_gpu_rows, needs_joined_work
from profkit.rules._price import Priced, priced, priced_by_replay
from profkit.schema import STAGES
from profkit.testing import build_trace, launch, span

SMALLEST_SHARE = 0.01
"""Below this share of the window there is nothing to report."""

SMALLEST_RANGE_SHARE = 0.10
"""Of the idle time of the gaps, for a range to be named."""

UNEXPLAINED_ADVICE = (
    "Record CUDA calls and GPU work of all processes, from before the work begins, graphs at node level "
    "(nsys --trace=cuda,nvtx,osrt --cuda-graph-trace=node)."
)

WORDS = {
    "python": "host code", "os_wait": "an OS wait", "launch_call": "launch calls", "copy_call": "copy calls",
    "sync": "a synchronisation", "allocator": "the allocator", "module_load": "module loading",
    "launch_latency": "done (launch latency)", "unknown": "not recorded", "stage_schedule": "schedule",
    "stage_tokenize": "tokenize", "stage_sample": "sample", "stage_detokenize": "detokenize",
    "off_cpu": "nothing (it was off its CPU)", "gil": "a wait for the GIL", "profiler": "the profiler",
    "event_wait": "done (an event of another stream)", "graph_startup": "done (graph start-up)",
    "not_collected": "not collected",
}  # fmt: skip


def check(analysis: Analysis) -> Iterator[Finding | Priced]:
    idle = analysis.idle
    candidates = long_gaps(analysis)
    window = analysis.window or Window(0, 0)
    for device in np.unique(idle.device).tolist():
        rows = np.flatnonzero(candidates & (idle.device == device))
        cost = int(idle.length[rows].sum())
        if window.dur_ns and cost >= SMALLEST_SHARE * window.dur_ns:
            yield _finding(analysis, int(device), rows, cost, window)


def _finding(analysis: Analysis, device: int, rows: Ints, cost: int, window: Window) -> Finding | Priced:
    idle, mine = analysis.idle, analysis.idle.where(rows)
    causes = mine.by_cause()
    ranked = sorted(((value, cause) for cause, value in causes.items() if value), reverse=True)
    explained = 2 * causes["unknown"] <= cost
    longest = rows[np.argsort(-idle.length[rows], kind="stable")]
    first = longest[0]
    ends_at = idle.ends_at[longest]
    kernels = ends_at[analysis.work.table[ends_at] == 0]
    said: dict[str, Any] = {
        "code": RULE.code,
        "title": RULE.title,
        "key": f"{RULE.code}:{device}:gaps:",
        "message": (
            f"{analysis.device_name(device)} did nothing for {text.ns(cost)} ({text.percent(cost / window.dur_ns)} of "
            f"{text.ns(window.dur_ns)}) in {text.count(len(rows), 'gap')} of {text.ns(SHORTEST_GAP_NS)} or more"
            f"{_of_all(analysis, device, cost)}; " + _meanwhile(analysis, rows, causes, ranked, explained)
        ),
        "cause": (
            f"the host had not yet submitted the next work; mostly it was in: {WORDS[_known(ranked)]}"
            f"{_mostly_in(analysis, rows, cost)}"
            if explained
            else "not in this capture: calls were not recorded, or the GPU was held by work that was not"
        ),
        "advice": RULE.advice if explained else UNEXPLAINED_ADVICE,
        "facts": {
            "gaps": len(rows),
            "idle_ns": cost,
            "longest_ns": int(idle.length[first]),
            "window_ns": window.dur_ns,
            **{f"{cause}_ns": value for value, cause in ranked},
        },
        "evidence": (
            evidence(
                "kernels",
                analysis.work.row[kernels],
                tracks=tuple(np.unique(analysis.work.track[kernels[:100]]).tolist()),
                window=Window(int(idle.start[first]), int(idle.end[first])),
            ),
        )
        if len(kernels)
        else (),
    }
    if explained and not needs_joined_work(analysis):
        found = analysis.found("overlapped-host-work")
        fixes = ("overlapped-host-work",)
        measured = 0 if found is None and analysis.replayed.trust.holds else cost  # none of it is the host's own work
        return priced_by_replay(analysis, found, measured=measured, most=cost, device=device, fixes=fixes, **said)
    step = analysis.steps.of_work[idle.ends_at[rows]]
    saving = mine.part(*HOST_CAUSES) if explained else -1
    return priced(analysis, device=device, cost=idle.length[rows], saving=saving, step=step, **said)


def _meanwhile(
    analysis: Analysis, rows: Ints, causes: dict[str, int], ranked: list[tuple[int, str]], explained: bool
) -> str:
    """What the host did in these gaps, and in which of the program's own ranges, as far as it was recorded."""
    if not explained:
        return f"this capture does not show why ({text.ns(causes['unknown'])} of it have no recorded cause)"
    during = ", ".join(f"{WORDS[cause]} {text.ns(value)}" for value, cause in ranked[:3])
    inside = [
        f"{text.clip(name, 60)} {text.ns(value)}"
        for name, value in idle_by_range(analysis, rows)
        if name not in STAGES and "ProfilerStep#" not in name and value >= SMALLEST_RANGE_SHARE * sum(causes.values())
    ]
    return f"meanwhile the host was in: {during}" + (f"; in range {', '.join(inside[:2])}" if inside else "")


def _known(ranked: list[tuple[int, str]]) -> str:
    """The cause that takes most, of those that were recorded."""
    return next((cause for _, cause in ranked if cause != "unknown"), ranked[0][1])


def _of_all(analysis: Analysis, device: int, cost: int) -> str:
    """``, beside 380 ms of shorter gaps and of waiting for launches`` where there is more idle time."""
    idle = analysis.idle
    more = int(idle.length[idle.device == device].sum()) - cost
    return f", beside {text.ns(more)} of shorter gaps and of waiting for launches" if 20 * more > cost else ""


def _mostly_in(analysis: Analysis, rows: Ints, total: int) -> str:
    """The range that holds more than half of these gaps, where there is one that is no step: ``, in load_batch``."""
    for name, value in idle_by_range(analysis, rows)[:1]:
        if 2 * value > total and "ProfilerStep#" not in name and name not in STAGES:
            return f", in {text.clip(name, 60)}"
    return ""


def fires() -> Trace:
    """Ten kernels of 1 ms, 0.5 ms of sampling on the host between them."""
    rows = []
    for i in range(10):
        t = i * 1_500_000
        rows += launch("gemm", at=t, start=t + 10_000, dur=1_000_000, call_dur=5_000)
        rows.append(span("sample", t + 1_010_000, 480_000))
    return build_trace(*rows)


def quiet() -> Trace:
    """The same kernels back to back."""
    return build_trace(*(launch("gemm", at=i * 10_000, start=10_000 + i * 1_000_000, dur=1_000_000) for i in range(10)))


RULE = Rule(
    code="PK101",
    title="GPU idle gaps",
    unmet=needs_gpu_rows,
    check=check,
    advice="Take the host work named here off the path between two steps: overlap it or use another thread.",
    fires=fires,
    quiet=quiet,
    record="Trace GPU work: nsys --trace=cuda,nvtx,osrt.",
    is_rest=True,
)
