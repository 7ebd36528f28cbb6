"""Every kernel with its launch call: the call, the wait in the queue, the execution."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.model import Trace
from profkit.stats import KERNEL_NAMES, Arguments, Column, Listing, Report
from profkit.stats._kernels import launches, ordinals, sizes, threads
from profkit.stats._summary import by_label, known, words
from profkit.stats.cuda_api_sum import listed_name


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = launches(trace)
    kernels = found.kernel
    queue = found.kernel_start - found.call_end
    at_once = queue < 0
    pid, tid = threads(trace, trace.array("calls", "track")[found.call])
    device = ordinals(trace, kernels)
    calls = by_label(trace, trace.array("calls", "name")[found.call], listed_name)
    names = by_label(trace, trace.array("kernels", "name")[kernels], column=arguments.kernel_name)
    columns = [
        (Column("API Start (ns)", "api_start_ns"), pa.array(found.call_start)),
        (Column("API Dur (ns)", "api_dur_ns"), pa.array(found.call_end - found.call_start)),
        (Column("Queue Start (ns)", "queue_start_ns"), known(found.call_end, at_once)),
        (Column("Queue Dur (ns)", "queue_dur_ns"), known(queue, at_once)),
        (Column("Kernel Start (ns)", "kernel_start_ns"), pa.array(found.kernel_start)),
        (Column("Kernel Dur (ns)", "kernel_dur_ns"), pa.array(found.kernel_end - found.kernel_start)),
        (
            Column("Total Dur (ns)", "total_dur_ns"),
            pa.array(np.maximum(found.call_end, found.kernel_end) - found.call_start),
        ),
        (Column("PID", "pid"), known(pid)),
        (Column("TID", "tid"), known(tid)),
        (Column("DevId", "dev_id"), known(device)),
        (Column("API Function", "api_function"), words(*calls)),
        (Column("GridXYZ", "gridxyz"), words(*sizes(trace, "grid", kernels))),
        (Column("BlockXYZ", "blockxyz"), words(*sizes(trace, "block", kernels))),
        (Column("Kernel Name", "kernel_name"), words(*names)),
    ]
    order = pa.array(np.argsort(found.call_start, kind="stable"))
    return Listing(
        tuple(column for column, _ in columns), tuple(values.take(order) for _, values in columns), found.remarks
    )


REPORT = Report(
    name="cuda_kern_exec_trace",
    former_name="kernexectrace",
    title="CUDA Kernel Launch & Exec Time Trace",
    what="GPU kernels with their launch calls",
    tables=("kernels",),
    together=("calls", "kernels"),
    build=build,
    arguments=KERNEL_NAMES,
)
