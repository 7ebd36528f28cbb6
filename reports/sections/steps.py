"""Steps and requests: how long a step takes, time to first token, time per output token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from profkit import text
from profkit.model import Window
from profkit.report import ReportInput, Section
from profkit.reports.drawing import step_chart
from profkit.reports.markup import join, legend, percentiles, remark, table
from profkit.schema import STEP_KINDS


def render(report: ReportInput) -> Markup:
    summary = report.result.summary
    parts = [_steps(summary), _chart(report), _requests(summary)]
    return join(parts)


def _steps(summary: Mapping[str, Any]) -> Markup:
    if not summary["steps"]:
        return Markup(
            "<p>n/a: this capture has no prefill or decode ranges. Put <code>profkit.stage('prefill')</code> and "
            "<code>profkit.stage('decode')</code> around them, and every cost is given per step.</p>"
        )
    rows = [
        (
            kind, f"{step['count']:,}", f"{step['warm_up']:,}", f"{step['incomplete']:,}",
            *percentiles(step, "period"), *percentiles(step, "host"),
            "n/a" if step["batch_p50"] is None else f"{step['batch_p50']:,}",
        )
        for kind, step in summary["steps"].items()
    ]  # fmt: skip
    head = (
        "step", "count", "warm-up", "incomplete", "period p50", "p90", "p99", "host p50", "p90", "p99", "median batch",
    )  # fmt: skip
    foot = (
        "Period: from the end of the previous step's GPU work to the end of its own. Percentiles (nearest rank) are "
        "over complete steps without warm-up; n/a where a step has no GPU work in this capture."
    )
    return join([table(head, rows, foot=foot), *(remark(line) for line in summary["step_remarks"])])


def _chart(report: ReportInput) -> Markup:
    steps = report.analysis.steps
    rows = np.flatnonzero(steps.counted & (steps.period >= 0))
    if len(rows) < 3:
        return Markup("")
    rows = rows[np.argsort(steps.gpu_end[rows], kind="stable")]
    end, period = steps.gpu_end[rows], steps.period[rows]
    window = Window(int((end - period).min()), int(end.max()))
    if window.dur_ns <= 0:
        return Markup("")
    kinds = [f"stage_{STEP_KINDS[kind]}" for kind in steps.kind[rows].tolist()]
    svg, categories = step_chart(window, end, period, kinds)
    foot = "Periods of counted steps over time; where a pixel column has several, the longest."
    return join((svg, legend(categories), remark(foot)))


def _requests(summary: Mapping[str, Any]) -> Markup:
    rows = []
    for name, meaning in (("ttft", "time to first token"), ("tpot", "time per output token")):
        if spread := summary[f"{name}_ns"]:
            cells = [text.ns(spread[f"p{percent}"]) for percent in (50, 90, 99)]
            rows.append((f"{name.upper()}, {meaning}", *cells, f"{spread['n']:,}"))
    if not rows:
        none = remark("TTFT and TPOT: n/a, there are no complete requests in this capture.")
        return join((none, *(remark(line) for line in summary["request_remarks"])))
    found = table(("requests", "p50", "p90", "p99", "complete requests"), rows)
    return join((found, *(remark(line) for line in summary["request_remarks"])))


SECTION = Section(title="Steps and requests", order=40, render=render)
