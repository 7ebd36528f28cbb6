"""PK103 copies not overlapped.

What it finds
    In traces without steps: copies of more than 64 kB between host and GPU, not of pageable memory, during which the
    GPU runs no kernel although it has kernels before and behind them; together at least 1 % of the window. With
    steps PK305 judges uploads, against the step that waits for them; pageable copies are PK301's and PK302's.

Why it costs time
    A GPU has copy engines beside its multiprocessors: a copy that nothing needs yet can run beside kernels.

How the cost is computed
    cost: the time of these copies in which no kernel of the same GPU runs. saving: the same, at most the kernel time
    that has no copy beside it, since more cannot be hidden: a ceiling. Left out, and named in the facts: copies before
    the GPU has done 1 % of its kernel time (weights, inputs: start-up) and after it has done 99 % (results).

What to do
    Split the work, and copy one part on a second stream while the kernels of another part run (two pinned buffers).

When it is wrong
    Kernels may need the whole copy before they can begin, and a copy the result of the kernel right before it. The
    trace does not say what a kernel reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._find import LARGE_BYTES
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.waits import is_pageable
from profkit.model import Array, Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_copies, needs_gpu_rows
from profkit.rules._copies import D2H, H2D, alone, column, copies_of_kinds, devices_of, kernel_time
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._price import priced
from profkit.testing import build_trace, copy, kernel

SMALLEST_SHARE = 0.01
"""Of the window: below this there is nothing to gain from a second stream."""
EDGE_SHARE = 0.01
"""Of a GPU's kernel time: what is copied before that much was done is start-up, and after all but that much results."""


def check(analysis: Analysis) -> Iterator[Finding]:
    rows = copies_of_kinds(analysis, "h2d", "d2h")
    rows = rows[column(analysis, "bytes", rows) > LARGE_BYTES]
    rows = rows[~is_pageable(analysis.trace, analysis.work.row[rows])]
    window = analysis.window.dur_ns if analysis.window else 0
    for device in devices_of(analysis, rows):
        kernels = kernel_time(analysis, device)
        mine = rows[analysis.work.device[rows] == device]
        done = _done_before(analysis, kernels, mine)
        inside = (done >= EDGE_SHARE) & (done <= 1 - EDGE_SHARE)
        exposed = alone(analysis, mine[inside], kernels)
        if window and int(exposed.sum()) >= SMALLEST_SHARE * window:
            edges = alone(analysis, mine[~inside], kernels)
            yield _finding(analysis, device, kernels, mine[inside], exposed, int(edges.sum()))


def _done_before(analysis: Analysis, kernels: Intervals, rows: Ints) -> Array:
    """Part of the kernel time of a device that lies before each of these copies; -1 where it has none."""
    if not kernels.total:
        return np.full(len(rows), -1.0)
    start = analysis.work.start[rows]
    before = kernels.covered(np.minimum(kernels.start[0], start), start)
    share: Array = before / kernels.total
    return share


def _finding(
    analysis: Analysis, device: int, kernels: Intervals, rows: Ints, exposed: Ints, at_edges_ns: int
) -> Finding:
    work = analysis.work
    copies = union(work.start[rows], work.end[rows])
    kernel_alone = kernels.total - int(copies.covered(kernels.start, kernels.end).sum())
    kind, size = column(analysis, "kind", rows), column(analysis, "bytes", rows)
    total = int(exposed.sum())
    edges = f"; {text.ns(at_edges_ns)} of copies at the start and the end are not counted" if at_edges_ns else ""
    return priced(
        analysis,
        device=device,
        cost=exposed,
        saving=min(total, kernel_alone),
        step=np.full(len(rows), -1, np.int64),
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:copies:",
        message=(
            f"No kernel ran on {analysis.device_name(device)} in {text.ns(total)} of the {text.ns(copies.total)} that "
            f"{text.count(len(rows), 'host copy', 'host copies')} took ({text.size(int(size.sum()))}); its kernels ran "
            f"{text.ns(kernel_alone)} without a copy beside them{edges}"
        ),
        cause="copies and kernels follow each other, on one stream or by synchronisation",
        advice=RULE.advice,
        facts={
            "copies": len(rows),
            "h2d_copies": int((kind == H2D).sum()),
            "d2h_copies": int((kind == D2H).sum()),
            "copied_bytes": int(size.sum()),
            "copy_ns": copies.total,
            "exposed_ns": total,
            "kernel_ns": kernels.total,
            "kernel_without_copy_ns": kernel_alone,
            "start_and_end_copies_ns": at_edges_ns,
        },
        evidence=of_work(analysis, rows[longest_first(exposed)]),
    )


def _judged(analysis: Analysis) -> str:
    if len(analysis.steps):
        return "this trace has steps: PK305 judges the uploads of steps"
    if not (analysis.work.table != 1).any():
        return "no kernels were recorded that a copy could run beside"
    return ""


def _pieces(streams: int) -> Trace:
    """Ten pieces of work of growing length: an upload of 400 us each, then a kernel."""
    rows, t = [], 0
    for i in range(10):
        rows.append(copy(t, 400_000, "h2d", 10_000_000, "pinned", "device", stream=7 + streams - 1))
        t += 400_000
        rows.append(kernel(t if streams == 1 else t - 390_000, 500_000 + i * 10_000, f"piece{i}"))
        t += 500_000 + i * 10_000 if streams == 1 else 150_000
    return build_trace(*rows)


def fires() -> Trace:
    """Ten uploads and ten kernels, one after the other."""
    return _pieces(1)


def quiet() -> Trace:
    """The same uploads, each beside a kernel."""
    return _pieces(2)


RULE = Rule(
    code="PK103",
    title="Copies not overlapped",
    unmet=needs_all(needs_copies, needs_gpu_rows, _judged),
    check=check,
    advice="Copy one part on a second stream, from pinned memory, while the kernels of another part run.",
    fires=fires,
    quiet=quiet,
)
