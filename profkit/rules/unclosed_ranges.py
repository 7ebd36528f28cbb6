"""PK508 unclosed ranges.

What it finds
    Ranges that were opened and never closed in the capture: how many, which names, how deep.

Why it costs time
    It costs no run time. An unclosed range has no length: it is drawn to the end of the capture and is in no
    median, and a step or a stage that is not closed is not counted. Numbers of such ranges are those of the rest.

How the cost is computed
    No price. Some open ranges at the end are usual: what was running then. It is a warning where at least 10 of
    them were open for over twice as long as any closed range of their name, or share name and thread with others
    where none of that name was ever closed: then the program forgets to close them.

What to do
    Close ranges with a context manager or a finally block (with profkit.stage(...): closes on exceptions, too); pop
    on the thread that pushed; end start/end ranges with the id that their start returned.

When it is wrong
    Requests that hang really are open that long. A recursion that was running at the end looks like ranges that
    were forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.arrays import key_of
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._evidence import of_spans
from profkit.schema import FLAG_OPEN_END, SPAN_KINDS
from profkit.testing import Row, build_trace, launch, span

FEWEST_FORGOTTEN = 10
TOO_LONG = 2
"""Times the longest closed range of a name."""
_MOST_NAMED = 4
_MARK = SPAN_KINDS.index("mark")


def check(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    ranges = np.flatnonzero(_ranges(analysis))
    rows = ranges[(trace.array("spans", "flags")[ranges] & FLAG_OPEN_END) != 0]
    if not len(rows):
        return
    forgotten = rows[_forgotten(trace, ranges, rows)]
    names, count = np.unique(trace.array("spans", "name")[rows], return_counts=True)
    most = np.argsort(-count, kind="stable")[:_MOST_NAMED]
    said = ", ".join(f"{_name(trace, int(names[i]))} ({int(count[i]):,})" for i in most)
    _, at_once = np.unique(trace.array("spans", "track")[rows], return_counts=True)
    depth = int(at_once.max())
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:ranges:",
        severity="warning" if len(forgotten) >= FEWEST_FORGOTTEN else "info",
        message=(
            f"{len(rows):,} of {text.count(len(ranges), 'range')} ({text.percent(len(rows) / len(ranges))}) "
            f"{'was' if len(rows) == 1 else 'were'} never closed, up to {depth:,} at once on one thread: {said}"
            f"{', ...' if len(names) > _MOST_NAMED else ''}; " + _usual(len(forgotten))
        ),
        cause="ranges are opened and not closed" if len(forgotten) else "the recording ended inside of these ranges",
        advice=RULE.advice,
        facts={
            "ranges": len(ranges),
            "unclosed_ranges": len(rows),
            "unclosed_names": len(names),
            "unclosed_at_once_on_one_thread": depth,
            "open_for_too_long": len(forgotten),
        },
        evidence=of_spans(analysis, forgotten if len(forgotten) else rows),
    )


def _usual(forgotten: int) -> str:
    if not forgotten:
        return "as ranges that were running when the recording ended"
    return (
        f"{forgotten:,} of them for over {TOO_LONG} times as long as any closed one of their name, or beside others of "
        "a name that was never closed"
    )


def _ranges(analysis: Analysis) -> Mask:
    """Ranges (no marks) that begin inside of what is looked at."""
    mask: Mask = (analysis.trace.array("spans", "kind") != _MARK) & analysis.begins_inside("spans")
    return mask


def _forgotten(trace: Trace, ranges: Ints, rows: Ints) -> Mask:
    """Open ranges that no program which closes its ranges would have at its end."""
    name, length = trace.array("spans", "name"), trace.array("spans", "dur_ns")
    longest = np.full(trace.rows("names") + 1, -1, np.int64)
    is_open = np.zeros(trace.rows("names") + 1, bool)
    is_open[name[rows]] = True
    closed = ranges[is_open[name[ranges]] & ((trace.array("spans", "flags")[ranges] & FLAG_OPEN_END) == 0)]
    np.maximum.at(longest, name[closed], length[closed])
    known = longest[name[rows]]
    _, of, times = np.unique(
        key_of(name[rows], trace.array("spans", "track")[rows]), return_inverse=True, return_counts=True
    )
    mask: Mask = np.where(known >= 0, length[rows] // TOO_LONG > known, times[of] > 1)
    return mask


def _name(trace: Trace, row: int) -> str:
    return text.clip(trace.name(row), 80) or "(no name)"


def _something_to_see(analysis: Analysis) -> str:
    """Ranges that are open are found in any capture; that there are none is said only of one with GPU rows."""
    ranges = _ranges(analysis)
    if not ranges.any():
        return analysis.trace.why_missing("spans") or "no ranges were recorded"
    open_ = (analysis.trace.array("spans", "flags")[ranges] & FLAG_OPEN_END) != 0
    return "" if open_.any() else needs_gpu_rows(analysis)


def _trace(closed: bool) -> Trace:
    rows: list[Row | list[Row]] = [launch("gemm", at=0, start=10_000, dur=2_000_000)]
    return build_trace(*rows, *(span("decode", i * 100_000, 90_000 if closed or i % 2 else -1) for i in range(40)))


def fires() -> Trace:
    """Forty ranges of which every other one is never closed."""
    return _trace(closed=False)


def quiet() -> Trace:
    """Forty ranges, all closed."""
    return _trace(closed=True)


RULE = Rule(
    code="PK508",
    title="Unclosed ranges",
    unmet=_something_to_see,
    check=check,
    advice=(
        "Close ranges with a context manager or in a finally block, on the thread that opened them; end start/end "
        "ranges with the id of their start."
    ),
    fires=fires,
    quiet=quiet,
    record="Record ranges (nsys: --trace=nvtx) together with GPU work.",
)
