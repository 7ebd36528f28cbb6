"""The library calls behind the commands: open a trace, check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from profkit.analysis.context import Analysis
from profkit.analysis.summary import summarize, trace_facts
from profkit.headline import write_headline
from profkit.ingest import open_trace
from profkit.judge import run_rules
from profkit.model import CheckResult, Trace, Window


def open(path: str | Path) -> Trace:  # noqa: A001 - profkit.open is the public name
    """Read a trace of any format that profkit knows, found by content.

    Raises InputError, in one line, for what is missing, damaged or no trace.
    """
    return open_trace(path)


def check(trace: Trace | str | Path, window: Window | None = None) -> CheckResult:
    """Everything that profkit has to say about a trace: headline, findings by saving, what could not be judged."""
    if not isinstance(trace, Trace):
        trace = open_trace(trace)
    return check_analysis(Analysis(trace, window))


def check_analysis(analysis: Analysis, wanted: Callable[[str], bool] = lambda code: True) -> CheckResult:
    """:func:`check` on an analysis that is at hand, by the rules whose code is ``wanted``."""
    verdict = run_rules(analysis, wanted)
    facts: Mapping[str, Any] = trace_facts(analysis)
    return CheckResult(
        headline=write_headline(analysis, verdict),
        findings=verdict.findings,
        others=verdict.others,
        not_run=verdict.not_run,
        clean=verdict.clean,
        replayed=analysis.replayed.sampled if analysis.has_gpu_rows and analysis.selected is None else "",
        trace=facts,
        summary=summarize(analysis),
    )
