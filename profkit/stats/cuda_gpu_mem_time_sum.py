"""Memory copies, memsets and migrations by operation: their times."""

from __future__ import annotations

from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._memory_ops import operations
from profkit.stats._summary import time_columns, time_summary, whole_rows


def build(trace: Trace, arguments: Arguments) -> Listing:
    whole, remarks = whole_rows(trace, "copies")
    codes, labels = operations(trace)
    dur_ns = trace.array("copies", "dur_ns")[whole]
    return time_summary(time_columns("Count", "count", "Operation"), codes[whole], labels, dur_ns, remarks)


REPORT = Report(
    name="cuda_gpu_mem_time_sum",
    former_name="gpumemtimesum",
    title="CUDA GPU MemOps Summary (by Time)",
    what="GPU memory operations",
    tables=("copies",),
    build=build,
    place=5,
)
