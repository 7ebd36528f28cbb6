"""``profkit sql``: a SELECT over the tables of a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import Command
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.sql import Answer


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def run(
    trace: Path | None = typer.Argument(None, metavar="TRACE", help="A trace of any format that profkit reads."),
    query: str | None = typer.Argument(
        None, metavar="SELECT", help="One SELECT in DuckDB's SQL; - reads it from stdin."
    ),
    output_format: Format = typer.Option(Format.table, "--format", help="How to print; parquet needs -o."),
    output: Path | None = typer.Option(None, "-o", "--output", help="File to write instead of stdout."),
    force: bool = typer.Option(False, "--force", help="Overwrite the file if it exists."),
    limit: int = typer.Option(1_000, min=0, help="Most rows; 0 for all."),
    timeout: float = typer.Option(60.0, min=0.001, help="Stop the query after this many seconds."),
    memory: str = typer.Option("4GB", help="Most memory of the query, besides the trace."),
    schema: bool = typer.Option(False, "--schema", help="Print every table and column and exit."),
) -> None:
    """Ask a trace anything: read-only SQL over its tables and what is derived from them."""
    if schema:
        _print_schema(output_format)
        return
    if trace is None or query is None:
        raise UsageError(
            'sql needs a trace and a SELECT: profkit sql TRACE "SELECT ..."; the tables: profkit sql --schema'
        )
    if output_format is Format.parquet and output is None:
        raise UsageError("parquet is no text: name a file with -o FILE.parquet")
    from profkit import sql
    from profkit.analysis.context import Analysis
    from profkit.cli._open import open_trace
    from profkit.derived import Derived
    from profkit.folders import check_file_target, new_file
    from profkit.store import kept_derived

    if output is not None:
        check_file_target(output, trace, force=force)
    words = sys.stdin.read() if query == "-" else query
    opened = open_trace(trace)
    derived = Derived(Analysis(opened), kept_derived(trace))
    answer = sql.query(opened, words, derived, limit=limit, timeout_s=timeout, memory=memory)
    if output is None:
        sys.stdout.writelines(_lines(answer, output_format))
    else:
        with new_file(output) as target:
            _write(answer, output_format, target)
        print(output)
    if answer.cut:
        print(f"only the first {limit} rows: --limit 0 gives all", file=sys.stderr)


def _lines(answer: Answer, output_format: Format) -> Iterable[str]:
    from profkit import sql_text

    if output_format is Format.json:
        return [sql_text.as_json(answer), "\n"]
    return sql_text.as_csv(answer) if output_format is Format.csv else sql_text.as_table(answer)


def _write(answer: Answer, output_format: Format, target: Path) -> None:
    if output_format is Format.parquet:
        from pyarrow import parquet

        parquet.write_table(answer.table, target)
        return
    with target.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.writelines(_lines(answer, output_format))


def _print_schema(output_format: Format) -> None:
    from profkit import sql, sql_text

    columns = list(sql.describe())
    if output_format is Format.json:
        print(sql_text.schema_as_json(columns))
    elif output_format is Format.csv:
        sys.stdout.write(sql_text.schema_as_csv(columns))
    else:
        sys.stdout.writelines(sql_text.schema_as_table(columns))


COMMAND = Command(
    name="sql",
    run=run,
    example='profkit sql run.sqlite "SELECT name, sum(dur_ns) FROM kernels GROUP BY name ORDER BY 2 DESC"',
)
