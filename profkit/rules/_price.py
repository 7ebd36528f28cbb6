"""From a cost and a saving to a Finding: per step, as a share, with a severity."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from profkit.analysis.context import Analysis
from profkit.model import Finding

WARNING_SHARE = 0.02
CRITICAL_SHARE = 0.10


@cache
def constants() -> dict[str, Any]:
    """Published figures that prices use, each with its source; see constants.toml."""
    return tomllib.loads(files("profkit.rules").joinpath("constants.toml").read_text("utf-8"))


def priced(analysis: Analysis, *, cost_ns: int, saving_ns: int, **rest: Any) -> Finding:
    """A Finding with its prices: per counted step against the median period; without steps against the window."""
    steps, period = analysis.step_count, analysis.steps.median_period()
    if steps and period:
        kind = ("prefill", "decode", "mixed", "profiler")[analysis.steps.main_kind() or 0]
        cost, saving = _per(cost_ns, steps), _per(saving_ns, steps)
        share: float | None = saving / period
        share_of = f"the median {kind} step ({steps} steps)"
    else:
        window = analysis.window.dur_ns if analysis.window else 0
        cost = saving = -1
        share, share_of = (saving_ns / window if window else None), "the window"
    return Finding(
        **rest,
        cost_ns=cost_ns,
        saving_ns=saving_ns,
        cost_ns_per_step=cost,
        saving_ns_per_step=saving,
        share=share,
        share_of=share_of,
        severity=severity(share),
    )


def severity(share: float | None) -> str:
    """warning from 2 % of a step (without steps, of the window), critical from 10 %."""
    if share is None or share < WARNING_SHARE:
        return "info"
    return "critical" if share >= CRITICAL_SHARE else "warning"


def _per(value: int, steps: int) -> int:
    return (2 * value + steps) // (2 * steps)
