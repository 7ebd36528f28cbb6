"""``profkit check``: headline, numbers and findings of a trace."""

from __future__ import annotations

from pathlib import Path

import typer

from profkit.cli import EXIT_GATE_FAILED, Command
from profkit.errors import UsageError


def run(
    trace: Path = typer.Argument(..., help="A trace of any format that profkit reads."),
    window: str = typer.Option("", help="Part of it: 1.2s:1350ms, step:12, step:10-20 or range:NAME."),
    domain: str = typer.Option("", help="Show only ranges of this NVTX domain."),
    as_json: bool = typer.Option(False, "--json", help="Print strict JSON (schema profkit.check/1)."),
    fail_on: str = typer.Option("", help="Exit 3 if a finding is at least this severe: warning or critical."),
) -> None:
    """Say where the time of a trace goes, what would fix it, and what is not known."""
    from profkit.analysis.context import Analysis
    from profkit.analysis.window import parse_window
    from profkit.api import check_analysis
    from profkit.ingest import open_trace
    from profkit.model import SEVERITIES
    from profkit.show import check_document, check_text, to_json

    if fail_on and fail_on not in ("warning", "critical"):
        raise UsageError(f"--fail-on takes warning or critical, not {fail_on!r}")
    opened = open_trace(trace)
    analysis = Analysis(opened, parse_window(opened, window) if window else None)
    result = check_analysis(analysis)
    if domain:
        result.summary["ranges"][:] = [r for r in result.summary["ranges"] if r["domain"] == domain]
    print(to_json(check_document(result)) if as_json else check_text(result))
    if fail_on and any(SEVERITIES.index(f.severity) >= SEVERITIES.index(fail_on) for f in result.findings):
        raise typer.Exit(EXIT_GATE_FAILED)


COMMAND = Command(name="check", run=run, example="profkit check run.sqlite --json")
