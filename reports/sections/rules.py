"""Rules that could not judge, with the reason, and rules that found nothing: never the same."""

from __future__ import annotations

from markupsafe import Markup

from profkit import text
from profkit.report import ReportInput, Section
from profkit.reports.markup import join, table
from profkit.rules import all_rules
from profkit.show import why_not_run


def render(report: ReportInput) -> Markup | None:
    result = report.result
    parts = []
    if result.not_run:
        rows = [(f"{item.code} {item.title}", text.clip(why_not_run(item), 400)) for item in result.not_run]
        parts.append(table(("not evaluated", "because"), rows, left=2))
    if result.clean:
        titles = {code: rule.title for code, rule in all_rules().items()}
        rows = [(f"{code} {titles.get(code, '')}", "ran, found nothing") for code in result.clean]
        parts.append(table(("evaluated", "result"), rows, left=2))
    return join(parts) if parts else None


SECTION = Section(title="Other rules", order=100, render=render)
