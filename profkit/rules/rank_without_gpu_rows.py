"""PK505 rank without GPU rows.

What it finds
    Ranks of a job in this capture that have no GPU row and made no launch call, while other ranks have GPU rows.
    Ranks that launched work of which no row was recorded are PK502.

Why it costs time
    It costs no run time. What is said of the job is said of the other ranks only: a slow rank without rows is not
    seen, and nor is what they wait for.

How the cost is computed
    No price.

What to do
    Start the profiler in each rank, with CUDA activities: ProfilerActivity.CUDA in torch.profiler, one nsys around
    the launcher or one in each rank; workers that are forked need spawn, or --trace-fork-before-exec=true.

When it is wrong
    A job may have ranks that use no GPU on purpose: a scheduler, a data loader, a CPU rank of MPI.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.analysis.context import Analysis
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_owned_work
from profkit.testing import build_trace, launch, span

_MOST_NAMED = 8


def check(analysis: Analysis) -> Iterator[Finding]:
    rank, has_rows, launched = _ranks(analysis)
    silent = rank[~has_rows & ~launched]
    if not len(silent):
        return
    named = ", ".join(map(str, silent[:_MOST_NAMED].tolist())) + (", ..." if len(silent) > _MOST_NAMED else "")
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:ranks:",
        severity="warning",
        message=(
            f"{len(silent):,} of {len(rank):,} ranks in this capture have neither GPU rows nor launch calls "
            f"(rank {named}): GPU numbers are those of the other {int(has_rows.sum()):,}"
        ),
        cause="the profiler did not record CUDA in these ranks, or they use no GPU",
        advice=RULE.advice,
        facts={"ranks": len(rank), "ranks_with_gpu_rows": int(has_rows.sum()), "ranks_without": len(silent)},
    )


def _ranks(analysis: Analysis) -> tuple[Ints, Mask, Mask]:
    """(ranks, whether any process of each has GPU rows, whether any made a launch), whatever is selected."""
    trace = analysis.trace
    of_process = trace.array("processes", "rank").astype(np.int64)
    recorded = np.asarray(trace.tables["processes"].column("gpu_rows").to_pylist(), bool)
    process = trace.array("calls", "process")[analysis.launch_calls]
    launching = np.zeros(len(of_process), bool)
    launching[np.unique(process[process >= 0])] = True
    ranks = np.unique(of_process[of_process >= 0])
    return ranks, np.isin(ranks, of_process[recorded]), np.isin(ranks, of_process[launching])


def _several(analysis: Analysis) -> str:
    ranks = np.unique(analysis.trace.array("processes", "rank"))
    return "" if (ranks >= 0).sum() > 1 else "the capture does not say of several ranks"


def _trace(all_of_them: bool) -> Trace:
    rows = [launch("gemm", at=i * 100, start=i * 100 + 60, dur=30, call_dur=20, pid=1, tid=1) for i in range(5)]
    if all_of_them:
        rows += [launch("gemm", at=i * 100, start=i * 100 + 60, dur=30, call_dur=20, pid=2, tid=2) for i in range(5)]
    return build_trace(*rows, span("decode", 0, 500, pid=2, tid=2), ranks={1: 0, 2: 1})


def fires() -> Trace:
    """Two ranks, of which the second has a range and nothing of CUDA."""
    return _trace(all_of_them=False)


def quiet() -> Trace:
    """Two ranks with kernels."""
    return _trace(all_of_them=True)


RULE = Rule(
    code="PK505",
    title="Rank without GPU rows",
    unmet=needs_all(needs_gpu_rows, needs_owned_work, _several),
    check=check,
    advice=(
        "Start the profiler in every rank, with CUDA activities; start workers with spawn, or record with "
        "--trace-fork-before-exec=true."
    ),
    fires=fires,
    quiet=quiet,
    record="Open the folder that holds the traces of all ranks, or record all ranks with one nsys.",
)
