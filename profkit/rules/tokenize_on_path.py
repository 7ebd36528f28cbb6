"""PK208 tokenization on the critical path.

What it finds
    Tokenization in ranges called tokenize, on the thread that launches, while the GPU waits for it.

Why it costs time
    The launching thread can do one thing at a time: while it tokenizes, the running requests get no next token. One
    thread that tokenizes for all serialises their first tokens.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: the host's work inside of
    tokenize ranges of the launching thread takes no time there. It fires where that gives back anything; the
    severity says whether it matters.

What to do
    Tokenize on another thread or process (the fast tokenizers release the interpreter's lock), before the request
    reaches the engine.

When it is wrong
    Ranges called tokenize that hold other work, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Finding, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._price import Priced, priced
from profkit.schema import STAGES
from profkit.testing import build_trace, launch, span


def check(analysis: Analysis) -> Iterator[Finding | Priced]:
    idle = analysis.idle.by_cause()["stage_tokenize"] if analysis.has_gpu_rows else 0
    cause = "the thread that launches also tokenizes"
    items = list(
        by_fix(
            analysis,
            RULE,
            ("tokenize-apart",),
            lambda seen: (
                f"The launching thread tokenizes{seen.each_step}: {seen.time}; the GPU stood still for {text.ns(idle)} "
                f"of it{_serial(analysis)}"
            ),
            cause,
        )
    )
    if items or not needs_joined_work(analysis):
        return iter(items)
    return iter(_measured(analysis, idle, cause))


def _measured(analysis: Analysis, idle: int, cause: str) -> Iterator[Finding]:
    """Where no call is joined to its work nothing can be replayed: what the GPU stood still meanwhile, as a ceiling."""
    if not idle:
        return
    part = analysis.idle.part("stage_tokenize")
    yield priced(
        analysis,
        cost=part,
        saving=part,
        step=analysis.steps.of_work[analysis.idle.ends_at] if len(analysis.steps) else np.full(len(part), -1),
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:fault:",
        message=f"The GPU stood still for {text.ns(idle)} while a thread tokenized{_serial(analysis)}",
        cause=cause,
        advice=RULE.advice,
        facts={"idle_ns": idle},
    )


def _serial(analysis: Analysis) -> str:
    """How much tokenizing there was in all, and on how many threads."""
    ranges = analysis.ranges
    mine = np.flatnonzero(ranges.stage == STAGES.index("tokenize"))
    total = int((ranges.end[mine] - ranges.start[mine]).sum())
    threads = len(np.unique(ranges.track[mine]))
    where = "one thread" if threads == 1 else f"{threads} threads"
    return f"; {text.count(len(mine), 'tokenize range')} of {text.ns(total)} in all, on {where}"


def _has_ranges(analysis: Analysis) -> str:
    """Without a range that says so nothing tells tokenization from other work."""
    if (analysis.ranges.stage == STAGES.index("tokenize")).any():
        return ""
    return "no range called tokenize in this trace"


def fires() -> Trace:
    """Five decode steps, with tokenization before each launch."""
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(span("tokenize", t + 10_000, 300_000, payload=100))
        rows += launch("gemm", at=t + 320_000, start=t + 330_000, dur=600_000)
    return build_trace(*rows)


def quiet() -> Trace:
    """The same steps, tokenized on another thread."""
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(span("tokenize", t + 10_000, 300_000, payload=100, tid=200))
        rows += launch("gemm", at=t + 320_000, start=t + 330_000, dur=600_000)
    return build_trace(*rows)


RULE = Rule(
    code="PK208",
    title="Tokenization on the critical path",
    unmet=needs_all(needs_gpu_rows, _has_ranges),
    check=check,
    advice="Tokenize on another thread or process, before the request reaches the engine.",
    fires=fires,
    quiet=quiet,
    record="Put profkit.stage('tokenize') around tokenization.",
)
