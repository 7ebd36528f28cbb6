"""Copies by direction and kind of memory."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.report import ReportInput, Section
from profkit.reports.markup import table


def render(report: ReportInput) -> Markup | None:
    copies = report.result.summary["copies"]
    if not copies:
        if not report.analysis.has_gpu_rows:
            return None
        reason = report.analysis.trace.why_missing("copies")
        return Markup("<p>n/a: {}</p>").format(text.clip(reason, 400)) if reason else None
    rows = []
    for copy in sorted(copies, key=lambda item: -item["sum_ns"]):
        what = copy["kind"].replace("_", " ").upper() if copy["kind"] != "memset" else "memset"
        where = copy["dst"] if copy["kind"] == "memset" else f"{copy['src']} to {copy['dst']}"
        rate = text.rate(copy["bytes"], copy["sum_ns"])
        rows.append((what, where, f"{copy['count']:,}", text.size(copy["bytes"]), text.ns(copy["sum_ns"]), rate))
    foot = "Of the whole capture. Sums are over streams. Host-to-host copies (H2H) are not GPU busy time."
    return table(("copy", "memory", "count", "bytes", "sum", "rate"), rows, left=2, foot=foot)


SECTION = Section(title="Copies", order=80, render=render)
