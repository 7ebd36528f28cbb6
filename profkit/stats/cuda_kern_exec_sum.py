"""Launch and execution times of kernels by thread, device, call and kernel name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.arrays import key_of, numbered
from profkit.model import Array, Ints, Trace
from profkit.stats import KERNEL_NAMES, Arguments, Column, Listing, Report
from profkit.stats._kernels import Launches, launches, ordinals, threads
from profkit.stats._summary import by_label, known, spread, spread_columns, summarize, text_columns, texts
from profkit.stats.cuda_api_sum import listed_name


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = launches(trace)
    pid, tid = threads(trace, trace.array("calls", "track")[found.call])
    device = ordinals(trace, found.kernel)
    calls, call_names = by_label(trace, trace.array("calls", "name")[found.call], listed_name)
    kernels, kernel_names = by_label(trace, trace.array("kernels", "name")[found.kernel], column=arguments.kernel_name)
    _, first, codes = numbered(key_of(pid, tid, device, calls, kernels))
    numbers, average = _statistics(found, codes, len(first))
    labels = [(call_names[calls[row]], kernel_names[kernels[row]]) for row in first.tolist()]
    # The longest average total first; equal ones by thread, device and names.
    ties = zip(*(column[first].tolist() for column in (pid, tid, device)), labels, strict=True)
    ranked = [(-total, *tie) for total, tie in zip(np.round(average, 1).tolist(), ties, strict=True)]
    order = np.asarray(sorted(range(len(ranked)), key=ranked.__getitem__), np.int64)
    heads = [known(column[first][order]) for column in (pid, tid, device)]
    names = [texts(labels[i][part] for i in order.tolist()) for part in (0, 1)]
    return Listing(_columns(), (*heads, *(column.take(pa.array(order)) for column in numbers), *names), found.remarks)


def _columns() -> tuple[Column, ...]:
    heads = [("PID", "pid"), ("TID", "tid"), ("DevId", "dev_id"), ("Count", "count"), ("QCount", "qcount")]
    parts = [("T", "total_"), ("A", "api_"), ("Q", "queue_"), ("K", "kernel_")]
    return (
        *(Column(title, key) for title, key in heads),
        *(column for prefix, key in parts for column in spread_columns(prefix, key)),
        *text_columns("API Name", "Kernel Name"),
    )


def _statistics(found: Launches, codes: Ints, groups: int) -> tuple[list[pa.Array], Array]:
    """(counts and spreads of each group, average total time): a kernel that began during its call has no queue time."""
    total = summarize(codes, np.maximum(found.call_end, found.kernel_end) - found.call_start)
    call = summarize(codes, found.call_end - found.call_start)
    kernel = summarize(codes, found.kernel_end - found.kernel_start)
    waited = found.kernel_start >= found.call_end
    queue = summarize(codes[waited], (found.kernel_start - found.call_end)[waited])
    queued = np.zeros(groups, np.int64)
    queued[queue.code] = queue.count
    at = np.zeros(groups, np.int64)
    at[queue.code] = np.arange(len(queue.code))
    rows = pa.array(at, mask=queued == 0)
    numbers = [pa.array(total.count), pa.array(queued)]
    numbers += [pa.array(column) for column in (*spread(total), *spread(call))]
    numbers += [pa.array(column).take(rows) for column in spread(queue)]
    numbers += [pa.array(column) for column in spread(kernel)]
    return numbers, total.average


REPORT = Report(
    name="cuda_kern_exec_sum",
    former_name="kernexecsum",
    title="CUDA Kernel Launch & Exec Time Summary",
    what="GPU kernels with their launch calls",
    tables=("kernels",),
    together=("calls", "kernels"),
    build=build,
    arguments=KERNEL_NAMES,
)
