"""What bounds a step, what it costs, what to do: to be read in five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from profkit import text
from profkit.model import Finding
from profkit.report import ReportInput, Section
from profkit.reports import words
from profkit.reports.markup import join


@dataclass(frozen=True)
class Tile:
    """One number: what it is, its value with a unit, and what it refers to."""

    label: str
    value: str
    of: str


def render(report: ReportInput) -> Markup:
    return join((_hero(report), _tiles(report)))


def _hero(report: ReportInput) -> Markup:
    lead = report.lead
    headline = text.clip(report.result.headline, 900)
    if lead is None:
        serious = any(finding.severity != "info" for finding in report.result.findings)
        look = "warning" if serious else "good" if report.analysis.has_gpu_rows else "info"
        return Markup('<div class="hero {}"><p class="says">{}</p></div>\n').format(look, headline)
    return Markup(
        '<div class="hero {}"><p class="what"><span class="badge {}">{}</span> {}</p>'
        '<dl class="lead"><div><dt>A fix saves</dt><dd>{}</dd></div><div><dt>To do</dt><dd>{}</dd></div></dl>'
        '<p class="says">{}</p></div>\n'
    ).format(
        lead.severity, lead.severity, lead.severity, lead.title, price(lead), text.clip(lead.advice, 400), headline
    )


def price(finding: Finding) -> Markup:
    """What a fix would give back, per step where there are steps, and of what."""
    if finding.saving_ns < 0:
        return Markup("an unknown amount")
    per_step = finding.saving_ns_per_step >= 0
    amount = text.ns(finding.saving_ns_per_step) + " a step" if per_step else text.ns(finding.saving_ns)
    share = Markup(" <small>{} of {}</small>").format(text.percent(finding.share), finding.share_of)
    return Markup("<strong>up to {}</strong>{}").format(amount, share if finding.share is not None else "")


def _tiles(report: ReportInput) -> Markup:
    return Markup('<div class="tiles">{}</div>\n').format(
        join(
            Markup('<div class="tile"><span>{}</span><b>{}</b><small>{}</small></div>').format(t.label, t.value, t.of)
            for t in tiles(report)
        )
    )


def tiles(report: ReportInput) -> Iterator[Tile]:
    """The few numbers that sum a run up; what is not known says why."""
    summary = report.result.summary
    yield _step_tile(report)
    for name, of in (("ttft", "time to first token"), ("tpot", "time per output token")):
        spread = summary[f"{name}_ns"]
        if spread:
            shown = f"median of {text.count(spread['n'], 'request')}; p99 {text.ns(spread['p99'])}"
            yield Tile(name.upper(), text.ns(spread["p50"]), shown)
        else:
            yield Tile(name.upper(), "n/a", f"{of}: no complete requests in this capture")
    yield from _gpu_tiles(report)


def _step_tile(report: ReportInput) -> Tile:
    steps = report.result.summary["steps"]
    for kind, step in sorted(steps.items(), key=lambda item: -item[1]["count"]):
        if step["period_p50_ns"] is not None:
            shown = f"median period of {step['period_n']:,}; p99 {text.ns(step['period_p99_ns'])}"
            return Tile(f"{kind} step", text.ns(step["period_p50_ns"]), shown)
        if step["host_p50_ns"] is not None:
            shown = f"median host time of {step['count']:,}; p99 {text.ns(step['host_p99_ns'])}"
            return Tile(f"{kind} step", text.ns(step["host_p50_ns"]), shown)
    return Tile("Step", "n/a", "no steps: no prefill or decode ranges in this capture")


def _gpu_tiles(report: ReportInput) -> Iterator[Tile]:
    devices, window = report.analysis.devices, report.analysis.window
    shares = [device.busy_share for device in devices if device.busy_share is not None]
    if not shares or window is None:
        yield Tile("GPU busy", "n/a", "no GPU rows in this capture")
        return
    low, high = text.percent(min(shares)), text.percent(max(shares))
    shown = low if low == high else f"{low.removesuffix(' %')} to {high}"
    gpus = f", {len(shares)} GPUs" if len(shares) > 1 else ""
    yield Tile("GPU busy", shown, f"of the window, {text.ns(window.dur_ns)}{gpus}")
    idle = {cause: value for cause, value in report.result.summary["idle_by_cause"].items() if value > 0}
    if idle:
        most = max(idle, key=lambda cause: idle[cause])
        shown = f"{text.percent(idle[most] / sum(idle.values()))} of all idle time, {text.ns(idle[most])}"
        yield Tile("Idle, mostly", words.cause(most), shown)


SECTION = Section(title="Headline", order=0, render=render)
