"""All rules on one trace: what they found, with near-duplicates folded, what they could not judge, what is clean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from profkit.analysis.context import Analysis
from profkit.analysis.replay.price import Difference, difference
from profkit.model import Finding, Folded, NotRun
from profkit.rules import Rule, all_rules
from profkit.rules._price import MATTERS_SHARE, WARNING_SHARE, Priced, chained, no_more_than, with_saving

MOST_FINDINGS = 6
_MEASURED_IS_MORE = 2
_MOST_PLACES = 8
LEFT_SHARE = 0.25
"""A finding of which another one's fix leaves less than this part is folded into that one."""


@dataclass(frozen=True)
class Verdict:
    """``findings`` matter, by saving; ``others`` do not, or are more than MOST_FINDINGS."""

    findings: tuple[Finding, ...]
    others: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    clean: tuple[str, ...]
    of_all: bool = True
    """Whether all rules were asked."""

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
        items = one_for_all_devices(analysis, judged(rule, analysis))
        (rest if rule.is_rest else found).extend(items)
        if not items:
            clean.append(rule.code)
    ranked = fold(analysis, sorted(found, key=_rank), rest)
    matters = [finding for finding in ranked if _matters(finding)]
    shown = matters[:MOST_FINDINGS]
    others = [*matters[MOST_FINDINGS:], *(finding for finding in ranked if not _matters(finding))]
    of_all = all(wanted(code) for code in all_rules())
    return Verdict(tuple(shown), tuple(others), tuple(not_run), tuple(clean), of_all)


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
    if finding.severity != "info" or all_rules()[finding.code].is_shown:
        return True
    return finding.saving_ns > 0 and (finding.share or 0) >= MATTERS_SHARE


def one_for_all_devices(analysis: Analysis, items: Sequence[Priced]) -> list[Priced]:
    """The same fault on several devices or ranks is one finding: that of the largest saving, with the others folded."""
    groups: dict[tuple[str, str], list[Priced]] = {}
    for item in items:
        code, _, kind, name = item.finding.key.split(":", 3)
        groups.setdefault((code, f"{kind}:{name}"), []).append(item)
    return [_first_of(analysis, sorted(group, key=_rank)) for group in groups.values()]


def _first_of(analysis: Analysis, group: Sequence[Priced]) -> Priced:
    first, *more = group
    if not more:
        return first
    rows = [item.finding.key.split(":")[1] for item in more[:_MOST_PLACES]]
    places = [f"GPU {analysis.device_number[int(row)]}" if row.isdecimal() else row for row in rows]
    where = ", ".join(places) + (" ..." if len(more) > _MOST_PLACES else "")
    fixed = [item.fixed for item in group if item.fixed is not None]
    return replace(
        first,
        fixed=chained(fixed) if fixed else None,
        saved=None,  # what was replayed is the fix on one device
        finding=replace(
            first.finding,
            message=f"{first.finding.message}; likewise on {where}",
            facts={**first.finding.facts, "places": len(group)},
            folded=(*first.finding.folded, *(_folded(item.finding, "the same on another device") for item in more)),
        ),
    )


def fold(analysis: Analysis, found: Sequence[Priced], rest: Sequence[Priced]) -> list[Finding]:
    """Findings by saving, without those that the fixes of larger ones leave next to nothing of.

    Fixes are made one after the other, the largest saving first. ``rest`` are findings about what others leave: they
    are priced on top of all others that matter.
    """
    kept: list[Priced] = []
    made = _Made(analysis)
    for item in found:
        at = _same_fix(item, kept)
        if at is None and _is_warning(item) and made.some and made.on_top(item) < LEFT_SHARE * _of(item.finding):
            at = made.first(kept)
        if at is not None:
            kept[at] = _with_folded(kept[at], item, f"gone with the {made.words}" if made.some else "the same fix")
            continue
        kept.append(item)
        if _is_warning(item):
            made.add(item)
    for item in rest:
        kept = _with_rest(analysis, kept, made, item)
    return [item.finding for item in sorted(kept, key=_rank)]


class _Made:
    """The fixes that are made so far, and what they save together."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._items: list[Priced] = []
        self._saved: dict[tuple[tuple[int, ...], int], Difference | None] = {}

    @property
    def some(self) -> bool:
        return bool(self._items)

    @property
    def codes(self) -> str:
        return ", ".join(dict.fromkeys(item.finding.code for item in self._items))

    @property
    def words(self) -> str:
        return f"fix{'es' if ',' in self.codes else ''} of {self.codes}"

    def add(self, item: Priced) -> None:
        self._items.append(item)

    def first(self, kept: Sequence[Priced]) -> int:
        """The place of the finding whose fix was made first."""
        return next(i for i, item in enumerate(kept) if item.fixed is self._items[0].fixed)

    def left_by(self, item: Priced) -> Difference | None:
        """What a fix gives back on top of all that are made."""
        with_it, without = self._of([*self._items, item], item.device), self._of(self._items, item.device)
        if with_it is None or without is None:
            return None
        step = None
        if with_it.step_ns is not None and without.step_ns is not None:
            step = with_it.step_ns - without.step_ns
        window, steady = with_it.window_ns - without.window_ns, with_it.steady_ns - without.steady_ns
        return Difference(window, step, steady)

    def on_top(self, item: Priced) -> int:
        """The same in what the finding's saving counts, ns; all of it where that cannot be replayed."""
        left = self.left_by(item)
        return _of(item.finding) if left is None else _difference_of(left, item.finding)

    def _of(self, items: Sequence[Priced], device: int) -> Difference | None:
        """What some fixes save together; asked for again when one more is made."""
        if len(items) == 1 and items[0].device == device and items[0].saved is not None:
            return items[0].saved
        key = (tuple(id(item.fixed) for item in items), device)
        if key not in self._saved:
            change = chained([item.fixed for item in items if item.fixed is not None])
            self._saved[key] = difference(self._analysis, self._analysis.replayed, change, device)
        return self._saved[key]


def _same_fix(item: Priced, kept: Sequence[Priced]) -> int | None:
    """The place of a finding of another rule that the same fix takes away."""
    fixes = item.finding.fixes
    others = (i for i, other in enumerate(kept) if fixes and other.finding.fixes == fixes)
    return next((i for i in others if kept[i].finding.code != item.finding.code), None)


def _with_rest(analysis: Analysis, kept: list[Priced], made: _Made, item: Priced) -> list[Priced]:
    if item.fixed is None or not made.some or item.finding.saving_ns <= 0:
        return [*kept, item]
    left = made.left_by(item)
    if left is None:
        return [*kept, item]
    if _difference_of(left, item.finding) < LEFT_SHARE * _of(item.finding):
        at = made.first(kept)
        why = f"explained by {made.codes}"
        return [_with_folded(other, item, why) if i == at else other for i, other in enumerate(kept)]
    # Two fixes may give back more together than both alone: that is not what this one gives back.
    finding = with_saving(analysis, item.finding, no_more_than(left, item.finding), item.device)
    facts = {**finding.facts, "on_top_of": made.codes}
    return [*kept, replace(item, finding=replace(finding, facts=facts))]


def _of(finding: Finding) -> int:
    return finding.saving_ns_per_step if finding.saving_ns_per_step >= 0 else finding.saving_ns


def _difference_of(left: Difference, finding: Finding) -> int:
    """Of a difference what a finding's saving is of: a step, or the window."""
    return left.step_ns if finding.saving_ns_per_step >= 0 and left.step_ns is not None else left.window_ns


def _is_warning(item: Priced) -> bool:
    finding = item.finding
    return item.fixed is not None and finding.saving_ns > 0 and (finding.share or 0) >= WARNING_SHARE


def _with_folded(item: Priced, other: Priced, why: str) -> Priced:
    finding = item.finding
    more = (*finding.folded, _folded(other.finding, why), *other.finding.folded)
    return replace(item, finding=replace(finding, folded=more))


def _folded(finding: Finding, why: str) -> Folded:
    return Folded(finding.code, finding.title, finding.key, why, finding.saving_ns, finding.saving_ns_per_step)
