"""PK602 one rank comes late to collectives.

What it finds
    Collectives of several ranks for which one of them comes last, again and again, by more than 5 us, and is due to
    at least 60 % of what the others wait.

Why it costs time
    The others wait inside their collective kernels: they look busy, and the rank with the shortest collectives is
    the one at fault.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: between two collectives the
    late rank's host or kernels take as long as the median of the others. It fires where that gives back anything;
    the severity says whether it matters.

What to do
    Look at what the late rank does before its collectives: its host (one more thread, another core), its kernels
    (more work: experts, pipeline), its clocks.

When it is wrong
    Clocks of ranks that were not aligned: times of different hosts are not compared then.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.replay.peers import matched_collectives
from profkit.model import Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced
from profkit.testing import Row, build_trace, launch


def check(analysis: Analysis) -> Iterator[Priced]:
    return by_fix(
        analysis,
        RULE,
        ("even-ranks",),
        lambda seen: (
            f"{_who(analysis)} came last to {text.count(seen.count, 'collective')}{_of(analysis)}: each of the "
            f"others waited in its collective kernel{_wait(analysis)}"
        ),
        "what one rank does between two collectives takes longer than on the others",
        everywhere=True,
    )


def _who(analysis: Analysis) -> str:
    found = analysis.found("even-ranks")
    if found is None or not len(found.ops):
        return "One rank"
    work, op = analysis.replayed.model.work, int(found.ops[0])
    device, process = analysis.device_name(int(work.device[op])), int(work.process[op])
    rank = int(analysis.trace.array("processes", "rank")[process]) if process >= 0 else -1
    alone = len(np.unique(work.device[work.process == process])) == 1
    return text.printable(f"rank {rank}" if rank >= 0 and alone else device)


def _of(analysis: Analysis) -> str:
    found = analysis.found("even-ranks")
    return f" of {int(found.facts['collectives']):,}" if found is not None else ""


def _wait(analysis: Analysis) -> str:
    found = analysis.found("even-ranks")
    return f", {text.ns(int(found.facts['late_by_p50_ns']))} for the last one (median)" if found is not None else ""


def _several_ranks(analysis: Analysis) -> str:
    """One device has no one to wait for; collectives that cannot be matched cannot be compared."""
    if len(np.unique(analysis.work.device)) < 2:
        return "only one device has GPU rows"
    if not matched_collectives(analysis.trace, analysis.replayed.model.work):
        return "no collective kernels of several devices could be matched"
    return ""


def _ranks(late: int) -> Trace:
    rows: list[list[Row]] = []
    for i in range(10):
        t = i * 1_000_000
        for rank in (0, 1):
            pid, dur = 100 + rank, 200_000 + (late if rank else 0)
            rows.append(launch("gemm", at=t, start=t + 10_000, dur=dur, pid=pid, tid=pid, device=rank))
            name, begin = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", t + 20_000 + dur
            dur = t + late + 250_000 - begin
            rows.append(launch(name, at=t + 10_000, start=begin, dur=dur, pid=pid, tid=pid, device=rank))
    return build_trace(*rows)


def fires() -> Trace:
    """Two ranks, ten collectives; the kernels of the second one take 300 us longer."""
    return _ranks(300_000)


def quiet() -> Trace:
    """Two ranks that come at the same time."""
    return _ranks(0)


RULE = Rule(
    code="PK602",
    title="One rank comes late to collectives",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, _several_ranks),
    check=check,
    advice="Look at what the late rank does between two collectives: its host thread, its work, its clocks.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Trace all ranks, each with its CUDA calls, into one report or a folder of reports.",
)
