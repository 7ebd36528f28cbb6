"""``profkit whatif``: what fixes would give back, by replaying the trace's own dependencies."""

from __future__ import annotations

from pathlib import Path

import typer

from profkit.cli import Command
from profkit.errors import UsageError


def run(
    trace: Path | None = typer.Argument(None, readable=False, help="A trace of any format that profkit reads."),
    fix: list[str] | None = typer.Option(
        None, "--fix", metavar="NAME", help="A fix from --list; several are applied together. Without: each by itself."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print strict JSON (schema profkit.whatif/1)."),
    list_fixes: bool = typer.Option(False, "--list", help="List the fixes and exit."),
) -> None:
    """Predict what fixes would change.

    The trace is re-timed as a graph of its own dependencies: host threads in order with their recorded work, streams in
    order, events, synchronisations, the launch queue. Says how far that model explains the recorded run; where it does
    not, nothing is predicted.
    """
    from profkit.analysis.fixes import all_fixes

    if list_fixes:
        for each in all_fixes().values():
            name = f"{each.name}:{each.argument}" if each.argument else each.name
            print(f"{name:24}{each.code}  {each.title}")
        return
    if trace is None:
        raise UsageError("whatif needs a trace: profkit whatif TRACE --fix NAME; the fixes: profkit whatif --list")
    from profkit.cli._open import open_trace, working
    from profkit.show import to_json
    from profkit.show_whatif import whatif_document, whatif_text
    from profkit.whatif import what_if

    for name in fix or ():
        from profkit.analysis.fixes import parse_fix

        parse_fix(name)  # a wrong name should not cost the time to read a trace
    opened = open_trace(trace)
    with working("replaying"):
        result = what_if(opened, fix or ())
    print(to_json(whatif_document(result)) if as_json else whatif_text(result))


COMMAND = Command(name="whatif", run=run, example="profkit whatif run.sqlite --fix no-step-sync --fix cuda-graphs")
