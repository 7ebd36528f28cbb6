"""``profkit export``: a trace in the formats of other tools, or as a store that opens at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from profkit.cli import Command


class Target(StrEnum):
    """The exporters by name; a test holds this list and ``profkit.export`` together."""

    store = "store"
    perfetto = "perfetto"
    parquet = "parquet"
    csv = "csv"


def run(
    trace: Path = typer.Argument(..., help="A trace of any format that profkit reads."),
    to: Target = typer.Option(
        ...,
        "--to",
        help="store, parquet and csv make a folder, perfetto one JSON file (gzip where the name ends in .gz).",
    ),
    output: Path = typer.Option(..., "-o", "--output", help="File or folder to write."),
    force: bool = typer.Option(False, "--force", help="Replace what is there, if profkit wrote it or it is a file."),
    window: str = typer.Option("", help="Part of it: 1.2s:1350ms, step:12, step:10-20 or range:NAME."),
) -> None:
    """Write a trace for another tool: Perfetto's UI, pandas, a spreadsheet; or as profkit's own store."""
    from profkit import export
    from profkit.analysis.context import Analysis
    from profkit.analysis.window import parse_window
    from profkit.cli._open import open_trace

    exporter = export.exporters()[to.value]
    export.check_target(exporter, trace, output, force=force, windowed=bool(window))
    opened = open_trace(trace)
    exporter.write(Analysis(opened, parse_window(opened, window) if window else None), output)
    print(output)


COMMAND = Command(name="export", run=run, example="profkit export run.sqlite --to perfetto -o run.perfetto.json.gz")
