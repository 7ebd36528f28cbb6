"""The numbers of ``check`` about steps as plain data, and what has to be said with them. Absent is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.slow_steps import slow_step_lines, slow_steps
from profkit.analysis.spans import gpu_time_by_group
from profkit.analysis.steps import SOURCES
from profkit.analysis.steps_steady import TOLERANCE
from profkit.model import Mask
from profkit.schema import STEP_KINDS

PERCENTS = (50, 90, 99)


def step_rows(analysis: Analysis) -> dict[str, dict[str, Any]]:
    """By kind: how many steps, their periods and host times. Sums of host and GPU are over the same steps."""
    steps = analysis.steps
    gpu_ns = _gpu_ns(analysis)
    out: dict[str, dict[str, Any]] = {}
    for code, kind in enumerate(STEP_KINDS):
        every = steps.lead & (steps.kind == code)
        if not every.any():
            continue
        counted = every & steps.counted
        host = steps.host_ns[counted]
        known = host[host >= 0]
        periods = steps.periods(code)
        tokens = steps.decode_tokens[counted & (steps.decode_tokens >= 0)]
        out[kind] = {
            "count": int(every.sum()),
            "counted": int(counted.sum()),
            "warm_up": int((every & steps.warm_up).sum()),
            "incomplete": int((every & ~steps.complete).sum()),
            **{f"period_p{p}_ns": percentile(periods, p) for p in PERCENTS},
            "period_n": len(periods),
            **{f"host_p{p}_ns": percentile(known, p) for p in PERCENTS},
            "host_sum_ns": int(known.sum()) if len(known) == len(host) and len(host) else None,
            "gpu_sum_ns": int(gpu_ns[counted].sum()) if gpu_ns is not None and counted.any() else None,
            "batch_p50": percentile(tokens, 50),
        }
    return out


def _gpu_ns(analysis: Analysis) -> Any:
    """Busy time of each step's own work, as a union per device; None without GPU rows."""
    if not analysis.has_gpu_rows or not len(analysis.steps):
        return None
    of_work = analysis.steps.of_work
    rows = np.flatnonzero(of_work >= 0)
    return gpu_time_by_group(analysis.work, rows, of_work[rows], len(analysis.steps))


def step_facts(analysis: Analysis) -> dict[str, Any]:
    """Where steps come from, which were left out and why, which took long, and that in words."""
    steps = analysis.steps
    found = bool(len(steps))
    slow = slow_steps(analysis) if found else None
    return {
        "step_source": steps.source or None,
        "step_rank": _lowest_rank(analysis),
        "steps_excluded": _excluded(analysis) if found else None,
        "steady": _steady(analysis),
        "slow_steps": slow,
        "step_remarks": [*_remarks(analysis), *slow_step_lines(slow)] if found else [],
    }


def _lowest_rank(analysis: Analysis) -> int | None:
    """The rank whose steps the numbers are of, where several ranks run the same steps."""
    steps = analysis.steps
    if steps.lead.all():
        return None
    rank = analysis.trace.array("processes", "rank")[np.unique(steps.process[steps.lead])]
    return int(rank[rank >= 0].min())


def _excluded(analysis: Analysis) -> dict[str, int]:
    steps = analysis.steps
    cold: Mask = steps.lead & steps.warm_up
    cut: Mask = steps.lead & ~steps.complete & ~steps.warm_up
    warm, incomplete = int(cold.sum()), int(cut.sum())
    return {
        "of": int(steps.lead.sum()),
        "excluded": warm + incomplete,
        "warm_up": warm,
        "incomplete": incomplete,
    }


def _steady(analysis: Analysis) -> dict[str, Any] | None:
    found = analysis.steady
    if found is None:
        return None
    return {
        "steady": found.window is not None,
        "first_step": found.first if found.window else None,
        "steps": found.steps,
        "of": found.of,
        "median_ns": found.median_ns,
        "start_ns": found.window.start_ns if found.window else None,
        "end_ns": found.window.end_ns if found.window else None,
    }


def _remarks(analysis: Analysis) -> list[str]:
    """One line for each thing to know about these steps."""
    lines = [_source(analysis)]
    left = _excluded(analysis)
    if left["excluded"]:
        why = [word for word, key in (("warm-up", "warm_up"), ("cut off or irregular", "incomplete")) if left[key]]
        each = f": {why[0]}" if len(why) == 1 else f": {left['warm_up']} warm-up, {left['incomplete']} {why[1]}"
        lines.append(f"{left['excluded']} of {text.count(left['of'], 'step')} excluded{each}")
    rank = _lowest_rank(analysis)
    if rank is not None:
        lines.append(f"numbers of steps are of rank {rank}, the lowest; other ranks run the same steps")
    steady = analysis.steady
    if steady is not None and steady.window is None:
        lines.append(
            f"no steady window: the periods of {text.count(steady.of, 'step')} never settle within "
            f"{text.percent(TOLERANCE)} of their median ({text.ns(steady.median_ns)})"
        )
    elif steady is not None and steady.steps < steady.of:
        lines.append(f"steady from step {steady.first} on: {steady.steps} of {text.count(steady.of, 'counted step')}")
    return [line for line in lines if line]


def _source(analysis: Analysis) -> str:
    """How steps were found, where no range says that they are steps."""
    steps = analysis.steps
    if steps.source == "engine_annotations":
        example = analysis.trace.name(int(analysis.trace.array("spans", "name")[steps.span[0]]))
        return f"steps: from the engine's annotations, as {text.clip(example, 60)}"
    if steps.source == "graph_launches":
        return "steps: from CUDA graph launches that repeat; each begins with its first launch"
    if steps.source == "kernel_sequences":
        # Where a part is selected, that part may hold less than three.
        longest = max((one.repeats for one in analysis.kernel_sequences), key=len, default=None)
        what = f" of {longest.length:,} kernels × {len(longest):,}" if longest is not None else ""
        return f"steps: from a sequence{what} that repeats; in a capture of fewer than three steps that may be a layer"
    assert steps.source in SOURCES
    return ""
