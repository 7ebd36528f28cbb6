"""NVTX ranges by style and name."""

from __future__ import annotations

from profkit.arrays import numbered
from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._ranges import STYLES, find_ranges
from profkit.stats._summary import time_columns, time_summary


def build(trace: Trace, arguments: Arguments) -> Listing:
    ranges = find_ranges(trace, whole=True)
    keys, _, codes = numbered(ranges.name * len(STYLES) + ranges.style)
    labels = [(STYLES[key % len(STYLES)], ranges.names[key // len(STYLES)]) for key in keys.tolist()]
    columns = time_columns("Instances", "instances", "Style", "Range")
    return time_summary(columns, codes, labels, ranges.dur, ranges.remarks)


REPORT = Report(
    name="nvtx_sum",
    former_name="nvtxsum",
    title="NVTX Range Summary",
    what="NVTX ranges",
    tables=("spans",),
    build=build,
    place=1,
)
