"""``profkit stats``: the reports of nsys stats, from any trace that profkit opens."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import Command
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.stats import Answer


class Format(StrEnum):
    table = "table"
    csv = "csv"
    tsv = "tsv"
    json = "json"


def stats(
    trace: Path | None = typer.Argument(None, metavar="TRACE", help="Any trace that profkit reads."),
    reports: list[str] | None = typer.Argument(
        None, metavar="[REPORT]...", help="Names from --list; all default ones if none."
    ),
    output: Format = typer.Option(Format.table, "--format", help="How to print."),
    list_reports: bool = typer.Option(False, "--list", help="List the reports and exit."),
    filter_time: str | None = typer.Option(
        None,
        "--filter-time",
        metavar="START/END",
        help="Only events between two times (ns, us, ms, s; either may be missing). A colon outside of an edge, as in "
        ":1ms/2ms:, keeps what crosses it, too.",
    ),
    filter_nvtx: str | None = typer.Option(
        None,
        "--filter-nvtx",
        metavar="RANGE[@DOMAIN][/INDEX]",
        help="Only events of one NVTX range: the first of that name, or number INDEX from 0.",
    ),
) -> None:
    """Print the summaries known from nsys stats: the same columns, units, order and digits.

    A report takes arguments behind a colon, as in cuda_gpu_kern_sum:base; --list says which.
    """
    from profkit import stats as library

    if list_reports:
        for report in library.all_reports():
            takes = "".join(f"[:{word}]" for word in report.arguments)
            print(f"{report.name + takes:40}{report.title}{'' if report.place else ' (only when named)'}")
        return
    if trace is None:
        raise UsageError("stats needs a trace: profkit stats TRACE [REPORT...]; the reports: profkit stats --list")
    chosen = library.choose(reports or ())
    from profkit.cli._open import open_trace
    from profkit.stats import _filter

    window = None if filter_time is None else _filter.parse_time_filter(filter_time)
    opened = open_trace(trace)
    if filter_nvtx is not None:
        opened = _filter.filter_nvtx(opened, filter_nvtx)
    if window is not None:
        opened = _filter.filter_time(opened, window)
    answers = [library.answer(opened, choice) for choice in chosen]
    _say_remarks(answers, output)
    _print(answers, output)


def _say_remarks(answers: list[Answer], output: Format) -> None:
    """Everything that is no data goes to stderr."""
    for answer in answers:
        if answer.listing is None:
            print(f"{answer.name}: {answer.reason}", file=sys.stderr)
        else:
            for remark in answer.listing.remarks:
                print(f"{answer.name}: {remark}", file=sys.stderr)
    printed = [answer.name for answer in answers if answer.listing is not None]
    if output in (Format.csv, Format.tsv) and len(printed) > 1:
        print(f"in this order, a blank line between: {', '.join(printed)}", file=sys.stderr)


def _print(answers: list[Answer], output: Format) -> None:
    from importlib.metadata import version

    from profkit.stats import _render

    if output is Format.json:
        sys.stdout.writelines(_render.as_json(answers, version("profkit")))
        return
    separator = ""
    for answer in answers:
        if answer.listing is None:
            continue
        if output is Format.table:
            sys.stdout.writelines(_render.as_table(f"{answer.report.title} ({answer.name})", answer.listing))
        else:
            sys.stdout.write(separator)
            delimiter = "," if output is Format.csv else "\t"
            sys.stdout.writelines(_render.as_delimited(answer.listing, delimiter))
            separator = "\n"


COMMAND = Command(
    name="stats",
    run=stats,
    example="profkit stats run.sqlite cuda_api_sum --format csv",
)
