"""PK509 ranges with names of their own.

What it finds
    Ranges of which nearly each has a name of its own, since a number, an id or a shape stands in it: at least 5,000
    distinct names, and one for every two ranges or more.

Why it costs time
    It costs no run time worth a price. It costs the answer: what has one range a name has no median, no two steps
    can be compared, and a table of ranges has as many rows as there are ranges. Each name is also registered and
    kept, which makes captures large.

How the cost is computed
    No price. The facts count ranges and names, and how many names are left where digits are taken out (of at most
    10,000 of them).

What to do
    Keep the name and carry the number as payload: with profkit.request(17), profkit.stage("decode", payload=8), or
    an NVTX payload. Names that emit_nvtx makes hold an operator's id: put ranges of your own around what matters.

When it is wrong
    Layers of a large model may all have names of their own, on purpose, in a capture of few steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._evidence import of_spans
from profkit.schema import SPAN_KINDS
from profkit.testing import build_trace, launch, span

FEWEST_NAMES = 5_000
"""More than a large model has layers that anyone would name."""
SMALLEST_SHARE = 0.5
_KINDS = [SPAN_KINDS.index(kind) for kind in ("push_pop", "start_end", "annotation")]
"""Ranges that the program names; operators, modules and functions are named by others."""
_MOST_READ = 10_000
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_LONGEST = 200


def check(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    rows = _ranges(analysis)
    names = distinct(trace.array("spans", "name")[rows])
    if not _explodes(len(names), len(rows)):
        return
    read = names[:: len(names) // _MOST_READ + 1]
    patterns: dict[str, int] = {}
    for row in read.tolist():
        pattern = _NUMBER.sub("#", trace.name(row)[:_LONGEST])
        patterns[pattern] = patterns.get(pattern, 0) + 1
    common = max(patterns, key=lambda pattern: (patterns[pattern], pattern))
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:names:",
        message=(
            f"{text.count(len(rows), 'range')} have {len(names):,} distinct names, {len(rows) / len(names):.1f} ranges "
            f"a name: they cannot be grouped; without the numbers in them, {len(read):,} of these names are "
            f"{text.count(len(patterns), 'name')}, the most common is {text.clip(common, 80)}"
        ),
        cause="a number or an id stands in the name of a range",
        advice=RULE.advice,
        facts={
            "ranges": len(rows),
            "distinct_names": len(names),
            "names_read": len(read),
            "names_without_numbers": len(patterns),
        },
        evidence=of_spans(analysis, rows),
    )


def _explodes(names: int, ranges: int) -> bool:
    return names >= FEWEST_NAMES and names >= SMALLEST_SHARE * ranges


def _ranges(analysis: Analysis) -> Ints:
    kind = analysis.trace.array("spans", "kind")
    named = np.zeros(len(SPAN_KINDS) + 1, bool)
    named[_KINDS] = True
    return np.flatnonzero(named[kind] & analysis.begins_inside("spans"))


def _something_to_see(analysis: Analysis) -> str:
    """Such names are found in any capture; that there are none is said only of one with GPU rows."""
    rows = _ranges(analysis)
    if not len(rows):
        return analysis.trace.why_missing("spans") or "no ranges were recorded that the program named itself"
    names = distinct(analysis.trace.array("spans", "name")[rows])
    return "" if _explodes(len(names), len(rows)) else needs_gpu_rows(analysis)


def _trace(name: str) -> Trace:
    work = launch("gemm", at=0, start=10_000, dur=2_000_000)
    return build_trace(work, *(span(name.format(i), i * 1_000, 900) for i in range(FEWEST_NAMES)))


def fires() -> Trace:
    """Five thousand ranges, each named by its request."""
    return _trace("request number {}")


def quiet() -> Trace:
    """Five thousand ranges of one name."""
    return _trace("forward")


RULE = Rule(
    code="PK509",
    title="Ranges with names of their own",
    unmet=_something_to_see,
    check=check,
    advice=(
        "Keep the name and carry the number as payload: profkit.request(17), profkit.stage('decode', payload=8), or an "
        "NVTX payload."
    ),
    fires=fires,
    quiet=quiet,
    record="Record ranges (nsys: --trace=nvtx) together with GPU work.",
)
