"""Kernel executions by kernel name, grid and block size."""

from __future__ import annotations

import numpy as np

from profkit.arrays import key_of, numbered
from profkit.late_ends import late_kernels
from profkit.model import Trace
from profkit.stats import KERNEL_NAMES, Arguments, Listing, Report
from profkit.stats._kernels import sizes
from profkit.stats._summary import by_label, graphs_recorded_whole, time_columns, time_summary, whole_rows


def build(trace: Trace, arguments: Arguments) -> Listing:
    whole, remarks = whole_rows(trace, "kernels")
    rows = np.flatnonzero(whole)
    names, texts = by_label(trace, trace.array("kernels", "name")[rows], column=arguments.kernel_name)
    (grids, grid_texts), (blocks, block_texts) = (sizes(trace, what, rows) for what in ("grid", "block"))
    _, first, codes = numbered(key_of(names, grids, blocks))
    labels = [
        (grid_texts[grid], block_texts[block], texts[name])
        for grid, block, name in zip(grids[first].tolist(), blocks[first].tolist(), names[first].tolist(), strict=True)
    ]
    columns = time_columns("Instances", "instances", "GridXYZ", "BlockXYZ", "Name")
    dur_ns = trace.array("kernels", "dur_ns")[rows]
    said = (*remarks, *graphs_recorded_whole(trace))
    return time_summary(columns, codes, labels, dur_ns, said, late_kernels(trace)[rows])


REPORT = Report(
    name="cuda_gpu_kern_gb_sum",
    former_name="",
    title="CUDA GPU Kernel/Grid/Block Summary",
    what="GPU kernels",
    tables=("kernels", "graphs"),
    build=build,
    arguments=KERNEL_NAMES,
)
