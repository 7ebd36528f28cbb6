"""What an nsys export says of its own capture: versions, options, clock, diagnostics. Nothing of an environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from profkit.ingest.nsys.identity import whole
from profkit.ingest.nsys.source import Source
from profkit.model import RunMeta
from profkit.redact import mask, mask_command

TESTED_MAJOR = 3
WARNING, ERROR = 2, 3
"""Severities of DIAGNOSTIC_EVENT that are read."""
_MOST_DIAGNOSTICS = 8

# Warnings of nsys that make a number doubtful. The others ("Does the process use OpenGL?") stand in every capture.
_DOUBTFUL = re.compile(
    r"(?i)\bdropped\b|\blost\b|overflow|overwrit|out of memory|not supported by this build|corrupt|incomplete"
    r"|timed? ?out|unified memory cannot be traced"
)

# Property of RunMeta.extra -> the capture option that it is taken from, whatever PROCESS_n: stands before it.
_OPTIONS = {
    "api_calls_skipped": "CUDA_SKIP_SOME_API_CALLS",
    "cuda_trace_scope": "CUDA_TRACE_SCOPE",
    "memory_usage_traced": "COLLECT_GPU_MEMORY_USAGE",
    "children_traced": "INCLUDE_CHILDREN",
    "fork_before_exec_traced": "TRACE_AFTER_FORK_BEFORE_EXEC",
    "started_by": "START_TRIGGER",
    "os_calls_from_ns": "OS_RUNTIME_OPTIONS:DURATION_THRESHOLD_NS",
    "nvtx_domain_filter": "NVTX_OPTIONS:NVTX_DOMAIN_FILTER_STRING",
}
# The same of TARGET_INFO_SYSTEM_ENV, which holds the whole environment as well: only these rows are looked at.
_MACHINE = {"driver": "NvDriverVersion", "os": "OsDescription", "cpu": "CpuDescription", "cpu_cores": "CpuCores"}


@dataclass(frozen=True)
class Capture:
    """What the tables about the capture say."""

    meta: RunMeta
    absolute: bool
    """Whether times are UTC (EXPORT_PARAM_TIME_NORMALIZE), which must not be taken for a session of 50 years."""
    shift_ns: int
    """Added to all times at export."""
    only_tables: str = ""
    only_times: str = ""
    hosts: tuple[str, ...] = ()
    """Names of machines, which no output may show."""


def read_capture(source: Source) -> Capture:
    export = dict(pairs(source, "META_DATA_EXPORT", "EXPORT_META_DATA"))
    options = pairs(source, "META_DATA_CAPTURE")
    machine = _machine(source)
    schema = export.get("EXPORT_SCHEMA_VERSION", "")
    only_tables, only_times = (export.get(f"EXPORT_PARAM_{what}_TO_EXPORT", "") for what in ("TABLES", "TIMES"))
    shift = _integer(export.get("EXPORT_PARAM_TIME_SHIFT")) + _integer(export.get("EXPORT_CONFIG_TIME_SHIFT"))
    start = source.small_table("TARGET_INFO_SESSION_START_TIME")
    utc = whole(start[0].get("utcEpochNs")) if start else -1
    meta = RunMeta(
        source=source.format,
        source_version=export.get("EXPORT_PRODUCT_VERSION", ""),
        path=source.path.name,
        utc_ns=utc - shift if utc >= 0 else -1,
        command=_command(options),
        graph_trace=_option(options, "CUDA_GRAPH_TRACE_OPTIONS:MODE").lower(),
        captured=tuple(dict.fromkeys(value for name, value in options if name == "CAPTURE_EVENT_TYPE")),
        simulated=any("SIMULATED" in name.upper() or "SIMULATED" in value.upper() for name, value in options),
        warnings=_warnings(source, schema, only_tables, only_times),
        extra=_extra(schema, options, machine),
    )
    hosts = {machine.get("Hostname", ""), export.get("EXPORT_HOST", ""), dict(options).get("DEVICE_DISPLAY_NAME", "")}
    absolute = export.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true"
    return Capture(meta, absolute, shift, only_tables, only_times, tuple(sorted(hosts - {"", "localhost"})))


def _warnings(source: Source, schema: str, only_tables: str, only_times: str) -> tuple[str, ...]:
    found = [newer_schema(schema)] if newer_schema(schema) else []
    if only_tables:
        found.append(f"only some tables were exported: nsys export --tables {only_tables}")
    if only_times:
        found.append(f"only a part of the time was exported: nsys export --times {only_times}")
    found += [text for severity, text in diagnostics(source) if severity == ERROR or _DOUBTFUL.search(text)]
    return tuple(dict.fromkeys(found))


def newer_schema(schema: str) -> str:
    """What to say of an export schema that is newer than any seen, "" for one that is not."""
    major = re.match(r"\d+", schema)
    if not major or int(major[0]) <= TESTED_MAJOR:
        return ""
    return f"export schema {schema} is newer than the tested range (2 to {TESTED_MAJOR}.x): columns may differ"


def diagnostics(source: Source) -> list[tuple[int, str]]:
    """(severity, text) of the profiler's own warnings and errors, errors first."""
    rows = source.small_table("DIAGNOSTIC_EVENT")
    found = [
        (int(row["severity"]), mask(" ".join(str(row.get("text") or "").split())))  # before it is cut
        for row in rows
        if whole(row.get("severity")) in (WARNING, ERROR)
    ]
    ranked = sorted(dict.fromkeys(found), key=lambda item: (-item[0], _DOUBTFUL.search(item[1]) is None))
    return ranked[:_MOST_DIAGNOSTICS]


def _extra(schema: str, options: list[tuple[str, str]], machine: Mapping[str, str]) -> dict[str, str]:
    found = {"schema_version": schema}
    found |= {key: machine.get(name, "") for key, name in _MACHINE.items()}
    found["cuda_driver"] = _cuda_version(machine.get("CudaDriverVersion", ""))
    found |= {key: _option(options, name) for key, name in _OPTIONS.items()}
    return {key: value for key, value in found.items() if value}


def _machine(source: Source) -> dict[str, str]:
    wanted = {*_MACHINE.values(), "CudaDriverVersion", "Hostname"}
    rows = source.small_table("TARGET_INFO_SYSTEM_ENV")
    return {str(row["name"]): str(row.get("value") or "") for row in rows if row.get("name") in wanted}


def _cuda_version(digits: str) -> str:
    """``12080`` as ``12.8``."""
    return f"{int(digits) // 1000}.{int(digits) % 1000 // 10}" if digits.isdigit() and digits.isascii() else ""


def _option(options: list[tuple[str, str]], name: str) -> str:
    """A capture option; older versions have it for each process, as ``PROCESS_0:NAME``."""
    values = [value for key, value in options if re.sub(r"^PROCESS_\d+:", "", key) == name]
    return values[0] if values else ""


def _command(options: list[tuple[str, str]]) -> str:
    """The traced command, without its folder and its secrets."""
    words = [value for key, value in options if key == "PROCESS_0:COMMAND"][:1]
    arguments = [(re.fullmatch(r"PROCESS_0:ARGUMENT_(\d{1,6})", key), value) for key, value in options]
    words += [value for _, value in sorted((int(match[1]), value) for match, value in arguments if match)]
    return mask_command(words)


def pairs(source: Source, *tables: str) -> list[tuple[str, str]]:
    """(name, value) of a table of properties."""
    return [(str(row.get("name") or ""), str(row.get("value") or "")) for row in source.small_table(*tables)]


def _integer(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text) else 0
