"""Findings by saving: price, what happened, why, what to do, and where to look; then what matters less, a line each."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.model import Evidence, Finding
from profkit.report import ReportInput, Section
from profkit.reports import words
from profkit.reports.markup import bullets, details, join, pairs, table
from profkit.reports.sections.headline import price
from profkit.show import folded_lines

_MOST_LISTED = 40
_WIDTH = 600
_IDS = 6


def render(report: ReportInput) -> Markup:
    result = report.result
    if not result.findings and not result.others:
        ran = len(result.clean)
        if not ran:
            return Markup("<p>No rule could judge this trace: see the rules below for the reasons.</p>")
        return Markup("<p>The {} that could judge this trace found nothing.</p>").format(text.count(ran, "rule"))
    whole = join(_finding(report, finding) for finding in result.findings)
    return join((whole or Markup("<p>Nothing found that matters.</p>"), _listed(result.others)))


def _finding(report: ReportInput, finding: Finding) -> Markup:
    evidence = bullets(describe_evidence(report, item) for item in finding.evidence) if finding.evidence else Markup("")
    facts = pairs(words.fact(key, value) for key, value in list(finding.facts.items())[:40])
    cost = f"; the fault costs {text.ns(finding.cost_ns)} in all" if finding.cost_ns >= 0 else ""
    return Markup(
        '<article class="finding {}"><h3>{} {} <span class="badge {}">{}</span></h3>'
        '<p class="price">A fix saves {}{}</p><p>{}</p>'
        '<p><b class="k">Cause:</b> {}</p><p><b class="k">To do:</b> {}</p>{}{}</article>\n'
    ).format(
        finding.severity,
        finding.code,
        finding.title,
        finding.severity,
        finding.severity,
        price(finding),
        cost,
        text.clip(finding.message, _WIDTH),
        text.clip(finding.cause, _WIDTH),
        text.clip(finding.advice, _WIDTH),
        _folded(finding),
        details("Facts and evidence", join((facts, evidence))),
    )


def describe_evidence(report: ReportInput, evidence: Evidence) -> str:
    """Which rows of which table show it, on which lanes, and when, so that they can be found in another viewer."""
    trace = report.analysis.trace
    ids = ", ".join(str(i) for i in evidence.ids[:_IDS])
    more = ", …" if evidence.count > _IDS else ""
    parts = [f"{text.count(evidence.count, 'row')} of {evidence.table}"]
    if ids:
        parts.append(f"ids {ids}{more}")
    if evidence.tracks:
        labels = [str(trace.tables["tracks"].column("label")[track].as_py()) for track in evidence.tracks[:4]]
        parts.append(f"on {text.clip(', '.join(labels), 120)}{', …' if len(evidence.tracks) > 4 else ''}")
    if evidence.window is not None:
        window = evidence.window
        parts.append(
            f"look at {text.moment(window.start_ns)} to {text.moment(window.end_ns)} ({text.ns(window.dur_ns)})"
        )
    return "; ".join(parts)


def _folded(finding: Finding) -> Markup:
    """The findings that are no fault of their own."""
    lines = folded_lines(finding)
    return Markup('<p><b class="k">With it:</b></p>{}').format(bullets(lines)) if lines else Markup("")


def _listed(findings: tuple[Finding, ...]) -> Markup:
    """Those that would give back next to nothing, or only say what was seen, a line each."""
    if not findings:
        return Markup("")
    rows = [
        (f"{f.code} {f.title}", text.clip(f.message, _WIDTH), text.ns(f.saving_ns), text.percent(f.share))
        for f in findings[:_MOST_LISTED]
    ]
    gone = len(findings) - len(rows)
    foot = f"{text.count(gone, 'further finding')} not listed" if gone else ""
    return table(("further finding", "what", "saves", "share"), rows, left=2, foot=foot)


SECTION = Section(title="Findings", order=20, render=render)
