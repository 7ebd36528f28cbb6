"""Steps that took much longer than the others of their kind, and what filled them."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.work import KERNELS

TIMES = 3
"""Times the median period: what a person calls a spike."""
FEWEST = 20
"""Steps that a median is trusted from here."""
MOST = 10


def slow_steps(analysis: Analysis) -> dict[str, Any] | None:
    """Counted steps of the main kind with a period of TIMES the median or more, in order; None with too few steps.

    Each with the kernel that most of its GPU time went to; only the MOST longest are listed.
    """
    counted, steps = analysis.counted_steps(), analysis.steps
    if counted.count < FEWEST:
        return None
    slow = np.flatnonzero(counted.mask & (steps.period >= TIMES * counted.median_ns))
    listed = np.sort(slow[np.argsort(-steps.period[slow], kind="stable")[:MOST]])
    return {
        "kind": counted.kind,
        "count": len(slow),
        "of": counted.count,
        "times_median": TIMES,
        "median_ns": counted.median_ns,
        "listed": [_step(analysis, int(row)) for row in listed],
    }


def _step(analysis: Analysis, row: int) -> dict[str, Any]:
    steps, work, trace = analysis.steps, analysis.work, analysis.trace
    mine = np.flatnonzero((steps.of_work == row) & (work.table == KERNELS))
    name = trace.array("kernels", "name")[work.row[mine]] if len(mine) else mine
    names, group = np.unique(name, return_inverse=True)
    total = np.zeros(len(names), np.int64)
    np.add.at(total, group, work.end[mine] - work.start[mine])
    most = int(np.argmax(total)) if len(names) else -1
    short = trace.name(int(names[most]), "short") if most >= 0 else ""
    return {
        "index": int(steps.index[row]),
        "start_ns": int(steps.gpu_end[row] - steps.period[row]),
        "period_ns": int(steps.period[row]),
        "kernel": short or None,
        "kernel_ns": int(total[most]) if short else None,
    }


def slow_step_lines(found: dict[str, Any] | None) -> list[str]:
    """The same for a person: how many, and a line each."""
    if found is None or not found["count"]:
        return []
    some = f"; the longest {MOST}" if found["count"] > MOST else ""
    times = f"{found['times_median']} times the median ({text.ns(found['median_ns'])}) or more"
    return [
        f"{found['count']:,} of {text.count(found['of'], found['kind'] + ' step')} took {times}{some}:",
        *(_line(step) for step in found["listed"]),
    ]


def _line(step: dict[str, Any]) -> str:
    filled = ""
    if step["kernel"] is not None:
        filled = f", {text.ns(step['kernel_ns'])} of it in {text.clip(step['kernel'], 80)}"
    return f"step {step['index']:,} at {text.moment(step['start_ns'])}: {text.ns(step['period_ns'])}{filled}"
