"""``profkit report``: what check says, and a timeline, in one HTML file."""

from __future__ import annotations

from pathlib import Path

import typer

from profkit.cli import Command


def run(
    trace: Path = typer.Argument(..., help="A trace of any format that profkit reads."),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="File to write; the trace's name with .html in this folder if not given."
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite the file if it exists."),
    window: str = typer.Option("", help="Part of it: 1.2s:1350ms, step:12, step:10-20 or range:NAME."),
) -> None:
    """Write one offline HTML file.

    Headline, whether to trust the capture, findings with prices, and a timeline, in one file that loads nothing.
    """
    from profkit.analysis.context import Analysis
    from profkit.analysis.window import parse_window
    from profkit.api import check_analysis
    from profkit.cli._open import open_trace
    from profkit.report import check_target, default_name, render_report, write_page

    target = output or Path(default_name(trace))
    check_target(trace, target, force=force)
    opened = open_trace(trace)
    analysis = Analysis(opened, parse_window(opened, window) if window else None)
    write_page(render_report(analysis, check_analysis(analysis)), target)
    print(target)


COMMAND = Command(name="report", run=run, example="profkit report run.sqlite -o run.html")
