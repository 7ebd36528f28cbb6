"""The host: CUDA calls, operators and ranges by name."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.analysis.operators import operator_times
from profkit.report import ReportInput, Section
from profkit.reports.markup import join, name, table

_MOST = 12


def render(report: ReportInput) -> Markup | None:
    parts = [part for part in (_calls(report), _operators(report), _ranges(report)) if part is not None]
    return join(parts) if parts else None


def _calls(report: ReportInput) -> Markup | None:
    calls = report.result.summary["calls"]
    if not calls:
        return None
    rows = [
        (name(call["name"]), call["kind"].replace("_", " "), f"{call['count']:,}", text.ns(call["total_ns"]))
        for call in calls[:_MOST]
    ]
    head = ("CUDA call, most time first", "kind", "count", "sum")
    return table(head, rows, left=2, foot=_launch_words(report))


def _launch_words(report: ReportInput) -> str:
    launches = report.result.summary["launches"]
    words = ["A driver call inside a runtime call counts in both."]
    if launches["graph_launches"]:
        each = launches["graph_host_ns_per_kernel"]
        words.append(
            f"{text.count(launches['graph_launches'], 'graph launch', 'graph launches')} took "
            f"{text.ns(launches['graph_host_ns'])} of host time for {text.count(launches['graph_kernels'], 'kernel')}"
            + (f", {text.ns(round(each))} a kernel." if each is not None else ".")
        )
    if wait := launches["queue_wait_ns"]:
        words.append(
            f"From the end of a launch call to the start of its kernel: median {text.ns(wait['p50'])}, "
            f"p99 {text.ns(wait['p99'])}."
        )
    return " ".join(words)


def _operators(report: ReportInput) -> Markup | None:
    found = operator_times(report.analysis, _MOST)
    if not found:
        return None
    rows = [
        (name(op.name), f"{op.count:,}", text.ns(op.self_ns), text.ns(op.sum_ns), text.ns(op.median_ns)) for op in found
    ]
    foot = "Host times. Self is without the operators that it calls."
    return table(("operator, most self time first", "count", "self", "sum", "median"), rows, foot=foot)


def _ranges(report: ReportInput) -> Markup | None:
    ranges = report.result.summary["ranges"]
    if not ranges:
        return None
    rows = []
    for item in ranges[:_MOST]:
        shown = f"{item['domain']}/{item['name']}" if item["domain"] else item["name"]
        rows.append((name(shown), f"{item['count']:,}", f"{item['unclosed']:,}", text.ns(item["total_ns"])))
    more = len(ranges) - len(rows)
    foot = "Ranges nest, so sums overlap." + (" Further ranges are not listed." if more else "")
    return table(("range, most time first", "count", "unclosed", "sum"), rows, foot=foot)


SECTION = Section(title="Host", order=90, render=render)
