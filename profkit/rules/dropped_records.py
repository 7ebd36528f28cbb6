"""PK510 records dropped or lost.

What it finds
    Messages of the profiler that records were dropped, lost or overwritten, or that it ran out of memory for them;
    and files that end early or that could be read in part only. Single events that make no sense and were left out
    are a warning of the reader, and no finding.

Why it costs time
    It costs no run time. What is missing looks like idle time, like fewer kernels, like launches without work.

How the cost is computed
    No price: nobody knows what was lost. The messages are the profiler's own words, cut at 200 characters.

What to do
    Record less at a time: a shorter window, fewer kinds of events, no call stacks, no sampling; give the profiler
    larger buffers, memory and disk; let the program end before the profiler is ended; export the report again.

When it is wrong
    A message may be about events that no number here is made of (CPU samples, events of another process). A capture
    without such a message is not proven whole: PyTorch's profiler never says that it dropped records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Finding, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.testing import build_trace, kernel

_LOST = re.compile(
    r"(?i)\bdropped\b|\blost\b|overflow|overwrit|out of memory|incomplete|corrupt"
    r"|\bends early\b|^partial\b"
)
_SILENT = re.compile("kineto|rank-folder")
"""Sources that never say that they dropped records."""
_MOST_SAID = 3
_WIDTH = 200


def check(analysis: Analysis) -> Iterator[Finding]:
    said = _said(analysis)
    partial = analysis.trace.meta.partial
    if not said and not partial:
        return
    words = "; ".join(f"\u201c{text.clip(one, _WIDTH)}\u201d" for one in said[:_MOST_SAID])
    more = f" and {text.count(len(said) - _MOST_SAID, 'more message')}" if len(said) > _MOST_SAID else ""
    what = "part of the file could not be read" if partial else "records are missing"
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:messages:",
        severity="warning",
        message=f"The capture is not whole, {what}{': ' if words else ''}{words}{more}",
        cause="the profiler dropped records, or the file lost them",
        advice=RULE.advice,
        facts={"messages": len(said), "partial": int(partial)},
    )


def _said(analysis: Analysis) -> list[str]:
    meta = analysis.trace.meta
    return [warning for warning in dict.fromkeys(meta.warnings) if _LOST.search(warning)]


def _something_to_see(analysis: Analysis) -> str:
    """A message is found in any capture; that there is none says something only of a profiler that would tell."""
    meta = analysis.trace.meta
    if _said(analysis) or meta.partial:
        return ""
    if _SILENT.search(meta.source):
        return "this profiler does not say whether it dropped records"
    return needs_gpu_rows(analysis)


def fires() -> Trace:
    """A capture whose profiler says that it dropped events."""
    return build_trace(kernel(0, 1_000), warnings=("CUDA: 12345 events were dropped, the buffer is full.",))


def quiet() -> Trace:
    """A capture whose profiler has nothing of the kind to say."""
    return build_trace(kernel(0, 1_000), warnings=("Does the process use OpenGL?",))


RULE = Rule(
    code="PK510",
    title="Records dropped or lost",
    unmet=_something_to_see,
    check=check,
    advice=(
        "Record less at a time (a shorter window, fewer kinds of events), give the profiler more room, and let the "
        "program end before the profiler is ended."
    ),
    fires=fires,
    quiet=quiet,
    record="Record with nsys, which says what it dropped.",
)
