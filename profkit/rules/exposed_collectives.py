"""PK601 exposed collectives.

What it finds
    Time in which kernels of collectives (NCCL, RCCL, custom all-reduces) ran on a GPU and no other kernel of that
    GPU did, where it is at least 2 % of the window. Where the collectives of several ranks could be matched, the
    part in which a kernel only waited for the last rank to come is told apart: that is no transfer, and what to do
    about it is another matter (PK602, PK603).

Why it costs time
    The SMs compute nothing meanwhile. What a collective hides behind independent kernels is free.

How the cost is computed
    cost: the union of the collective kernels of the device, less what other kernels of it cover, less the waits.
    There is no saving: what could run meanwhile is known to the program only. All of the cost is the ceiling. A
    warning where what is no known wait is 25 % of the window or more, which is more than tensor
    parallelism over NVLink takes as a rule; else a note.

What to do
    Decode with tensor parallelism: fewer GPUs a model, a one-shot all-reduce, an all-reduce fused with the norm
    behind it. Prefill: two half batches, one computes while the other one communicates. Training: gradient buckets
    that are sent during the backward pass.

When it is wrong
    Of a trace of one rank nobody knows what was wait and what transfer: the message says so. Kernels that fuse a
    collective with other work count as communication by their name. Copies beside a collective are no compute.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.work import COPIES
from profkit.arrays import distinct
from profkit.model import Finding, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows
from profkit.rules._communication import communication, not_told_apart, waits_of
from profkit.rules._evidence import longest_first, of_work
from profkit.testing import build_trace, collective, kernel

SMALLEST_SHARE = 0.02
"""Of the window: less is no matter."""
WARNING_SHARE = 0.25
"""Of the window: tensor parallelism over NVLink takes a tenth of a decode step or two."""


def check(analysis: Analysis) -> Iterator[Finding]:
    mine = communication(analysis)
    waits = waits_of(analysis)
    window = analysis.window.dur_ns if analysis.window else 0
    for device in distinct(analysis.work.device[mine]).tolist():
        finding = _on_device(analysis, device, mine, waits.get(device), window)
        if finding is not None:
            yield finding


def _on_device(analysis: Analysis, device: int, mine: Mask, waits: Intervals | None, window: int) -> Finding | None:
    work = analysis.work
    here = work.device == device
    some, others = here & mine, here & ~mine & (work.table != COPIES)
    rows = np.flatnonzero(some)
    busy = union(work.start[rows], work.end[rows])
    rest = union(work.start[others], work.end[others])
    exposed = _uncovered(busy, rest)
    waited = min(_uncovered(waits, rest), exposed) if waits is not None else 0
    transfer = exposed - waited
    if not window or not len(rest) or exposed < SMALLEST_SHARE * window:
        return None
    serious = transfer >= WARNING_SHARE * window
    told = (
        f"{text.ns(waited) if waited else 'nothing'} of it waited for the last rank, {text.ns(transfer)} was transfer"
        if waits is not None
        else "waits for other ranks are part of it, since their collectives could not be matched"
    )
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:communication:",
        severity="warning" if serious else "info",
        message=(
            f"Communication is exposed on {text.printable(text.clip(analysis.device_name(device), 80))}: for "
            f"{text.ns(exposed)} ({text.percent(exposed / window)} of {text.ns(window)}) "
            f"{text.count(len(rows), 'collective kernel')} ran and no other kernel of this GPU; {told}; "
            f"of {text.ns(busy.total)} communication {text.percent(1 - exposed / busy.total)} ran beside other kernels"
        ),
        cause="kernels of collectives run while no other kernel of the GPU does",
        advice=RULE.advice,
        cost_ns=transfer,
        facts={
            "collective_kernels": len(rows),
            "communication_ns": busy.total,
            "exposed_ns": exposed,
            "exposed_wait_ns": waited if waits is not None else -1,
            "exposed_transfer_ns": transfer if waits is not None else -1,
            "overlap_share": round(1 - exposed / busy.total, 4),
            "window_ns": window,
        },
        evidence=of_work(analysis, rows[longest_first(work.end[rows] - work.start[rows])]),
    )


def _uncovered(some: Intervals, rest: Intervals) -> int:
    return some.total - int(rest.covered(some.start, some.end).sum())


def _communicates(analysis: Analysis) -> str:
    """Overlap is not defined without collectives, nor without kernels that could run beside them."""
    mine = communication(analysis)
    if not mine.any():
        return "no collective kernels in this trace"
    work = analysis.work
    computes = np.isin(distinct(work.device[mine]), distinct(work.device[~mine & (work.table != COPIES)]))
    return "" if computes.any() else "no kernels but those of collectives were recorded"


def fires() -> Trace:
    """Ten all-reduces of 300 us, each behind a kernel and before the next one."""
    rows = []
    for i in range(10):
        rows += [kernel(i * 1_000_000, 600_000), *collective(i * 1_000_000 + 600_000, 300_000)]
    return build_trace(*rows)


def quiet() -> Trace:
    """The same all-reduces beside kernels of another stream."""
    rows = []
    for i in range(10):
        rows += [kernel(i * 1_000_000, 950_000), *collective(i * 1_000_000 + 600_000, 300_000)]
    return build_trace(*rows)


RULE = Rule(
    code="PK601",
    title="Exposed collectives",
    unmet=needs_all(needs_gpu_rows, _communicates, not_told_apart),
    check=check,
    advice="Run collectives beside independent kernels (two half batches), or make them shorter (one-shot, fused).",
    fires=fires,
    quiet=quiet,
    is_shown=True,
    record="Trace all ranks, with the kernels of graphs: nsys --trace=cuda,nvtx --cuda-graph-trace=node.",
)
