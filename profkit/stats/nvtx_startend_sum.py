"""NVTX start/end ranges by name."""

from __future__ import annotations

from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._ranges import START_END, find_ranges
from profkit.stats._summary import time_columns, time_summary


def build(trace: Trace, arguments: Arguments) -> Listing:
    ranges = find_ranges(trace, START_END, whole=True)
    columns = time_columns("Instances", "instances", "Range")
    return time_summary(columns, ranges.name, ranges.names, ranges.dur, ranges.remarks)


REPORT = Report(
    name="nvtx_startend_sum",
    former_name="nvtxsesum",
    title="NVTX Start/End Range Summary",
    what="NVTX start/end ranges",
    tables=("spans",),
    build=build,
)
