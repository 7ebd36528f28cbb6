"""The timeline: the whole window, one typical step, and a close look at its longest gap."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.model import Window
from profkit.report import ReportInput, Section
from profkit.reports.markup import bullets, join, legend, remark
from profkit.reports.views import (
    Drawn,
    View,
    around_gap,
    close_look,
    draw_overview,
    draw_zoom,
    hot_within,
    typical_step,
)
from profkit.timeline.lanes import whole_window

_HOW_TO_READ = (
    "GPU streams and calls: the height of a bar is the share of its column in which something ran, and each column is "
    "{} wide. Ranges and requests: each as long as it took; where they are too narrow, the shade is the share covered."
)


def render(report: ReportInput) -> Markup | None:
    window = whole_window(report.analysis)
    if window is None:
        return None
    overview = draw_overview(report, window)
    column = text.ns(max(window.dur_ns // round(500 * report.detail), 1))
    parts = [_figure(overview, f"Whole window: {_edges(window)}", _HOW_TO_READ.format(column))]
    step = typical_step(report.analysis)
    if step is not None:
        parts.append(_zoom(report, step, operators=not report.analysis.has_gpu_rows))
        close = close_look(report, step.window)
        if close is not None:
            parts.append(_zoom(report, close, operators=True))
    else:
        gap = around_gap(report, None)
        if gap is not None:
            parts.append(_zoom(report, gap, operators=True))
    return join(parts)


def _zoom(report: ReportInput, view: View, *, operators: bool) -> Markup:
    drawn = draw_zoom(report, view, operators=operators)
    how = "Hover over a slice for its whole name and its time; times on the axis count from the left edge."
    if hot := hot_within(report, view.window):
        how += f" Red: {hot.what}."
    return _figure(drawn, f"{view.caption}: {_edges(view.window)}", how)


def _figure(drawn: Drawn, caption: str, how: str) -> Markup:
    notes = bullets(drawn.notes) if drawn.notes else ""
    return Markup("<figure><figcaption>{}</figcaption>{}{}{}{}</figure>\n").format(
        caption, drawn.svg, legend(drawn.categories), remark(how), notes
    )


def _edges(window: Window) -> str:
    return f"{text.ns(window.dur_ns)} from {text.moment(window.start_ns)} to {text.moment(window.end_ns)}"


SECTION = Section(title="Timeline", order=30, render=render)
