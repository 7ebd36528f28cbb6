"""GPU busy and idle by device, and why a device was idle."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.analysis.idle_pieces import APART, CAUSES
from profkit.report import ReportInput, Section
from profkit.reports import words
from profkit.reports.markup import join, legend, remark, stacked_bar, table

_MOST_BARS = 8


def render(report: ReportInput) -> Markup:
    if not report.analysis.has_gpu_rows:
        reason = report.analysis.trace.why_missing("kernels") or "no GPU work was recorded"
        return Markup("<p>n/a: {}. That a GPU is not in the capture does not mean that it was idle.</p>").format(
            text.clip(reason, 400)
        )
    return join((_devices(report), _idle(report)))


def _devices(report: ReportInput) -> Markup:
    summary = report.result.summary
    keys = ("busy_ns", "kernel_ns", "copy_ns", "graph_ns", "idle_ns", "kernel_sum_over_streams_ns")
    rows = [
        (text.clip(device["name"], 60), text.percent(device["busy_share"]), *(text.ns(device[key]) for key in keys))
        for device in summary["devices"]
    ]
    head = ("GPU", "busy, of the window", "busy", "kernels", "copies", "graphs", "idle", "kernels summed over streams")
    foot = (
        f"Window: {text.ns(summary['window_ns'])}, {summary['window']['of']}. Busy is the union over streams, so "
        "busy + idle = window; kernels, copies and graphs may overlap."
    )
    return table(head, rows, foot=foot)


def _idle(report: ReportInput) -> Markup:
    idle = report.analysis.idle
    totals = {cause: value for cause, value in idle.by_cause().items() if value > 0}
    total = sum(totals.values())
    if not total:
        return remark("No GPU was idle in the window.")
    order = [cause for cause in (*CAUSES, *APART) if cause in totals]
    bars = []
    devices = [device.device for device in report.analysis.devices]
    shown = devices[:_MOST_BARS] if len(devices) > 1 else []
    lines: list[tuple[int | None, str]] = [(None, "All GPUs" if shown else "GPU idle")]
    for device, label in (*lines, *((d, f"GPU {d}") for d in shown)):
        mine = idle.by_cause(device) if device is not None else totals
        whole = sum(value for value in mine.values() if value > 0)
        parts = [(f"idle_{cause}", words.cause(cause), mine[cause]) for cause in order if mine.get(cause, 0) > 0]
        bars.append(
            Markup("<span>{} <small>{}</small></span>{}").format(label, text.ns(whole), stacked_bar(parts, whole))
        )
    ranked = sorted(totals.items(), key=lambda item: -item[1])
    rows = [(words.cause(cause), text.ns(value), text.percent(value / total)) for cause, value in ranked]
    gone = len(devices) - len(shown) if shown else 0
    more = remark(f"{text.count(gone, 'further GPU')} not drawn, but in the sum") if gone else ""
    return join(
        (
            Markup("<h3>Idle time by what the host did meanwhile</h3>\n"),
            Markup('<div class="bars">{}</div>\n').format(join(bars)),
            legend(f"idle_{cause}" for cause in order),
            more,
            table(("cause", "sum over GPUs", f"of {text.ns(total)} idle"), rows),
        )
    )


SECTION = Section(title="GPU busy and idle", order=60, render=render)
