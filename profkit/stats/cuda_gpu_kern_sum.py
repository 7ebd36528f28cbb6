"""Kernel executions by kernel name."""

from __future__ import annotations

from profkit.late_ends import late_kernels
from profkit.model import Trace
from profkit.stats import KERNEL_NAMES, Arguments, Listing, Report
from profkit.stats._summary import by_label, graphs_recorded_whole, time_columns, time_summary, whole_rows


def build(trace: Trace, arguments: Arguments) -> Listing:
    whole, remarks = whole_rows(trace, "kernels")
    codes, labels = by_label(trace, trace.array("kernels", "name")[whole], column=arguments.kernel_name)
    dur_ns = trace.array("kernels", "dur_ns")[whole]
    columns = time_columns("Instances", "instances")
    said = (*remarks, *graphs_recorded_whole(trace))
    return time_summary(columns, codes, labels, dur_ns, said, late_kernels(trace)[whole])


REPORT = Report(
    name="cuda_gpu_kern_sum",
    former_name="gpukernsum",
    title="CUDA GPU Kernel Summary",
    what="GPU kernels",
    tables=("kernels", "graphs"),
    build=build,
    arguments=KERNEL_NAMES,
    place=4,
)
