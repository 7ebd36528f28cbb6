"""NVTX ranges projected onto the GPU, by name and style."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.arrays import numbered
from profkit.model import Array, Ints, Trace
from profkit.stats import Arguments, Column, Listing, Report
from profkit.stats._projection import project
from profkit.stats._ranges import STYLES
from profkit.stats._summary import spread, spread_columns, summarize, texts


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = project(trace)
    rows = np.flatnonzero(found.projected)
    ranges = found.ranges
    keys, _, codes = numbered(ranges.name[rows] * len(STYLES) + ranges.style[rows])
    projected = summarize(codes, found.end[rows] - found.start[rows])
    dur, operations, level, children = (
        _sums(codes, values[rows], len(keys))
        for values in (ranges.dur, found.operations, found.tree.level, found.children)
    )
    names = [ranges.names[key // len(STYLES)] for key in keys.tolist()]
    styles = [STYLES[key % len(STYLES)] for key in keys.tolist()]
    ranked = list(zip((-projected.total).tolist(), names, styles, strict=True))
    order = np.asarray(sorted(range(len(ranked)), key=ranked.__getitem__), np.int64)
    numbers: list[Array] = [projected.total, dur, projected.count, *spread(projected), operations]
    numbers += [total / projected.count for total in (operations, level, children)]
    words = [texts(column[i] for i in order.tolist()) for column in (names, styles)]
    return Listing(_columns(), (*words, *(pa.array(column[order]) for column in numbers)), found.remarks)


def _columns() -> tuple[Column, ...]:
    return (
        Column("Range", "range"),
        Column("Style", "style"),
        Column("Total Proj Time (ns)", "total_proj_time_ns"),
        Column("Total Range Time (ns)", "total_range_time_ns"),
        Column("Range Instances", "range_instances"),
        *spread_columns("Proj ", "proj_"),
        Column("Total GPU Ops", "total_gpu_ops"),
        Column("Avg GPU Ops", "avg_gpu_ops", 1),
        Column("Avg Range Lvl", "avg_range_level", 1),
        Column("Avg Num Child", "avg_num_child", 1),
    )


def _sums(codes: Ints, values: Ints, groups: int) -> Ints:
    """Sum of the values of each group, exact."""
    total = np.zeros(groups, np.int64)
    np.add.at(total, codes, values)
    return total


REPORT = Report(
    name="nvtx_gpu_proj_sum",
    former_name="",
    title="NVTX GPU Projection Summary",
    what="NVTX ranges with GPU work",
    tables=("kernels", "copies"),
    together=("spans", "calls"),
    build=build,
)
