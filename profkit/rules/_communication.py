"""Which device rows are communication between GPUs, and when one of them waited for its last rank."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.analysis.collectives import find_arrivals
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import EMPTY, Intervals, clip, union
from profkit.analysis.work import GRAPHS, KERNELS
from profkit.model import Mask


def communication(analysis: Analysis) -> Mask:
    """Rows of ``analysis.work`` that are kernels of collectives, by the family of their names."""
    trace, work = analysis.trace, analysis.work
    family = pc.equal(trace.tables["names"].column("family"), "collective")
    told: Mask = pa.chunked_array(family).combine_chunks().to_numpy(zero_copy_only=False)
    out = np.zeros(len(work), bool)
    if told.any():
        kernels = np.flatnonzero(work.table == KERNELS)
        name = trace.array("kernels", "name")[work.row[kernels]]
        out[kernels] = (name >= 0) & told[np.maximum(name, 0)]
    return out


def not_told_apart(analysis: Analysis) -> str:
    """Why communication is not told from other work, "" if it is: a graph recorded as one piece may hold both."""
    if (analysis.work.table == GRAPHS).any():
        return "CUDA graphs were recorded as one piece: what ran inside is not known"
    return ""


def waits_of(analysis: Analysis) -> dict[int, Intervals]:
    """When collectives of each device waited for their last rank; only devices with a matched collective are in it."""
    trace, window = analysis.trace, analysis.window
    if window is None or not trace.rows("collectives"):
        return {}
    arrivals = find_arrivals(trace)
    device = arrivals.member_device[arrivals.member] if len(arrivals) else np.zeros(0, np.int64)
    start = trace.array("collectives", "start_ns")[arrivals.row]
    waited = np.maximum(arrivals.member_wait_ns, 0)
    out = {}
    for row in np.unique(device).tolist():
        mine = device == row
        found = union(start[mine], start[mine] + waited[mine])
        out[int(row)] = clip(found, window.start_ns, window.end_ns) if len(found) else EMPTY
    return out
