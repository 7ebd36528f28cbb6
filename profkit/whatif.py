"""What a trace would look like with fixes applied: prices of each, and the predicted steps, tokens and idle time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found, all_fixes, parse_fix
from profkit.analysis.replay import Trust, build_model, replay
from profkit.analysis.replay.price import WAITS_FOR_ITSELF, Replayed, difference, start
from profkit.analysis.replay.requests import moved_requests
from profkit.analysis.replay.retime import retimed
from profkit.analysis.replay.solve import CircleError
from profkit.analysis.summary import summarize, token_times, trace_facts
from profkit.model import Trace

MOST_OPS = 200_000
"""Each fix by itself is priced on a sample of about so many device operations; all of them together on all of them."""
NOTHING_FOUND = "nothing of the kind in this trace"


@dataclass(frozen=True)
class Priced:
    """One fix by itself: ``cost_ns`` is what the fault takes, ``saving_ns`` what the fix gives back; -1 not known.

    A negative saving that is not -1 in ``known`` prices means that the fix makes the run slower.
    """

    fix: str
    code: str
    title: str
    count: int
    known: bool
    cost_ns: int = -1
    saving_ns: int = -1
    cost_ns_per_step: int | None = None
    saving_ns_per_step: int | None = None
    assumed: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """``recorded`` and ``predicted`` hold the same numbers, the latter is None where the model does not hold."""

    trace: Mapping[str, Any]
    trust: Trust
    why_not: str
    sampled: str
    fixes: tuple[Priced, ...]
    not_found: Mapping[str, str]
    step_ns: int
    """Median period of the steps that prices are compared with, 0 without any."""
    step_kind: str
    asked: bool
    """Whether fixes were named; else all were tried."""
    recorded: Mapping[str, Any]
    predicted: Mapping[str, Any] | None


def what_if(trace: Trace, fixes: Sequence[str] = ()) -> WhatIf:
    """Apply fixes (``pinned-copies``, ``kernel:gemm=0.7x``) together; without any, price each one by itself.

    Raises UsageError for a fix that does not exist or lacks its argument.
    """
    wanted = [parse_fix(text) for text in fixes]
    labels = list(fixes)
    if not wanted:
        wanted = [(fix, "") for fix in all_fixes().values() if not fix.argument]
        labels = [fix.name for fix, _ in wanted]
    analysis = Analysis(trace)
    replayed = start(analysis, MOST_OPS)
    found = {
        label: (fix, fix.find(analysis, replayed.model, argument))
        for label, (fix, argument) in zip(labels, wanted, strict=True)
    }
    priced = [_priced(analysis, replayed, label, fix, hit) for label, (fix, hit) in found.items() if hit is not None]
    predicted, why_not = None, _why_not(analysis, replayed)
    if fixes and not why_not:
        try:
            predicted = _predicted(analysis, wanted)
        except CircleError:
            why_not = WAITS_FOR_ITSELF if len(fixes) == 1 else WAITS_FOR_ITSELF.replace("the fix", "these fixes")
    return WhatIf(
        trace=trace_facts(analysis),
        trust=replayed.trust,
        why_not=why_not,
        sampled=replayed.sampled,
        fixes=tuple(priced if fixes else sorted(priced, key=lambda p: -p.saving_ns)),
        not_found={label: NOTHING_FOUND for label, (_, hit) in found.items() if hit is None},
        step_ns=analysis.counted_steps().median_ns,
        step_kind=analysis.counted_steps().kind,
        asked=bool(fixes),
        recorded=_numbers(analysis),
        predicted=predicted,
    )


def _why_not(analysis: Analysis, replayed: Replayed) -> str:
    if not analysis.has_gpu_rows:
        return analysis.trace.why_missing("kernels") or "the trace has no GPU rows"
    return replayed.trust.why_not


def _priced(analysis: Analysis, replayed: Replayed, label: str, fix: Fix, hit: Found) -> Priced:
    base = Priced(label, fix.code, fix.title, hit.count, known=False, assumed=hit.assumed, facts=hit.facts)
    if not replayed.trust.holds:
        return base
    cost, saving = (difference(analysis, replayed, change) for change in (hit.free, hit.fixed))
    if cost is None or saving is None:
        return replace(base, facts={**hit.facts, "price_not_known": WAITS_FOR_ITSELF})
    return replace(
        base,
        known=True,
        # A window begins with the first work: without a fault before that it may become longer.
        cost_ns=max(cost.window_ns, 0),
        saving_ns=saving.window_ns,
        cost_ns_per_step=None if cost.step_ns is None else max(cost.step_ns, 0),
        saving_ns_per_step=saving.step_ns,
    )


def _predicted(analysis: Analysis, wanted: Sequence[tuple[Fix, str]]) -> Mapping[str, Any]:
    """The numbers of the trace as it would have been recorded with all fixes, which are applied in their order."""
    model = build_model(analysis)
    found = [fix.find(analysis, model, argument) for fix, argument in wanted]
    changed = reduce(lambda m, hit: hit.fixed(m) if hit is not None else m, found, model)
    times = replay(changed)
    requests = moved_requests(analysis, model, times)
    return _numbers(Analysis(retimed(analysis.trace, model, times))) | token_times(requests)


def _numbers(analysis: Analysis) -> dict[str, Any]:
    summary = summarize(analysis)
    return {key: summary[key] for key in ("window_ns", "devices", "steps", "ttft_ns", "tpot_ns", "idle_by_cause")}
