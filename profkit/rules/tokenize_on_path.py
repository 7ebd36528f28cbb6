"""PK208 tokenization on the critical path.

What it finds
    Tokenization in ranges called tokenize, on the thread that launches, while the GPU waits for it; or on threads
    of its own, where the GPU has nothing to do until one of them is done.

Why it costs time
    The launching thread can do one thing at a time: while it tokenizes, the running requests get no next token. One
    thread that tokenizes for all serialises their first tokens.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies: the host's work inside of
    tokenize ranges of the launching thread takes no time there. On threads of its own: the time in which the GPU
    stood still and a tokenize range was open, where its next work began right behind one. It fires where that gives
    back anything; the severity says whether it matters.

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
from profkit.analysis.intervals import union
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_joined_work
from profkit.rules._by_fix import by_fix
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._price import Priced, priced
from profkit.schema import STAGES
from profkit.testing import build_trace, launch, span

SMALLEST_SHARE = 0.02
"""Of the window: less is no bottleneck."""
_MOST_BEHIND = 0.1
_SOON_NS = 1_000_000
"""Work that begins so soon behind a tokenize range (or behind a tenth of it) was waiting for it."""


def check(analysis: Analysis) -> Iterator[Finding | Priced]:
    own = analysis.idle.part("stage_tokenize")
    items = list(
        by_fix(
            analysis,
            RULE,
            ("tokenize-apart",),
            lambda seen: (
                f"The launching thread tokenizes{_serial(analysis)}; the GPU stood still for "
                f"{text.ns(int(own.sum())) if own.any() else 'none'} of it"
            ),
            "the thread that launches also tokenizes",
        )
    )
    if items:
        return iter(items)
    if needs_joined_work(analysis) and own.any():
        return iter(_measured(analysis, own, "the thread that launches also tokenizes"))
    apart = _waits_for_tokens(analysis)
    share = int(apart.sum()) / analysis.window.dur_ns if analysis.window and analysis.window.dur_ns else 0
    if share < SMALLEST_SHARE:
        return iter(())
    return iter(_measured(analysis, apart, "the next prefill waits for its tokens, which one thread makes in turn"))


def _waits_for_tokens(analysis: Analysis) -> Ints:
    """How much of each gap lies in tokenize ranges of other threads, where one ends right before the gap does, ns."""
    idle, ranges = analysis.idle, analysis.ranges
    mine = np.flatnonzero(ranges.stage == STAGES.index("tokenize"))
    covered = union(ranges.start[mine], ranges.end[mine])
    if not len(covered):
        return np.zeros(len(idle), np.int64)
    part = covered.covered(idle.start, idle.end)
    last = np.searchsorted(covered.end, idle.end, side="right") - 1
    ends = np.where(last >= 0, covered.end[np.maximum(last, 0)], np.iinfo(np.int64).min // 2)
    behind = idle.end - np.maximum(ends, idle.start)
    # Work that begins while a range is open waits for another one.
    return np.where((last >= 0) & (behind <= np.maximum(_MOST_BEHIND * part, _SOON_NS)), part, 0)


def _measured(analysis: Analysis, part: Ints, cause: str) -> Iterator[Finding]:
    """What nothing can replay (no calls joined to work, a hand-over between threads): what the GPU stood still."""
    idle = int(part.sum())
    gaps = np.flatnonzero(part)
    yield priced(
        analysis,
        cost=part[gaps],
        saving=part[gaps],
        step=analysis.steps.of_work[analysis.idle.ends_at[gaps]],
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:fault:",
        message=f"Work waits for its tokens: the GPU stood still for {text.ns(idle)} of tokenizing{_serial(analysis)}",
        cause=cause,
        advice=RULE.advice,
        facts={"idle_ns": idle, "gaps": len(gaps)},
        evidence=of_work(analysis, analysis.idle.ends_at[gaps[longest_first(part[gaps])]]),
    )


def _serial(analysis: Analysis) -> str:
    """How much tokenizing there was in all, and on how many threads."""
    ranges = analysis.ranges
    mine = np.flatnonzero(ranges.stage == STAGES.index("tokenize"))
    total = int((ranges.end[mine] - ranges.start[mine]).sum())
    threads = len(np.unique(ranges.track[mine]))
    where = "one thread" if threads == 1 else f"{threads} threads"
    return f": {text.count(len(mine), 'tokenize range')} of {text.ns(total)} in all, on {where}"


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
    """Steps that keep the GPU busy while another thread tokenizes."""
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(span("tokenize", t + 10_000, 300_000, payload=100, tid=200))
        rows += launch("gemm", at=t + 5_000, start=t + 10_000, dur=980_000)
    return build_trace(*rows)


RULE = Rule(
    code="PK208",
    title="Tokenization on the critical path",
    unmet=needs_all(needs_gpu_rows, _has_ranges),
    check=check,
    advice="Tokenize on other threads or processes, several at once, before the request reaches the engine.",
    fires=fires,
    quiet=quiet,
    by_fix=True,
    record="Put profkit.stage('tokenize') around tokenization.",
)
