"""NVTX push/pop ranges by name."""

from __future__ import annotations

from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._ranges import PUSH_POP, find_ranges
from profkit.stats._summary import time_columns, time_summary


def build(trace: Trace, arguments: Arguments) -> Listing:
    ranges = find_ranges(trace, PUSH_POP, whole=True)
    columns = time_columns("Instances", "instances", "Range")
    return time_summary(columns, ranges.name, ranges.names, ranges.dur, ranges.remarks)


REPORT = Report(
    name="nvtx_pushpop_sum",
    former_name="nvtxppsum",
    title="NVTX Push/Pop Range Summary",
    what="NVTX push/pop ranges",
    tables=("spans",),
    build=build,
)
