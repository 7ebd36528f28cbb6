"""What an nsys export says of its own capture: options, clock, what was left out, processes without rows."""

from __future__ import annotations

from typing import Any

from profkit.model import Trace

PID, TID = 100 << 24, (100 << 24) + 100
OTHER = 101 << 24
Rows = list[dict[str, Any]]


def kernel(
    start: int, end: int, correlation: int = 0, name: int = 1, pid: int = PID, stream: int = 7
) -> dict[str, Any]:
    where = {"deviceId": 0, "contextId": 1, "streamId": stream, "correlationId": correlation, "globalPid": pid}
    return {"start": start, "end": end, **where, "demangledName": name, "shortName": name}


def call(start: int, end: int, correlation: int, name: int = 2, tid: int = TID) -> dict[str, Any]:
    row = {"start": start, "end": end, "eventClass": 0, "globalTid": tid, "correlationId": correlation, "nameId": name}
    return row | {"returnValue": 0}


def pairs(**values: str) -> Rows:
    return [{"name": name, "value": value} for name, value in values.items()]


def column(trace: Trace, table: str, name: str) -> list[Any]:
    return trace.tables[table].column(name).to_pylist()


def test_what_the_capture_says_of_itself(read: Any) -> None:
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 5)],
        META_DATA_EXPORT=pairs(EXPORT_SCHEMA_VERSION="3.25.0", EXPORT_PRODUCT_VERSION="2026.2.1.210"),
        META_DATA_CAPTURE=[
            *pairs(CAPTURE_EVENT_TYPE="Cuda", CUDA_SKIP_SOME_API_CALLS="true"),
            {"name": "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Node"},
            {"name": "PROCESS_0:COMMAND", "value": "/opt/venv/bin/python"},
            {"name": "PROCESS_0:ARGUMENT_10", "value": "tenth"},
            {"name": "PROCESS_0:ARGUMENT_2", "value": "--api-key=hunter2"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE_0", "value": "HF_TOKEN=hf_planted"},
        ],
        TARGET_INFO_SYSTEM_ENV=pairs(
            NvDriverVersion="580.95.05", CudaDriverVersion="13020", DeviceEnvironment="A=planted", Hostname="node17"
        ),
        DIAGNOSTIC_EVENT=[
            {"timestamp": 0, "severity": 3, "text": "CUPTI failed on node17"},
            {"timestamp": 0, "severity": 2, "text": "No OpenGL events collected. Does the process use OpenGL?"},
            {"timestamp": 0, "severity": 2, "text": "12 events were dropped"},
            {"timestamp": 0, "severity": 1, "text": "All is well"},
        ],
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_700_000_000_000_000_000}],
    )
    meta = trace.meta
    assert (meta.source, meta.source_version, meta.graph_trace) == ("nsys-sqlite", "2026.2.1.210", "node")
    assert meta.command == "python --api-key=*** tenth"
    assert meta.extra == {
        "schema_version": "3.25.0", "driver": "580.95.05", "cuda_driver": "13.2", "api_calls_skipped": "true",
    }  # fmt: skip
    assert meta.warnings == ("CUPTI failed on host", "12 events were dropped")
    assert (meta.origin_ns, meta.utc_ns, meta.clock) == (0, 1_700_000_000_000_000_000, "session")
    assert "planted" not in repr(trace.meta) + repr(trace.tables)


def test_times_that_were_normalised_to_utc_count_from_the_first_event(read: Any) -> None:
    utc = 1_700_000_000_000_000_123
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(utc + 10, utc + 15)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(utc, utc + 5, 1)],
        SCHED_EVENTS=[{"start": utc + 7, "cpu": 0, "isSchedIn": 1, "globalTid": TID}],
        META_DATA_EXPORT=pairs(EXPORT_PARAM_TIME_NORMALIZE="true"),
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": utc - 5}],
    )
    assert (trace.meta.origin_ns, trace.meta.utc_ns, trace.meta.clock) == (utc, utc, "realtime")
    assert trace.array("kernels", "start_ns").tolist() == [10]
    assert column(trace, "sched", "time_ns") == [7]


def test_shifted_times_stay_and_utc_knows_it(read: Any) -> None:
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1_000, 1_005)],
        META_DATA_EXPORT=pairs(EXPORT_PARAM_TIME_SHIFT="-200"),
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_000_000}],
    )
    assert trace.array("kernels", "start_ns").tolist() == [1_000]
    assert trace.meta.utc_ns == 1_000_200
    assert trace.meta.notes == ("times were shifted by -200 ns at export",)


def test_partial_exports_say_so(read: Any) -> None:
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 5)],
        META_DATA_EXPORT=pairs(EXPORT_PARAM_TABLES_TO_EXPORT="CUPTI.*KERNEL", EXPORT_PARAM_TIMES_TO_EXPORT="1s/2s"),
    )
    assert trace.meta.warnings == (
        "only some tables were exported: nsys export --tables CUPTI.*KERNEL",
        "only a part of the time was exported: nsys export --times 1s/2s",
    )
    assert "was not exported (nsys export --tables CUPTI.*KERNEL)" in trace.why_missing("spans")


def test_processes_that_launched_without_a_row(read: Any) -> None:
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(10, 15, 1)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            call(0, 5, 1),
            call(0, 5, 1, tid=OTHER + 1),
            call(6, 8, 2, name=19, tid=OTHER + 1),
        ],
    )
    assert column(trace, "processes", "gpu_rows") == [True, False]
    assert trace.why_missing("kernels", 0) == ""
    assert trace.why_missing("kernels") == ""
    assert "process 101 made 1 launch, none of its GPU work was recorded" in trace.why_missing("kernels", 1)
    assert "spawn" in trace.why_missing("kernels", 1)
