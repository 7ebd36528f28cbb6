"""Whether the capture can be trusted: what it holds, what it lacks and why, and what is known to be off."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from profkit import text
from profkit.analysis.trust import Remark, remarks
from profkit.report import ReportInput, Section, page_title
from profkit.reports.markup import details, join, pairs, table

_MOST_REMARKS = 12


def render(report: ReportInput) -> Markup:
    found = remarks(report.analysis)
    look, verdict = verdict_of(found)
    shown = join(
        Markup('<li><span class="badge {}">{}</span><span>{}</span></li>\n').format(
            {"problem": "critical", "warning": "warning"}.get(remark.level, "info"), remark.level, remark.text
        )
        for remark in found[:_MOST_REMARKS]
    )
    rest = found[_MOST_REMARKS:]
    more = Markup("<li><span></span><span>{} not shown</span></li>").format(text.count(len(rest), "further remark"))
    return Markup('<p class="verdict {}">{}</p>\n<ul class="remarks">{}{}</ul>\n{}{}').format(
        look, verdict, shown, more if rest else "", pairs(_facts(report)), _contents(report)
    )


def verdict_of(found: list[Remark]) -> tuple[str, str]:
    """(look, sentence): no with a problem, with care with a warning, else yes."""
    levels = {remark.level for remark in found}
    if "problem" in levels:
        return "problem", "No, or only in part: see the problems below"
    if "warning" in levels:
        return "warning", "With care: see the warnings below"
    return "good", "Yes: nothing was found that would make a number below wrong"


def _facts(report: ReportInput) -> Iterator[tuple[str, str]]:
    facts, analysis = report.result.trace, report.analysis
    yield "File", page_title(report)
    yield "Source", text.clip(f"{facts['source']} {facts['source_version'] or ''}", 80)
    gpus = [str(name) for name in facts["gpus"]]
    more = f" and {len(gpus) - 8} more" if len(gpus) > 8 else ""
    yield "GPUs", text.clip(", ".join(gpus[:8]), 600) + more if gpus else "n/a: none in this capture"
    yield "Span of all events", text.ns(facts["span_ns"])
    if analysis.window is not None:
        of = report.result.summary["window"]["of"]
        window = analysis.window
        edges = f"{text.moment(window.start_ns)} to {text.moment(window.end_ns)}"
        yield "Window", f"{text.ns(window.dur_ns)}, {of}: {edges}"
    zero = analysis.trace.meta.origin_ns
    yield (
        "Time 0",
        f"{text.moment(zero)} on the source's clock" if zero else "start of the session, as in the Nsight GUI",
    )
    if analysis.trace.meta.captured:
        yield "Asked to record", text.clip(", ".join(analysis.trace.meta.captured), 200)


def _contents(report: ReportInput) -> Markup:
    trace = report.analysis.trace
    rows = [(name.replace("_", " "), f"{trace.rows(name):,}") for name in report.result.trace["captured"]]
    total = sum(trace.rows(name) for name in report.result.trace["captured"])
    return details(f"What it holds: {text.count(total, 'row')}", table(("table", "rows"), rows)) if rows else Markup("")


SECTION = Section(title="Can this capture be trusted?", order=10, render=render)
