"""CUDA runtime and driver calls by name."""

from __future__ import annotations

import re

from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._summary import by_label, time_columns, time_summary, whole_rows

# Only a version of four digits goes: cudaLaunchKernel_v7000 loses it, cudaGraphLaunch_v10000 and cuGetProcAddress_v2
# keep theirs. So does nsys, and names must match between the two.
_VERSION = re.compile(r"_v\d{4}$")


def listed_name(name: str) -> str:
    """Name of a call as the report lists it."""
    return _VERSION.sub("", name)


def build(trace: Trace, arguments: Arguments) -> Listing:
    whole, remarks = whole_rows(trace, "calls")
    codes, labels = by_label(trace, trace.array("calls", "name")[whole], listed_name)
    dur_ns = trace.array("calls", "dur_ns")[whole]
    return time_summary(time_columns("Num Calls", "num_calls"), codes, labels, dur_ns, remarks)


REPORT = Report(
    name="cuda_api_sum",
    former_name="cudaapisum",
    title="CUDA API Summary",
    what="CUDA calls",
    tables=("calls",),
    build=build,
    place=3,
)
