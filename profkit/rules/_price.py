"""From a cost and a saving to a Finding: per step, as a share, with a severity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.constants import constants as constants
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Found
from profkit.analysis.replay.price import WAITS_FOR_ITSELF, difference
from profkit.model import Finding, Ints

WARNING_SHARE = 0.02
CRITICAL_SHARE = 0.10


def priced(
    analysis: Analysis,
    *,
    cost: Ints,
    saving: Ints | int,
    step: Ints,
    device: int | None = None,
    **rest: Any,
) -> Finding:
    """A Finding with its prices.

    ``cost`` is what each piece (a gap, a copy, a wait) takes, ns, and ``step`` the step that it belongs to; ``saving``
    what a fix gives back of each, or of all. Per step is what falls into counted steps of the main kind, over their
    number, against their median period; where one piece is longer than such a step, against their mean. What is lost on
    one ``device`` is divided by the steps of the processes that work on it. Without steps the share is of the window.
    A saving of -1 is not known: it has no share, and is a warning if the cost is 10 % of the window.
    """
    cost_ns = int(cost.sum())
    window = analysis.window.dur_ns if analysis.window else 0
    if isinstance(saving, int) and saving < 0:
        large = cost_ns >= CRITICAL_SHARE * window
        return Finding(**rest, cost_ns=cost_ns, severity="warning" if large else "info")
    # A fix cannot give back more than the fault costs.
    saving_ns = min(saving if isinstance(saving, int) else int(saving.sum()), cost_ns)
    steps = analysis.counted_steps(device)
    inside = np.flatnonzero((step >= 0) & steps.mask[np.maximum(step, 0)]) if len(steps.mask) else step[:0]
    if not len(inside) or not steps.count:
        share = min(saving_ns / window, 1.0) if window else None
        return Finding(
            **rest, cost_ns=cost_ns, saving_ns=saving_ns, share=share, share_of="the window", severity=severity(share)
        )
    cost_in = int(cost[inside].sum())
    saving_in = saving_ns * cost_in // max(cost_ns, 1) if isinstance(saving, int) else int(saving[inside].sum())
    saving_in = min(saving_in, steps.total_ns)  # nor more than these steps took
    per_step = _per(saving_in, steps.count)
    mean = per_step > steps.median_ns
    share = saving_in / steps.total_ns if mean else per_step / steps.median_ns
    return Finding(
        **rest,
        cost_ns=cost_ns,
        saving_ns=saving_ns,
        cost_ns_per_step=_per(cost_in, steps.count),
        saving_ns_per_step=per_step,
        share=share,
        share_of=f"the {'mean' if mean else 'median'} {steps.kind} step ({text.count(steps.count, 'step')})",
        severity=severity(share),
    )


def priced_by_replay(analysis: Analysis, found: Found | None, *, measured: int, device: int, **rest: Any) -> Finding:
    """A Finding with the prices of a fix, as a replay of the trace's own dependencies gives them.

    ``measured`` is what was measured of the fault, ns: it decides the severity where the price is not known, since the
    model does not explain the trace or the fix finds nothing to change.
    """
    replayed = analysis.replayed
    facts = dict(rest.pop("facts"))
    large = measured >= CRITICAL_SHARE * (analysis.window.dur_ns if analysis.window else 0)
    unpriced = "warning" if large else "info"
    if found is None or not replayed.trust.holds:
        facts["price_not_known"] = replayed.trust.why_not or "the replay has nothing to change"
        return Finding(**rest, facts=facts, severity=unpriced)
    cost, saving = (difference(analysis, replayed, change, device) for change in (found.free, found.fixed))
    if cost is None or saving is None:
        return Finding(**rest, facts=facts | {"price_not_known": WAITS_FOR_ITSELF}, severity=unpriced)
    facts |= {**found.facts, "assumed": "; ".join(found.assumed), "replay_error_share": replayed.trust.share}
    if replayed.sampled:
        facts["replayed"] = replayed.sampled
    base = Finding(**rest, facts=facts, cost_ns=max(cost.window_ns, 0), saving_ns=max(saving.window_ns, 0))
    steps = analysis.counted_steps(device if device >= 0 else None)
    if saving.step_ns is None or cost.step_ns is None or not steps.median_ns:
        window = analysis.window.dur_ns if analysis.window else 0
        share = min(base.saving_ns / window, 1.0) if window else None
        return replace(base, share=share, share_of="the window", severity=severity(share))
    per_step = max(saving.step_ns, 0)
    # Few steps that take very long: a part of the median step would be more than all of it.
    mean = per_step > steps.median_ns
    share = min(per_step * steps.count / steps.total_ns, 1.0) if mean else per_step / steps.median_ns
    return replace(
        base,
        cost_ns_per_step=max(cost.step_ns, 0),
        saving_ns_per_step=per_step,
        share=share,
        share_of=f"the {'mean' if mean else 'median'} {steps.kind} step ({text.count(steps.count, 'step')})",
        severity=severity(share),
    )


def severity(share: float | None) -> str:
    """warning from 2 % of a step (without steps, of the window), critical from 10 %."""
    if share is None or share < WARNING_SHARE:
        return "info"
    return "critical" if share >= CRITICAL_SHARE else "warning"


def _per(value: int, steps: int) -> int:
    return (2 * value + steps) // (2 * steps)
