"""Which tables an nsys capture has no rows of, and why; which processes used the GPU without a row of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from profkit import text
from profkit.builder import Builder
from profkit.ingest.nsys.capture import Capture, diagnostics
from profkit.ingest.nsys.counters import GPU_METRICS
from profkit.ingest.nsys.cuda_events import CUDA_EVENT, MEMORY_USAGE
from profkit.ingest.nsys.device import GRAPH_TRACE, KERNEL, MEMCPY, MEMSET
from profkit.ingest.nsys.host import OS_RUNTIME, RUNTIME, SYNCHRONIZATION
from profkit.ingest.nsys.mpi import TABLES as MPI_TABLES
from profkit.ingest.nsys.sampling import SAMPLES, SCHED
from profkit.ingest.nsys.source import Source
from profkit.ingest.nsys.spans import NVTX
from profkit.schema import DEVICE_TABLES

# table -> (its source tables, the CAPTURE_EVENT_TYPE that fills it, the nsys option that records it, what it is)
_NEEDS: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "kernels": ((KERNEL,), "Cuda", "--trace=cuda", "GPU kernels"),
    "copies": ((MEMCPY, MEMSET), "Cuda", "--trace=cuda", "GPU copies"),
    "graphs": ((GRAPH_TRACE,), "Cuda", "--trace=cuda", "CUDA graph launches"),
    "calls": ((RUNTIME,), "Cuda", "--trace=cuda", "CUDA calls"),
    "syncs": ((SYNCHRONIZATION,), "Cuda", "--trace=cuda", "synchronisations"),
    "spans": ((NVTX, *MPI_TABLES), "NvtxEvents", "--trace=nvtx", "NVTX ranges"),
    "os_calls": ((OS_RUNTIME,), "OSRuntime", "--trace=osrt", "operating system calls"),
}
# Off unless asked for: table -> (its source table, the nsys option, what it is).
_OPTIONAL = {
    "gpu_events": (CUDA_EVENT, "--trace=cuda", "CUDA event records"),
    "allocs": (MEMORY_USAGE, "--cuda-memory-usage=true", "allocations of device memory"),
    "counters": (GPU_METRICS, "--gpu-metrics-devices=all", "GPU metrics"),
    "samples": (SAMPLES, "--sample=process-tree", "CPU samples"),
    "sched": (SCHED, "--cpuctxsw=process-tree", "scheduling"),
}
_LAUNCH = re.compile(r"^cu(?:da)?(?:Launch|GraphLaunch)")


def say_what_is_missing(source: Source, builder: Builder, capture: Capture) -> None:
    """Give each table without rows its reason: not traced, traced and nothing happened, not exported."""
    captured = capture.meta.captured
    cuda_seen = any(builder.count(table) for table in (*DEVICE_TABLES, "calls"))
    for table, (tables, event_type, option, what) in _NEEDS.items():
        if builder.count(table) or table in builder.missing:
            continue
        if captured and event_type not in captured:
            builder.miss(table, f"no {what} in this capture: not traced; record with {option}")
        elif event_type == "Cuda" and not cuda_seen:
            builder.miss(table, f"no {what} in this capture: no CUDA activity was recorded; {_causes(source)}")
        elif table == "kernels" and builder.count("graphs"):
            builder.miss(
                table,
                "kernels run inside CUDA graphs that were recorded as one piece; record with --cuda-graph-trace=node",
            )
        elif table in DEVICE_TABLES:
            if not any(builder.count(t) for t in DEVICE_TABLES):
                builder.miss(table, f"no {what} in this capture, although CUDA calls were made; {_causes(source)}")
        elif not any(source.has(name) for name in tables):
            builder.miss(table, f"no {what} in this capture: {_no_table(tables[0], option, capture)}")
    for table, (name, option, what) in _OPTIONAL.items():
        if not builder.count(table) and table not in builder.missing and not source.has(name):
            builder.miss(table, f"no {what} in this capture: {_no_table(name, option, capture)}")


def _no_table(table: str, option: str, capture: Capture) -> str:
    if capture.only_tables:
        return f"the table {table} was not exported (nsys export --tables {capture.only_tables})"
    return f"the export has no table {table}; record with {option}"


def _causes(source: Source) -> str:
    """Likely reasons for missing GPU rows, a diagnostic of the profiler first."""
    for _, said in diagnostics(source):
        if re.search(r"(?i)cuda|driver|cupti|gpu", said) and re.search(r"(?i)not|fail|unable|error|absent", said):
            return f"nsys says: {said[:200]}"
    return (
        "likely reasons: no GPU work in the window, a driver newer than nsys or CUPTI, a forked child process, "
        "another profiler attached, or a capture range that never began"
    )


def say_which_processes_lack_rows(builder: Builder) -> None:
    """A reason for each process that launched work of which no row was recorded, where other processes have rows."""
    recorded = {row for table in DEVICE_TABLES for row in builder.distinct(table, "process")}
    if not recorded or -1 in recorded:
        return
    is_launch = np.fromiter((bool(_LAUNCH.match(name)) for name in builder.names.texts()), bool)
    calls = builder.columns("calls", ("process", "name"))
    launching = calls["process"][is_launch[calls["name"]]] if len(calls["name"]) else calls["process"]
    for process, count in zip(*np.unique(launching, return_counts=True), strict=True):
        if process < 0 or int(process) in recorded:
            continue
        pid = builder.get_dimension("processes", int(process), "pid")
        reason = (
            f"process {pid} made {text.count(int(count), 'launch', 'launches')}, none of its GPU work was recorded: "
            "start workers with spawn, or record with --trace-fork-before-exec=true"
        )
        for table in DEVICE_TABLES:
            builder.miss(table, reason, int(process))
