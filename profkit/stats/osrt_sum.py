"""Operating system calls by name."""

from __future__ import annotations

from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._summary import by_label, time_columns, time_summary, whole_rows

CALL_CLASS = 27
"""Event class of a call; rows of other classes are bookkeeping of no length."""


def build(trace: Trace, arguments: Arguments) -> Listing:
    whole, remarks = whole_rows(trace, "os_calls")
    counted = whole & (trace.array("os_calls", "event_class") == CALL_CLASS)
    codes, labels = by_label(trace, trace.array("os_calls", "name")[counted])
    dur_ns = trace.array("os_calls", "dur_ns")[counted]
    return time_summary(time_columns("Num Calls", "num_calls"), codes, labels, dur_ns, remarks)


REPORT = Report(
    name="osrt_sum",
    former_name="osrtsum",
    title="OS Runtime Summary",
    what="operating system calls",
    tables=("os_calls",),
    build=build,
    place=2,
)
