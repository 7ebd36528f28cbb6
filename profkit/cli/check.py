"""``profkit check``: headline, numbers and findings of a trace."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import typer

from profkit.cli import EXIT_GATE_FAILED, Command
from profkit.errors import UsageError


def run(
    trace: Path = typer.Argument(..., readable=False, help="A trace of any format that profkit reads."),
    window: str = typer.Option("", help="Part of it: 1.2s:1350ms, step:12, range:NAME."),
    device: int = typer.Option(-1, min=-1, show_default=False, help="Only this GPU, by the number that check shows."),
    domain: str = typer.Option("", help="Show only ranges of this NVTX domain."),
    as_json: bool = typer.Option(False, "--json", help="Print strict JSON (schema profkit.check/1)."),
    select: str = typer.Option("", help="Only these rules, by code or its beginning: PK3,PK201."),
    ignore: str = typer.Option("", help="All rules but these."),
    model: str = typer.Option("", help="The model that ran, for MBU and MFU: a preset, or a config.json."),
    stages: Path = typer.Option(None, help="A TOML file of more ranges that are stages (see docs/numbers.md)."),
    everything: bool = typer.Option(False, "--all", help="Also findings that hardly matter, and what was clean."),
    fail_on: str = typer.Option("", help="Exit 3 if a finding is at least this severe: warning or critical."),
) -> None:
    """Say where the time of a trace goes.

    And what would fix it, at what price, and what is not known. A window is START:END (either may be left out),
    step:N or step:N-M (counted from 0; a step's time is its period), or range:NAME (the first of that name).
    """
    from profkit.analysis.context import Analysis
    from profkit.analysis.devices import only_device
    from profkit.analysis.llm import read_llm
    from profkit.analysis.window import parse_window
    from profkit.api import check_analysis
    from profkit.cli._open import open_trace
    from profkit.judge import chosen_by
    from profkit.model import SEVERITIES
    from profkit.show import check_document, check_text, to_json
    from profkit.stages import read_stage_file, with_stages

    if fail_on and fail_on not in ("warning", "critical"):
        raise UsageError(f"--fail-on takes warning or critical, not {fail_on!r}")
    llm = read_llm(model) if model else None
    more_stages = read_stage_file(stages) if stages is not None else ()
    opened = open_trace(trace)
    if more_stages:
        opened = with_stages(opened, more_stages)
    if device >= 0:
        opened = only_device(opened, device)
    analysis = Analysis(opened, parse_window(opened, window) if window else None, llm)
    result = check_analysis(analysis, chosen_by(codes(select), codes(ignore)))
    if domain:
        keep_domain(result.summary["ranges"], domain)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    print(to_json(check_document(result)) if as_json else check_text(result, width, everything))
    if fail_on and any(
        SEVERITIES.index(f.severity) >= SEVERITIES.index(fail_on) for f in (*result.findings, *result.others)
    ):
        raise typer.Exit(EXIT_GATE_FAILED)


def codes(text: str) -> tuple[str, ...]:
    """``PK3,PK201`` as a tuple. Raises UsageError for what no rule's code begins with."""
    from profkit.rules import all_rules

    wanted = tuple(code.strip().upper() for code in text.split(",") if code.strip())
    for code in wanted:
        if not any(known.startswith(code) for known in all_rules()):
            raise UsageError(f"no rule's code begins with {code}: profkit rules lists them")
    return wanted


def keep_domain(ranges: list[dict[str, object]], domain: str) -> None:
    """Leave only the ranges of an NVTX domain. Raises UsageError for one that the trace does not have."""
    known = sorted({str(r["domain"]) for r in ranges if r["domain"]})
    if domain not in known:
        raise UsageError(f"no ranges of domain {domain!r}: there are {', '.join(known) or 'none but the default'}")
    ranges[:] = [r for r in ranges if r["domain"] == domain]


COMMAND = Command(name="check", run=run, example="profkit check run.sqlite --json")
