"""What an nsys export says of its own capture: versions, options, diagnostics, and which data were not traced."""

from __future__ import annotations

import re
from collections.abc import Mapping

from profkit.builder import Builder
from profkit.ingest.nsys.device import GRAPH_TRACE, KERNEL, MEMCPY, MEMSET
from profkit.ingest.nsys.host import OS_RUNTIME, RUNTIME, SYNCHRONIZATION
from profkit.ingest.nsys.source import Source
from profkit.ingest.nsys.spans import NVTX
from profkit.model import RunMeta

TESTED_MAJOR = 3
_SEVERITY_WARNING, _SEVERITY_ERROR = 2, 3
_MOST_DIAGNOSTICS = 8

# table -> (its source tables, the CAPTURE_EVENT_TYPE that fills it, the nsys option that records it)
_NEEDS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "kernels": ((KERNEL,), "Cuda", "--trace=cuda"),
    "copies": ((MEMCPY, MEMSET), "Cuda", "--trace=cuda"),
    "graphs": ((GRAPH_TRACE,), "Cuda", "--trace=cuda"),
    "calls": ((RUNTIME,), "Cuda", "--trace=cuda"),
    "syncs": ((SYNCHRONIZATION,), "Cuda", "--trace=cuda"),
    "spans": ((NVTX,), "NvtxEvents", "--trace=nvtx"),
    "os_calls": ((OS_RUNTIME,), "OSRuntime", "--trace=osrt"),
}
_WHAT = {
    "kernels": "GPU kernels",
    "copies": "GPU copies",
    "graphs": "CUDA graph launches",
    "calls": "CUDA calls",
    "syncs": "synchronisations",
    "spans": "NVTX ranges",
    "os_calls": "operating system calls",
}


def read_meta(source: Source) -> RunMeta:
    """Version, options, clock and warnings. Nothing of an environment is read."""
    export = dict(_pairs(source, "META_DATA_EXPORT", "EXPORT_META_DATA"))
    capture = _pairs(source, "META_DATA_CAPTURE")
    schema = export.get("EXPORT_SCHEMA_VERSION", "")
    warnings = []
    major = re.match(r"\d+", schema)
    if major and int(major[0]) > TESTED_MAJOR:
        warnings.append(
            f"export schema {schema} is newer than the tested range (2 to {TESTED_MAJOR}.x): columns may differ"
        )
    if False:
        warnings.append("a write-ahead log stands beside the file and was read with it")
    warnings += [text for severity, text in _diagnostics(source) if severity == _SEVERITY_ERROR]
    start = source.small_table("TARGET_INFO_SESSION_START_TIME")
    utc = start[0].get("utcEpochNs") if start else None
    return RunMeta(
        source="nsys-sqlite",
        source_version=export.get("EXPORT_PRODUCT_VERSION", ""),
        path=source.path.name,
        utc_ns=utc if isinstance(utc, int) else -1,
        graph_trace=_graph_trace(capture),
        captured=tuple(dict.fromkeys(value for name, value in capture if name == "CAPTURE_EVENT_TYPE")),
        simulated=any("SIMULATED" in name.upper() or "SIMULATED" in value.upper() for name, value in capture),
        warnings=tuple(dict.fromkeys(warnings)),
        extra={"schema_version": schema} if schema else {},
    )


def say_what_is_missing(source: Source, builder: Builder, captured: tuple[str, ...]) -> None:
    """Give each table without rows its reason: not traced, or traced and nothing happened, or launches without rows."""
    cuda_seen = any(builder.count(table) for table in ("kernels", "copies", "graphs", "calls"))
    for table, (tables, event_type, option) in _NEEDS.items():
        if builder.count(table):
            continue
        what = _WHAT[table]
        if captured and event_type not in captured:
            builder.miss(table, f"no {what} in this capture: not traced; record with {option}")
        elif event_type == "Cuda" and not cuda_seen:
            builder.miss(table, f"no {what} in this capture: no CUDA activity was recorded; {_causes(source)}")
        elif table == "kernels" and builder.count("graphs"):
            builder.miss(
                table,
                "kernels run inside CUDA graphs that were recorded as one piece; record with --cuda-graph-trace=node",
            )
        elif table in ("kernels", "copies", "graphs"):
            if not any(builder.count(t) for t in ("kernels", "copies", "graphs")):
                builder.miss(table, f"no {what} in this capture, although CUDA calls were made; {_causes(source)}")
        elif not any(source.has(name) for name in tables):
            builder.miss(table, f"no {what} in this capture: the export has no table {tables[0]}; record with {option}")


def _causes(source: Source) -> str:
    """Likely reasons for missing GPU rows, a diagnostic of the profiler first."""
    for _, text in _diagnostics(source):
        if re.search(r"(?i)cuda|driver|cupti|gpu", text) and re.search(r"(?i)not|fail|unable|error|absent", text):
            return f"nsys says: {' '.join(text.split())[:200]}"
    return (
        "likely reasons: no GPU work in the window, a driver newer than nsys or CUPTI, a forked child process, "
        "another profiler attached, or a capture range that never began"
    )


def _diagnostics(source: Source) -> list[tuple[int, str]]:
    rows = source.small_table("DIAGNOSTIC_EVENT")
    found = [
        (int(row["severity"]), str(row.get("text") or ""))
        for row in rows
        if isinstance(row.get("severity"), int) and _SEVERITY_WARNING <= row["severity"] <= _SEVERITY_ERROR
    ]
    return sorted(dict.fromkeys(found), key=lambda item: -item[0])[:_MOST_DIAGNOSTICS]


def _graph_trace(capture: list[tuple[str, str]]) -> str:
    modes = [value.lower() for name, value in capture if name.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")]
    return modes[0] if modes else ""


def _pairs(source: Source, *tables: str) -> list[tuple[str, str]]:
    return [(str(row.get("name") or ""), str(row.get("value") or "")) for row in source.small_table(*tables)]
