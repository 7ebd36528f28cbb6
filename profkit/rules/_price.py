"""From a cost and a saving to a Finding: per step, as a share, with a severity."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Finding
from profkit.schema import STEP_KINDS

WARNING_SHARE = 0.02
CRITICAL_SHARE = 0.10


@cache
def constants() -> dict[str, Any]:
    """Published figures that prices use, each with its source; see constants.toml."""
    return tomllib.loads(files("profkit.rules").joinpath("constants.toml").read_text("utf-8"))


def priced(analysis: Analysis, *, cost_ns: int, saving_ns: int, device: int | None = None, **rest: Any) -> Finding:
    """A Finding with its prices: per counted step against the median period; without steps against the window.

    What is lost on one ``device`` is divided by the steps of the processes that work on it. A saving of -1 is not
    known: it has no share, and is a warning if the cost is 10 % of the window.
    """
    if saving_ns < 0:
        large = analysis.window is not None and cost_ns >= CRITICAL_SHARE * analysis.window.dur_ns
        return Finding(**rest, cost_ns=cost_ns, severity="warning" if large else "info")
    of_steps = analysis.steps if device is None else analysis.steps_of_device(device)
    kind_code, period = of_steps.main_kind(), of_steps.median_period()
    steps = int((of_steps.counted & (of_steps.kind == kind_code)).sum()) if kind_code is not None else 0
    if steps and period and kind_code is not None:
        kind = (*STEP_KINDS[:3], "profiler")[kind_code]
        cost, saving = _per(cost_ns, steps), _per(saving_ns, steps)
        # Long waits of a few steps, shared out over all, can be more than the median step has.
        share: float | None = min(saving / period, 1.0)
        share_of = f"the median {kind} step ({text.count(steps, 'step')})"
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
