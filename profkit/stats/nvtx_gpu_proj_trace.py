"""Every NVTX range with GPU work, projected onto the GPU."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.model import Trace
from profkit.stats import Arguments, Column, Listing, Report
from profkit.stats._kernels import threads
from profkit.stats._projection import project
from profkit.stats._ranges import STYLES, numbers, stacks
from profkit.stats._summary import known, words


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = project(trace)
    ranges, place = found.ranges, found.tree
    pid, tid = threads(trace, ranges.track)
    ids = numbers(ranges)
    columns = [
        (Column("Name", "name"), words(ranges.name, ranges.names)),
        (Column("Projected Start (ns)", "projected_start_ns"), pa.array(found.start)),
        (Column("Projected Duration (ns)", "projected_duration_ns"), pa.array(found.end - found.start)),
        (Column("Orig Start (ns)", "orig_start_ns"), pa.array(ranges.start)),
        (Column("Orig Duration (ns)", "orig_duration_ns"), pa.array(ranges.dur)),
        (Column("Style", "style"), words(ranges.style, STYLES)),
        (Column("PID", "pid"), known(pid)),
        (Column("TID", "tid"), known(tid)),
        (Column("NumGPUOps", "num_gpu_ops"), pa.array(found.operations)),
        (Column("Lvl", "level"), pa.array(place.level)),
        (Column("NumChild", "num_child"), pa.array(found.children)),
        (Column("RangeId", "range_id"), pa.array(ids)),
        (Column("ParentId", "parent_id"), pa.array(ids[place.parent], mask=place.parent < 0)),
        (Column("RangeStack", "range_stack"), stacks(ids, place)),
    ]
    rows = np.flatnonzero(found.projected)
    start, dur = found.start[rows], found.end[rows] - found.start[rows]
    order = pa.array(rows[np.lexsort((-dur, start))])
    return Listing(
        tuple(column for column, _ in columns), tuple(values.take(order) for _, values in columns), found.remarks
    )


REPORT = Report(
    name="nvtx_gpu_proj_trace",
    former_name="nvtxgpuproj",
    title="NVTX GPU Projection Trace",
    what="NVTX ranges with GPU work",
    tables=("kernels", "copies"),
    together=("spans", "calls"),
    build=build,
)
