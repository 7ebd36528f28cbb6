"""Whether the capture can be trusted: what it holds, what it lacks and why, and what is known to be off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.work import GRAPHS
from profkit.model import Trace
from profkit.report import ReportInput, Section, page_title
from profkit.reports.markup import details, join, pairs, table
from profkit.schema import DEVICE_TABLES, FLAG_BEFORE_ITS_LAUNCH, FLAG_OPEN_END, NOT_WHOLE

_MOST_REMARKS = 12
_WIDTH = 400
_LEVELS = ("problem", "warning", "note")


@dataclass(frozen=True)
class Remark:
    """Something to know before believing a number; ``level`` is problem, warning or note."""

    level: str
    text: str


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


def remarks(analysis: Analysis) -> list[Remark]:
    """Everything to know before believing a number, problems first."""
    return sorted(_remarks(analysis), key=lambda remark: _LEVELS.index(remark.level))


def _remarks(analysis: Analysis) -> Iterator[Remark]:
    trace = analysis.trace
    if trace.meta.simulated:
        yield Remark("problem", "Simulated: the times come from a model, not from a GPU")
    if trace.meta.partial:
        yield Remark("problem", "Part of the file could not be read: the numbers are of the rest")
    if not analysis.has_gpu_rows:
        reason = trace.why_missing("kernels") or "no GPU work was recorded"
        yield Remark("warning", f"No GPU rows: GPU numbers are n/a, not 0 ({text.clip(reason, _WIDTH)})")
    yield from _graph_remarks(analysis)
    yield from _row_remarks(analysis)
    for warning in trace.meta.warnings:
        yield Remark("warning", text.clip(warning, _WIDTH))
    for note in trace.meta.notes:
        yield Remark("note", text.clip(note, _WIDTH))
    for reason, tables in missing(trace).items():
        yield Remark("note", f"No {', '.join(name.replace('_', ' ') for name in tables)}: {text.clip(reason, _WIDTH)}")
    if analysis.selected is not None:
        yield Remark(
            "note",
            "A part of the capture was chosen: GPU rows are cut at its edges; ranges, calls, copies and requests count "
            "where they begin inside, steps where their GPU work is inside",
        )
    if trace.meta.resolution_ns > 1:
        yield Remark("note", f"Times have a resolution of {text.ns(trace.meta.resolution_ns)}")


def missing(trace: Trace) -> dict[str, list[str]]:
    """Reasons why tables were not captured, each with its tables; where only some processes lack one, it says which."""
    out: dict[str, list[str]] = {}
    for name, reasons in trace.missing.items():
        for process, reason in reasons.items():
            where = f" (process {int(trace.array('processes', 'pid')[process])})" if process >= 0 else ""
            if process >= 0 or not trace.rows(name):
                out.setdefault(reason + where, []).append(name)
    return out


def _graph_remarks(analysis: Analysis) -> Iterator[Remark]:
    graphs = int((analysis.work.table == GRAPHS).sum())
    if graphs:
        busy = sum(device.graph_ns for device in analysis.devices)
        yield Remark(
            "warning",
            f"{text.count(graphs, 'CUDA graph launch', 'CUDA graph launches')} recorded as one piece each, "
            f"{text.ns(busy)} busy: the kernels inside are not visible; --cuda-graph-trace=node records them",
        )


def _row_remarks(analysis: Analysis) -> Iterator[Remark]:
    trace, work = analysis.trace, analysis.work
    orphans = int((work.call < 0).sum())
    if orphans:
        yield Remark(
            "warning" if orphans * 50 > len(work) else "note",
            f"{orphans:,} of {text.count(len(work), 'GPU row')} ({text.percent(orphans / len(work))}) have no recorded "
            "call: they belong to no stage and no step, and idle time before them has no known cause",
        )
    flags = np.concatenate([trace.array(name, "flags") for name in DEVICE_TABLES])
    cut = int(((flags & NOT_WHOLE) != 0).sum())
    if cut:
        yield Remark("note", f"{text.count(cut, 'GPU row')} not seen whole: drawn, but in no median")
    early = int(((flags & FLAG_BEFORE_ITS_LAUNCH) != 0).sum())
    if early:
        yield Remark(
            "warning",
            f"{text.count(early, 'GPU row')} begin before the call that launched them: the clocks of host and GPU "
            "are not aligned",
        )
    unclosed = int(((trace.array("spans", "flags") & FLAG_OPEN_END) != 0).sum())
    if unclosed:
        yield Remark("note", f"{text.count(unclosed, 'range')} never closed: not counted in times")


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
