"""Kernel executions by kernel name."""

from __future__ import annotations

from profkit import text
from profkit.model import Trace
from profkit.stats import Listing, Report
from profkit.stats._summary import by_label, time_columns, time_summary, whole_rows


def build(trace: Trace) -> Listing:
    whole, remarks = whole_rows(trace, "kernels")
    codes, labels = by_label(trace, trace.array("kernels", "name")[whole])
    dur_ns = trace.array("kernels", "dur_ns")[whole]
    return time_summary(
        time_columns("Instances", "instances"), codes, labels, dur_ns, (*remarks, *_graphs_recorded_whole(trace))
    )


def _graphs_recorded_whole(trace: Trace) -> tuple[str, ...]:
    """A remark for graph launches recorded as one piece: their kernels are busy time that this report cannot list."""
    graphs = trace.rows("graphs")
    if not graphs:
        return ()
    total = int(trace.array("graphs", "dur_ns").sum())
    launches = text.count(graphs, "CUDA graph launch", "CUDA graph launches")
    return (f"the kernels of {launches} ({text.ns(total)}) are not listed: each was recorded as one piece",)


REPORT = Report(
    name="cuda_gpu_kern_sum",
    former_name="gpukernsum",
    title="CUDA GPU Kernel Summary",
    what="GPU kernels",
    tables=("kernels", "graphs"),
    build=build,
    place=3,
)
