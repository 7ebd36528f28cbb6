"""Memory copies, memsets and migrations by operation: their sizes."""

from __future__ import annotations

from profkit import text
from profkit.model import Trace
from profkit.stats import Arguments, Listing, Report
from profkit.stats._memory_ops import operations
from profkit.stats._summary import size_summary


def build(trace: Trace, arguments: Arguments) -> Listing:
    codes, labels = operations(trace)
    num_bytes = trace.array("copies", "bytes")
    known = num_bytes >= 0
    without = len(known) - int(known.sum())
    remarks = (f"{text.count(without, 'memory operation')} left out: no size was recorded",) if without else ()
    return size_summary(codes[known], labels, num_bytes[known], remarks)


REPORT = Report(
    name="cuda_gpu_mem_size_sum",
    former_name="gpumemsizesum",
    title="CUDA GPU MemOps Summary (by Size)",
    what="GPU memory operations",
    tables=("copies",),
    build=build,
    place=6,
)
