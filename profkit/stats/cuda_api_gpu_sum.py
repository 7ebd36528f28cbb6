"""CUDA calls, kernels and memory operations by name, each with its category."""

from __future__ import annotations

from profkit.model import Trace
from profkit.stats import KERNEL_NAMES, Arguments, Listing, Report
from profkit.stats._categories import by_category

_TABLES = ("calls", "kernels", "copies")


def build(trace: Trace, arguments: Arguments) -> Listing:
    return by_category(trace, _TABLES, arguments)


REPORT = Report(
    name="cuda_api_gpu_sum",
    former_name="apigpusum",
    title="CUDA Summary (API/Kernels/MemOps)",
    what="CUDA calls, GPU kernels or memory operations",
    tables=(*_TABLES, "graphs"),
    build=build,
    arguments=KERNEL_NAMES,
)
