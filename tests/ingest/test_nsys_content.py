"""What an nsys export holds besides kernels, copies and calls, and what it says of its own capture."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from profkit.api import check
from profkit.model import Trace
from profkit.schema import TRACK_KINDS

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


def nvtx(start: int, end: int, name: int, tid: int = TID, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": 59, "globalTid": tid, "textId": name, "domainId": 0, **more}


def column(trace: Trace, table: str, name: str) -> list[Any]:
    return trace.tables[table].column(name).to_pylist()


def test_event_records_with_a_time_of_the_device_and_without(read: Any) -> None:
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PID}
    trace = read(
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(50, 55, 3, name=3)],
        CUPTI_ACTIVITY_KIND_CUDA_EVENT=[
            {"timestamp": 70, **where, "correlationId": 2, "eventId": 5, "eventSyncId": 9},
            {"timestamp": 0, **where, "correlationId": 3, "eventId": 6, "eventSyncId": None},
            {"timestamp": 0, **where, "correlationId": 4, "eventId": 7, "eventSyncId": None},
        ],
    )
    assert column(trace, "gpu_events", "start_ns") == [50, 70]
    assert column(trace, "gpu_events", "device_time") == [False, True]
    assert column(trace, "gpu_events", "event") == [6, 5]
    assert column(trace, "gpu_events", "event_sync") == [-1, 9]
    assert column(trace, "gpu_events", "correlation") == [3, 2]
    assert any("1 records have neither a time nor a recorded call" in warning for warning in trace.meta.warnings)


def test_graphs_and_nodes_of_both_schemas(read: Any) -> None:
    row = {"start": -5, "end": -5, "globalTid": TID, "nameId": 1}
    trace = read(
        CUDA_GRAPH_EVENTS=[
            {**row, "eventClass": 95, "graphId": 4, "originalGraphId": None, "graphExecId": None},
            {**row, "start": 0, "end": 0, "eventClass": 96, "graphId": 5, "originalGraphId": 4, "graphExecId": None},
            {**row, "start": 9, "end": 9, "eventClass": 94, "graphId": 5, "originalGraphId": None, "graphExecId": 2},
        ],
        CUDA_GRAPH_NODE_EVENTS=[
            {**row, "start": 4, "end": 4, "eventClass": 77, "graphNodeId": 8, "originalGraphNodeId": 7}
        ],
    )
    assert column(trace, "graph_events", "start_ns") == [-5, 0, 4, 9]
    assert column(trace, "graph_events", "kind") == ["graph", "clone", "node", "exec"]
    assert column(trace, "graph_events", "graph") == [4, 5, -1, 5]
    assert column(trace, "graph_events", "original_graph") == [-1, 4, -1, -1]
    assert column(trace, "graph_events", "graph_exec") == [-1, -1, -1, 2]
    assert column(trace, "graph_events", "graph_node") == [-1, -1, 8, -1]
    assert column(trace, "graph_events", "original_node") == [-1, -1, 7, -1]
    old = read(CUDA_GRAPH_EVENTS=[{**row, "eventClass": 77, "graphNodeId": 8, "originalGraphNodeId": 0}])
    assert column(old, "graph_events", "kind") == ["node"]


def test_allocations_of_device_memory(read: Any) -> None:
    where = {"globalPid": PID, "deviceId": 0, "contextId": 1, "correlationId": 1}
    trace = read(
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            {"start": 10, **where, "address": 4096, "bytes": 512, "memoryOperationType": 0, "streamId": None},
            {"start": 30, **where, "address": 4096, "bytes": 512, "memoryOperationType": 1, "streamId": None},
            {"start": 20, **where, "address": 8192, "bytes": 64, "memoryOperationType": 0, "streamId": 7}
            | {"localMemoryPoolAddress": 255},
        ]
    )
    assert column(trace, "allocs", "start_ns") == [10, 20, 30]
    assert column(trace, "allocs", "dur_ns") == [0, 0, 0]
    assert column(trace, "allocs", "operation") == ["alloc", "alloc", "free"]
    assert column(trace, "allocs", "bytes") == [512, 64, 512]
    assert column(trace, "allocs", "pool") == ["", "0xff", ""]
    assert column(trace, "allocs", "device") == [0, 0, 0]
    kinds = [TRACK_KINDS[trace.array("tracks", "kind")[track]] for track in column(trace, "allocs", "track")]
    assert kinds == ["device", "stream", "device"]


def test_gpu_metrics_are_counters_by_name(read: Any) -> None:
    first, second = 1 << 40, (1 << 40) + 1
    names = [("SMs Active [Throughput %]", 1), ("GPC Clock Frequency [MHz]", 2)]
    trace = read(
        TARGET_INFO_GPU=[{"id": 0, "name": "A", "uuid": "aa"}, {"id": 1, "name": "B", "uuid": "bb"}],
        TARGET_INFO_GPU_METRICS=[
            {"typeId": t, "sourceId": 1, "typeName": "x", "metricId": i, "metricName": name}
            for t in (first, second)
            for name, i in names
        ],
        GPU_METRICS=[
            {"timestamp": 200, "typeId": first, "metricId": 1, "value": 55},
            {"timestamp": 100, "typeId": first, "metricId": 1, "value": 40},
            {"timestamp": 100, "typeId": second, "metricId": 1, "value": 7},
            {"timestamp": 100, "typeId": second, "metricId": 2, "value": 1_980_000_000},
            {"timestamp": None, "typeId": second, "metricId": 2, "value": 1},
        ],
    )
    assert column(trace, "counter_names", "name") == ["SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"]
    assert column(trace, "counter_names", "unit") == ["%", "Hz"]
    counters = trace.tables["counters"].to_pylist()
    assert [(c["counter"], c["time_ns"], c["value"]) for c in counters] == [
        (0, 100, 40.0), (0, 200, 55.0), (0, 100, 7.0), (1, 100, 1_980_000_000.0),
    ]  # fmt: skip
    device = trace.array("tracks", "device")
    assert [int(device[c["track"]]) for c in counters] == [0, 0, 1, 1]
    assert any("1 rows without a time or a value" in warning for warning in trace.meta.warnings)


def test_overheads_say_what_for(read: Any) -> None:
    row = {"end": 5, "globalTid": TID, "nameId": 18}
    trace = read(
        PROFILER_OVERHEAD=[{"start": 0, **row, "overheadType": 3}, {"start": 1, **row, "overheadType": 0}],
        CUPTI_ACTIVITY_KIND_OVERHEAD=[
            {"start": 2 + i, **row, "overheadType": code} for i, code in enumerate((2, 6, 7, 8, 1))
        ],
    )
    assert column(trace, "overheads", "kind") == [
        "buffer_flush", "profiler", "driver_jit", "module_loading", "lazy_function_loading", "command_buffer_full",
        "driver",
    ]  # fmt: skip


def test_unified_memory_migrations_keep_their_cause(read: Any) -> None:
    row = kernel(0, 5) | {"bytes": 4096, "srcKind": 4, "dstKind": 4}
    trace = read(
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            row | {"start": kind, "copyKind": kind, "migrationCause": cause}
            for kind, cause in ((1, None), (11, 2), (12, 4))
        ]
    )
    assert trace.frame("copies")["kind"].tolist() == ["h2d", "um_h2d", "um_d2h"]
    assert column(trace, "copies", "cause") == [-1, 2, 4]


NCCL_SCHEMA = 16_777_223
PAYLOAD_TABLES = {
    "NVTX_PAYLOAD_SCHEMAS": [
        {"domainId": 1, "schemaId": NCCL_SCHEMA, "type": 1, "numEntries": 3, "payloadSize": 24},
        {"domainId": 1, "schemaId": 16_777_218, "type": 1, "numEntries": 4, "payloadSize": 24},
    ],
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
        {"domainId": 1, "schemaId": schema, "idx": i, "type": kind, "name": name, "offset": offset}
        for schema, entries in {
            NCCL_SCHEMA: [
                (18, "NCCL communicator ID", None),
                (22, "Message size [bytes]", 8),
                (16_777_232, "Reduction", 16),
            ],
            16_777_218: [
                (18, "NCCL communicator ID", None),
                (5, "No. of ranks", 8),
                (5, "Rank", 12),
                (5, "CUDA device", 16),
            ],
        }.items()
        for i, (kind, name, offset) in enumerate(entries)
    ],
}


def blob(schema: int, payload: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(payload), 32 + len(payload)) + payload


def test_nccl_ranges_with_binary_payloads_are_collectives(read: Any) -> None:
    comm = (1 << 63) + 5
    reduce = blob(NCCL_SCHEMA, struct.pack("<QQQ", comm, 4096, 0))
    trace = read(
        **PAYLOAD_TABLES,
        NVTX_EVENTS=[
            nvtx(0, 5, 11, binaryData=blob(16_777_218, struct.pack("<Qiiii", comm, 2, 1, 0, 0))),
            nvtx(10, 30, 4, binaryData=reduce),
            nvtx(40, 60, 4, binaryData=reduce[:40]),
            nvtx(70, 90, 4, binaryData=None),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(12, 14, 1), call(42, 44, 2)],
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(100, 200, 1, name=9),
            kernel(300, 400, 2, name=9),
            kernel(500, 600, 77, name=9),
        ],
    )
    rows = trace.tables["collectives"].to_pylist()
    assert [(r["start_ns"], r["dur_ns"], r["span"], r["kernel"]) for r in rows] == [
        (70, 20, 3, -1), (100, 100, 1, 0), (300, 100, 2, 1), (500, 100, -1, 2),
    ]  # fmt: skip
    assert [r["operation"] for r in rows] == ["all_reduce"] * 4
    assert [r["bytes"] for r in rows] == [-1, 4096, -1, -1]
    assert [r["communicator"] for r in rows] == ["", str(comm), "", ""]
    assert [r["rank"] for r in rows] == [-1, 1, -1, -1]
    assert column(trace, "processes", "rank") == [1]
    assert column(trace, "processes", "world_size") == [2]
    assert trace.frame("spans")["payload_kind"].tolist() == ["schema", "schema", "none", "none"]
    assert json.loads(column(trace, "spans", "payload_text")[1]) == {
        "NCCL communicator ID": comm, "Message size [bytes]": 4096,
    }  # fmt: skip
    json.dumps([{key: value for key, value in row.items() if key != "id"} for row in rows])


def test_rows_of_collectives_follow_the_sort(read: Any) -> None:
    """Ranges and kernels stand in the file in another order than in the trace."""
    trace = read(
        NVTX_EVENTS=[nvtx(40, 60, 4), nvtx(0, 5, 16), nvtx(10, 30, 4)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(42, 44, 2), call(12, 14, 1)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(300, 400, 2, name=9), kernel(100, 200, 1, name=9), kernel(50, 60)],
    )
    rows = trace.tables["collectives"].to_pylist()
    assert [(r["start_ns"], r["span"], r["kernel"]) for r in rows] == [(100, 1, 1), (300, 2, 2)]


def test_calls_of_a_group_are_launched_by_its_end(read: Any) -> None:
    payload = {"jsonText": json.dumps({"Message size [bytes]": "1,024", "NCCL communicator ID": 7, "Peer rank": 3})}
    trace = read(
        NVTX_EVENTS=[
            nvtx(0, 2, 5), nvtx(3, 4, 7, **payload), nvtx(5, 6, 8, **payload), nvtx(10, 20, 6),
            nvtx(30, 40, 7, **payload),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(12, 14, 1)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(50, 80, 1, name=10)],
    )  # fmt: skip
    rows = trace.tables["collectives"].to_pylist()
    assert [(r["operation"], r["span"], r["kernel"], r["start_ns"]) for r in rows] == [
        ("send", 4, -1, 30), ("send", 1, 0, 50), ("recv", 2, 0, 50),
    ]  # fmt: skip
    assert [(r["bytes"], r["communicator"], r["peer"]) for r in rows] == [(1024, "7", 3)] * 3


@pytest.mark.parametrize("text", ["{", "[]", '{"a": [1, {"b": null}]}', "[" * 100_000, '{"bytes": 1e400}', "\x00"])
def test_odd_json_payloads_break_nothing(read: Any, text: str) -> None:
    trace = read(NVTX_EVENTS=[nvtx(0, 5, 4, jsonText=text)])
    assert column(trace, "collectives", "bytes") == [-1]


def test_mpi_calls_are_ranges_of_their_domain(read: Any) -> None:
    row = {"globalTid": TID}
    trace = read(
        MPI_RANKS=[{"globalPid": PID, "rank": 3}, {"globalPid": OTHER, "rank": 7}],
        MPI_P2P_EVENTS=[{"start": 0, "end": 9, **row, "textId": 12, "size": 64, "tag": 1, "remoteRank": 0}],
        MPI_COLLECTIVES_EVENTS=[{"start": 20, "end": 29, **row, "textId": 13, "size": None, "recvSize": 8}],
        MPI_START_WAIT_EVENTS=[{"start": 40, "end": 49, **row, "textId": 14, "requestHandle": i} for i in (1, 2)],
    )
    spans = trace.frame("spans")
    assert spans["name"].tolist() == ["MPI_Send", "MPI_Allreduce", "MPI_Waitall"]
    assert spans["domain"].tolist() == ["MPI"] * 3
    assert column(trace, "spans", "payload_int") == [64, 8, -1]
    assert column(trace, "processes", "rank") == [3]
    assert column(trace, "processes", "world_size") == [8]


def test_names_of_threads_and_streams_that_the_program_gave(read: Any) -> None:
    trace = read(
        ThreadNames=[{"nameId": 17, "priority": 0, "globalTid": TID}],
        TARGET_INFO_NVTX_CUDA_STREAM=[
            {"name": "copies", "processId": 100, "deviceId": 0, "contextId": 1, "streamId": 7}
        ],
        NVTX_EVENTS=[nvtx(0, 1, 16, tid=TID + 1, eventType=39), nvtx(5, 9, 16), nvtx(5, 9, 16, tid=TID + 1)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 5), kernel(0, 5, stream=8)],
    )
    assert column(trace, "tracks", "label") == ["copies (stream 7)", "stream 8", "worker (100)", "main (101)"]


def test_a_mig_instance_is_a_device_of_its_own(read: Any) -> None:
    trace = read(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 10), kernel(5, 20, pid=OTHER)],
        TARGET_INFO_CUDA_DEVICE=[
            {"gpuId": 0, "cudaId": 0, "pid": 100, "uuid": "MIG-11"},
            {"gpuId": 0, "cudaId": 0, "pid": 101, "uuid": "MIG-22"},
        ],
        TARGET_INFO_GPU=[{"id": 0, "name": "H200", "uuid": "GPU-aa"}],
    )
    assert column(trace, "devices", "mig") == ["11", "22"]
    assert column(trace, "devices", "uuid") == ["aa", "aa"]
    assert trace.array("tracks", "device").tolist() == [0, 1]


def test_samples_and_scheduling_of_the_programs_that_are_known(read: Any) -> None:
    stranger = 999 << 24
    trace = read(
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(0, 5, 1)],
        SCHED_EVENTS=[
            {"start": 30, "cpu": 2, "isSchedIn": 0, "globalTid": TID},
            {"start": 10, "cpu": 2, "isSchedIn": 1, "globalTid": TID},
            {"start": 20, "cpu": 3, "isSchedIn": 1, "globalTid": stranger},
        ],
        COMPOSITE_EVENTS=[
            {"id": 8, "start": 15, "globalTid": TID},
            {"id": 9, "start": 12, "globalTid": TID},
            {"id": 7, "start": 11, "globalTid": stranger},
        ],
        SAMPLING_CALLCHAINS=[
            {"id": 8, "symbol": 16, "module": 15, "stackDepth": 1},
            {"id": 8, "symbol": 17, "module": 15, "stackDepth": 0},
            {"id": 7, "symbol": 17, "module": 15, "stackDepth": 0},
        ],
    )
    assert [(s["time_ns"], s["cpu"], s["running"]) for s in trace.tables["sched"].to_pylist()] == [
        (10, 2, True), (30, 2, False),
    ]  # fmt: skip
    assert [(s["time_ns"], s["stack"]) for s in trace.tables["samples"].to_pylist()] == [(12, -1), (15, 8)]
    stacks = trace.tables["stacks"].to_pylist()
    assert [(s["stack"], s["depth"], trace.name(s["name"]), s["module"]) for s in stacks] == [
        (8, 0, "worker", "libcuda.so"), (8, 1, "main", "libcuda.so"),
    ]  # fmt: skip
    assert column(trace, "processes", "pid") == [100]


def test_a_graph_that_was_made_before_the_capture_does_not_widen_it(read: Any) -> None:
    row = {"end": -5, "eventClass": 95, "globalTid": TID, "nameId": 1, "graphId": 4}
    trace = read(
        CUDA_GRAPH_EVENTS=[{"start": -20_000_000_000, **row}],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(10, 15), kernel(20, 35)],
    )
    assert [(window.start_ns, window.end_ns) for window in trace.windows] == [(10, 35)]
    assert check(trace).trace["span_ns"] == 25
