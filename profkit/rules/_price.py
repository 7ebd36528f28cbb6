"""From a cost and a saving to a Finding: per step, as a share, with a severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Change, Found
from profkit.analysis.replay.price import WAITS_FOR_ITSELF, Difference, difference
from profkit.model import Finding, Ints

WARNING_SHARE = 0.02
CRITICAL_SHARE = 0.10
MATTERS_SHARE = 0.005
"""Of a step (of the window): a finding that saves less is among the others."""


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
    per_step = half_up(saving_in, steps.count)
    mean = per_step > steps.median_ns
    share = saving_in / steps.total_ns if mean else per_step / steps.median_ns
    return Finding(
        **rest,
        cost_ns=cost_ns,
        saving_ns=saving_ns,
        cost_ns_per_step=half_up(cost_in, steps.count),
        saving_ns_per_step=per_step,
        share=share,
        share_of=f"the {'mean' if mean else 'median'} of {text.count(steps.count, f'{steps.kind} step')}",
        severity=severity(share),
    )


@dataclass(frozen=True)
class Priced:
    """A finding and, where a replay priced it, the change of the model that is its fix, for ``device`` (-1: all).

    ``measured_share`` is what was measured of a fault without a price, as a part of the window.
    """

    finding: Finding
    fixed: Change | None = None
    saved: Difference | None = None
    device: int = -1
    measured_share: float = 0.0


def priced_by_fixes(
    analysis: Analysis, fixes: Sequence[str], *, device: int = -1, most: int = -1, **rest: Any
) -> Priced | None:
    """A finding with the prices of fixes, as ``whatif --fix`` takes them, made together; None where they find nothing.

    See :func:`priced_by_replay` for the rest.
    """
    found = found_by(analysis, fixes)
    return None if found is None else priced_by_replay(analysis, found, fixes=fixes, device=device, most=most, **rest)


def found_by(analysis: Analysis, fixes: Sequence[str]) -> Found | None:
    """What fixes find in what is replayed, as one change."""
    parts = [hit for name in fixes if (hit := analysis.found(name)) is not None]
    return joined(parts) if parts else None


def joined(parts: Sequence[Found]) -> Found:
    """Several changes as one, made in their order."""
    if len(parts) == 1:
        return parts[0]
    facts: dict[str, int | float | str] = {}
    for part in parts:
        facts |= part.facts
    return Found(
        count=sum(part.count for part in parts),
        free=chained([part.free for part in parts]),
        fixed=chained([part.fixed for part in parts]),
        assumed=tuple(dict.fromkeys(sentence for part in parts for sentence in part.assumed)),
        facts=facts,
    )


def chained(changes: Sequence[Change]) -> Change:
    """Changes made one after the other."""
    return lambda model: reduce(lambda changed, change: change(changed), changes, model)


def priced_by_replay(
    analysis: Analysis,
    found: Found | None,
    *,
    measured: int,
    device: int = -1,
    most: int = -1,
    fixes: Sequence[str] = (),
    saving: Difference | None = None,
    **rest: Any,
) -> Priced:
    """A finding with the prices of a fix, as a replay of the trace's own dependencies gives them.

    ``measured`` is what was measured of the fault, ns: it decides the severity where the price is not known, since the
    model does not explain the trace or the fix finds nothing to change. ``most`` is a bound of the saving over all that
    was measured, ns, where the fix changes more than the fault; -1 for none. ``saving`` is that of the fix where it was
    replayed before. What a fault costs is not asked where its fix gives back next to nothing.
    """
    replayed = analysis.replayed
    facts = dict(rest.pop("facts"))
    part = min(measured / analysis.window.dur_ns, 1.0) if analysis.window and analysis.window.dur_ns else 0.0
    unpriced = "warning" if part >= CRITICAL_SHARE else "info"
    if found is None or not replayed.trust.holds:
        facts["price_not_known"] = replayed.trust.why_not or "the replay has nothing to change"
        return Priced(Finding(**rest, facts=facts, severity=unpriced), measured_share=part)
    saving = saving or difference(analysis, replayed, found.fixed, device)
    if saving is None:
        facts["price_not_known"] = WAITS_FOR_ITSELF
        return Priced(Finding(**rest, facts=facts, severity=unpriced), measured_share=part)
    facts = {**found.facts, **facts, "assumed": "; ".join(found.assumed), "replay_error_share": replayed.trust.share}
    if replayed.sampled:
        facts["replayed"] = replayed.sampled
    if 0 <= most < saving.window_ns:
        saving = _part_of(saving, most)
    finding = with_saving(analysis, Finding(**rest, facts=facts, fixes=tuple(fixes)), saving, device)
    if (finding.share or 0) >= MATTERS_SHARE:
        cost = saving if found.free is found.fixed else difference(analysis, replayed, found.free, device)
        if cost is not None:
            per_step = -1 if finding.saving_ns_per_step < 0 or cost.step_ns is None else max(cost.step_ns, 0)
            finding = _at_most(analysis, finding, cost, device)
            finding = replace(finding, cost_ns=max(cost.window_ns, 0), cost_ns_per_step=per_step)
    return Priced(finding, found.fixed, saving, device)


def _at_most(analysis: Analysis, finding: Finding, cost: Difference, device: int) -> Finding:
    """A fix cannot give back more than the fault costs, whatever two replays say."""
    step = cost.step_ns
    if finding.saving_ns <= cost.window_ns and (step is None or finding.saving_ns_per_step <= step):
        return finding
    return with_saving(analysis, finding, no_more_than(cost, finding), device)


def no_more_than(difference: Difference, finding: Finding) -> Difference:
    """A difference, where it is more than a finding's saving that saving."""
    step = difference.step_ns
    if step is not None and finding.saving_ns_per_step >= 0:
        step = min(step, finding.saving_ns_per_step)
    window, steady = (min(value, finding.saving_ns) for value in (difference.window_ns, difference.steady_ns))
    return Difference(window, step, steady)


def _part_of(saving: Difference, most: int) -> Difference:
    step = saving.step_ns
    part = None if step is None else step * most // saving.window_ns
    return Difference(most, part, min(saving.steady_ns, most))


def with_saving(analysis: Analysis, finding: Finding, saving: Difference, device: int) -> Finding:
    """A finding with a saving, its share and the severity of that."""
    finding = replace(finding, saving_ns=max(saving.window_ns, 0))
    steps = analysis.counted_steps(device if device >= 0 else None)
    window = analysis.window.dur_ns if analysis.window else 0
    if saving.step_ns is None or not steps.median_ns:
        share = min(finding.saving_ns / window, 1.0) if window else None
        return replace(finding, share=share, share_of="the window", severity=severity(share))
    per_step = max(saving.step_ns, 0)
    part = min(max(saving.steady_ns, 0) / window, 1.0) if window else 0.0
    if per_step < WARNING_SHARE * steps.median_ns and part >= WARNING_SHARE:
        # Outside of the steps that are counted, or in those of another kind.
        steady = min(max(saving.steady_ns, 0), finding.saving_ns)
        finding = replace(finding, saving_ns=steady, saving_ns_per_step=-1)
        return replace(finding, share=part, share_of="the window", severity=severity(part))
    # Few steps that take very long: a part of the median step would be more than all of it.
    mean = per_step > steps.median_ns
    share = min(per_step * steps.count / steps.total_ns, 1.0) if mean else per_step / steps.median_ns
    return replace(
        finding,
        saving_ns_per_step=per_step,
        share=share,
        share_of=f"the {'mean' if mean else 'median'} of {text.count(steps.count, f'{steps.kind} step')}",
        severity=severity(share),
    )


def severity(share: float | None) -> str:
    """warning from 2 % of a step (without steps, of the window), critical from 10 %."""
    if share is None or share < WARNING_SHARE:
        return "info"
    return "critical" if share >= CRITICAL_SHARE else "warning"


def half_up(value: int, by: int) -> int:
    """A quotient, rounded half up."""
    return (2 * value + by) // (2 * by)
