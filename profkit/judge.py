"""All rules on one trace: what they found, with near-duplicates folded, what they could not judge, what is clean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from profkit.analysis.context import Analysis
from profkit.analysis.replay.price import Difference, difference
from profkit.model import Finding, Folded, NotRun
from profkit.rules import Rule, all_rules
from profkit.rules._price import MATTERS_SHARE, WARNING_SHARE, Priced, chained, with_saving

MOST_FINDINGS = 6
_MEASURED_IS_MORE = 2
LEFT_SHARE = 0.25
"""A finding of which another one's fix leaves less than this part is folded into that one."""


@dataclass(frozen=True)
class Verdict:
    """``findings`` matter, by saving; ``others`` do not, or are more than MOST_FINDINGS."""

    findings: tuple[Finding, ...]
    others: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    clean: tuple[str, ...]

    @property
    def every(self) -> tuple[Finding, ...]:
        return self.findings + self.others


def chosen_by(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Callable[[str], bool]:
    """Which codes are wanted: ``PK2`` stands for all codes that begin so."""

    def wanted(code: str) -> bool:
        return (not select or code.startswith(tuple(select))) and not code.startswith(tuple(ignore) or ("\0",))

    return wanted


def run_rules(analysis: Analysis, wanted: Callable[[str], bool] = lambda code: True) -> Verdict:
    """Judge a trace by all rules whose code is ``wanted``; a rule that cannot judge is never among the clean ones."""
    found: list[Priced] = []
    rest: list[Priced] = []
    not_run: list[NotRun] = []
    clean: list[str] = []
    for rule in all_rules().values():
        if not wanted(rule.code):
            continue
        reason = rule.unmet(analysis)
        if reason:
            not_run.append(NotRun(rule.code, rule.title, reason, rule.record))
            continue
        items = one_for_all_devices(judged(rule, analysis))
        (rest if rule.is_rest else found).extend(items)
        if not items:
            clean.append(rule.code)
    ranked = fold(analysis, sorted(found, key=_rank), rest)
    matters = [finding for finding in ranked if _matters(finding)]
    shown = matters[:MOST_FINDINGS]
    others = [*matters[MOST_FINDINGS:], *(finding for finding in ranked if not _matters(finding))]
    return Verdict(tuple(shown), tuple(others), tuple(not_run), tuple(clean))


def judged(rule: Rule, analysis: Analysis) -> list[Priced]:
    """What one rule finds, each with the change of the model that its price is of, if a replay priced it."""
    return [item if isinstance(item, Priced) else Priced(item) for item in rule.check(analysis)]


def _rank(item: Priced) -> tuple[float, ...]:
    """The largest saving first, as a part of what it is compared with; findings without one by severity.

    What was measured of a fault without a price bounds it roughly: it comes first where it is more than twice as much.
    """
    finding = item.finding
    serious = {"critical": 0, "warning": 1, "info": 2}[finding.severity]
    share = finding.share if finding.share is not None and finding.saving_ns > 0 else 0.0
    if finding.saving_ns < 0 and finding.severity != "info":
        share = item.measured_share / _MEASURED_IS_MORE
    return (-share, serious, -finding.cost_ns)


def _matters(finding: Finding) -> bool:
    return finding.severity != "info" or (finding.saving_ns > 0 and (finding.share or 0) >= MATTERS_SHARE)


def one_for_all_devices(items: Sequence[Priced]) -> list[Priced]:
    """The same fault on several devices or ranks is one finding: that of the largest saving, with the others folded."""
    groups: dict[tuple[str, str], list[Priced]] = {}
    for item in items:
        code, _, kind, name = item.finding.key.split(":", 3)
        groups.setdefault((code, f"{kind}:{name}"), []).append(item)
    return [_first_of(sorted(group, key=_rank)) for group in groups.values()]


def _first_of(group: Sequence[Priced]) -> Priced:
    first, *more = group
    if not more:
        return first
    where = ", ".join(f"GPU {item.finding.key.split(':')[1]}" for item in more[:8]) + (" ..." if len(more) > 8 else "")
    return replace(
        first,
        finding=replace(
            first.finding,
            message=f"{first.finding.message}; likewise on {where}",
            facts={**first.finding.facts, "places": len(group)},
            folded=(*first.finding.folded, *(_folded(item.finding, "the same on another device") for item in more)),
        ),
    )


def fold(analysis: Analysis, found: Sequence[Priced], rest: Sequence[Priced]) -> list[Finding]:
    """Findings by saving, without those of which the fix of a larger one leaves next to nothing.

    ``rest`` are findings about what others leave: they are priced on top of all others that matter.
    """
    kept = _without_duplicates(analysis, list(found))
    for item in rest:
        kept = _with_rest(analysis, kept, item)
    return [item.finding for item in sorted(kept, key=_rank)]


def _without_duplicates(analysis: Analysis, ranked: list[Priced]) -> list[Priced]:
    kept: list[Priced] = []
    for item in ranked:
        at = next((i for i, larger in enumerate(kept) if _is_part_of(analysis, item, larger)), None)
        if at is None:
            kept.append(item)
        else:
            kept[at] = _with_folded(kept[at], item, f"gone with the fix of {kept[at].finding.code}")
    return kept


def _is_part_of(analysis: Analysis, item: Priced, larger: Priced) -> bool:
    """Whether the fix of a larger finding leaves next to nothing of this one."""
    if item.fixed is None or larger.fixed is None or not _is_warning(item.finding) or not _is_warning(larger.finding):
        return False
    if item.finding.code == larger.finding.code:
        return False
    if item.finding.fixes == larger.finding.fixes:
        return True
    left = _on_top(analysis, [larger], item)
    return left is not None and _difference_of(left, item.finding) < LEFT_SHARE * _of(item.finding)


def _with_rest(analysis: Analysis, kept: list[Priced], item: Priced) -> list[Priced]:
    serious = [other for other in kept if other.fixed is not None and _is_warning(other.finding)]
    if item.fixed is None or not serious or item.finding.saving_ns <= 0:
        return [*kept, item]
    left = _on_top(analysis, serious, item)
    if left is None:
        return [*kept, item]
    if _difference_of(left, item.finding) < LEFT_SHARE * _of(item.finding):
        first = kept.index(serious[0])
        return [
            _with_folded(other, item, f"explained by {', '.join(o.finding.code for o in serious)}")
            if i == first
            else other
            for i, other in enumerate(kept)
        ]
    finding = with_saving(analysis, item.finding, left, item.device)
    facts = {**finding.facts, "on_top_of": ", ".join(other.finding.code for other in serious)}
    return [*kept, replace(item, finding=replace(finding, facts=facts))]


def _on_top(analysis: Analysis, before: Sequence[Priced], item: Priced) -> Difference | None:
    """What a change gives back of a run that has others already."""
    first = [other.fixed for other in before if other.fixed is not None]
    if item.fixed is None:
        return None
    with_all = difference(analysis, analysis.replayed, chained([*first, item.fixed]), item.device)
    only = before[0].saved if len(before) == 1 and before[0].device == item.device else None
    without = only or difference(analysis, analysis.replayed, chained(first), item.device)
    if with_all is None or without is None:
        return None
    step = None
    if with_all.step_ns is not None and without.step_ns is not None:
        step = with_all.step_ns - without.step_ns
    return Difference(with_all.window_ns - without.window_ns, step)


def _of(finding: Finding) -> int:
    return finding.saving_ns_per_step if finding.saving_ns_per_step >= 0 else finding.saving_ns


def _difference_of(left: Difference, finding: Finding) -> int:
    """Of a difference what a finding's saving is of: a step, or the window."""
    return left.step_ns if finding.saving_ns_per_step >= 0 and left.step_ns is not None else left.window_ns


def _is_warning(finding: Finding) -> bool:
    return finding.saving_ns > 0 and (finding.share or 0) >= WARNING_SHARE


def _with_folded(item: Priced, other: Priced, why: str) -> Priced:
    finding = item.finding
    more = (*finding.folded, _folded(other.finding, why), *other.finding.folded)
    return replace(item, finding=replace(finding, folded=more))


def _folded(finding: Finding, why: str) -> Folded:
    return Folded(finding.code, finding.title, finding.key, why, finding.saving_ns, finding.saving_ns_per_step)
