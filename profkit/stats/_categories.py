"""Calls, kernels and memory operations in one summary: what cuda_gpu_sum and cuda_api_gpu_sum list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.late_ends import late_kernels
from profkit.model import Array, Mask, Trace
from profkit.stats import Arguments, Listing
from profkit.stats._memory_ops import operations
from profkit.stats._summary import by_label, graphs_recorded_whole, time_columns, time_summary, whole_rows
from profkit.stats.cuda_api_sum import listed_name

CATEGORIES = {"calls": "CUDA_API", "kernels": "CUDA_KERNEL", "copies": "MEMORY_OPER"}


def by_category(trace: Trace, tables: Sequence[str], arguments: Arguments) -> Listing:
    """Times of the rows of these tables by category and operation."""
    codes: list[Array] = []
    times: list[Array] = []
    labels: list[tuple[str, ...]] = []
    remarks: list[str] = []
    late: list[Mask] = []
    for table in tables:
        whole, said = whole_rows(trace, table)
        code, names = _operations(trace, table, arguments)
        codes.append(code[whole] + len(labels))
        times.append(trace.array(table, "dur_ns")[whole])
        labels += [(CATEGORIES[table], name) for name in names]
        remarks += said
        late.append(late_kernels(trace)[whole] if table == "kernels" else np.zeros(int(whole.sum()), bool))
    columns = time_columns("Instances", "instances", "Category", "Operation")
    said = (*remarks, *graphs_recorded_whole(trace))
    return time_summary(columns, np.concatenate(codes), labels, np.concatenate(times), said, np.concatenate(late))


def _operations(trace: Trace, table: str, arguments: Arguments) -> tuple[Array, list[str]]:
    if table == "copies":
        return operations(trace)
    if table == "calls":
        return by_label(trace, trace.array("calls", "name"), listed_name)
    return by_label(trace, trace.array("kernels", "name"), column=arguments.kernel_name)
