"""Stages: host and GPU time of each."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.report import ReportInput, Section
from profkit.reports.markup import percentiles, table


def render(report: ReportInput) -> Markup | None:
    stages = report.result.summary["stages"]
    if not stages:
        return None
    self_sum = sum(stage["gpu_self_ns"] or 0 for stage in stages)
    rows = []
    for stage in stages:
        alone = stage["gpu_self_ns"]
        share = text.percent(alone / self_sum) if alone is not None and self_sum else "n/a"
        rows.append(
            (
                stage["stage"], f"{stage['count']:,}", f"{stage['unclosed']:,}", *percentiles(stage, "host"),
                *percentiles(stage, "gpu"), text.ns(stage["gpu_busy_ns"]), text.ns(alone), share,
            )
        )  # fmt: skip
    head = (
        "stage", "count", "unclosed", "host p50", "p90", "p99", "GPU p50", "p90", "p99", "GPU busy in all", "GPU self",
        "of all GPU self",
    )  # fmt: skip
    foot = (
        "Host and GPU times include what is nested inside; self is the GPU work whose innermost stage it is. GPU work "
        "belongs to the stage that launched it. "
    )
    if not report.analysis.has_gpu_rows:
        foot += "GPU columns are n/a: this capture has no GPU rows."
    return table(head, rows, foot=foot)


SECTION = Section(title="Stages", order=50, render=render)
