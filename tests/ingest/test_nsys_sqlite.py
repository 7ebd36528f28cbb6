"""The nsys SQLite reader on exports made by hand: odd types, missing columns, other versions, damage."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.schema import MEMORY_KINDS

PID = 100 << 24


def _export(path: Path, **tables: list[dict]) -> Path:
    """An export whose tables are lists of rows; columns are those of all rows, without a type, as SQLite allows."""
    db = sqlite3.connect(path)
    tables.setdefault("StringIds", [{"id": 1, "value": "gemm"}, {"id": 2, "value": "cudaLaunchKernel_v7000"}])
    for name, rows in tables.items():
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["x"]
        db.execute(f"CREATE TABLE {name} ({','.join(chr(34) + c + chr(34) for c in columns)})")
        db.executemany(
            f"INSERT INTO {name} VALUES ({','.join('?' * len(columns))})",
            [[row.get(c) for c in columns] for row in rows],
        )
    db.commit()
    db.close()
    return path


def _kernel(start: int, end: int, **more: object) -> dict:
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": PID,
        "demangledName": 1,
        "shortName": 1,
        **more,
    }


def test_rows_are_sorted_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    path = _export(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(200, 300), _kernel(0, 50), _kernel(0, 100)]
    )
    trace = open_trace(path)
    assert trace.array("kernels", "start_ns").tolist() == [0, 0, 200]
    assert trace.array("kernels", "dur_ns").tolist() == [100, 50, 100]
    assert trace.array("kernels", "id").tolist() == [0, 1, 2]


def test_the_file_is_not_touched(tmp_path: Path) -> None:
    path = _export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 50)])
    before, mtime = path.read_bytes(), path.stat().st_mtime_ns
    open_trace(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, mtime)
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_column_that_starts_with_many_nulls_is_read(tmp_path: Path) -> None:
    rows = [_kernel(i, i + 1, graphNodeId=None) for i in range(70_000)] + [_kernel(70_000, 70_001, graphNodeId=5)]
    trace = open_trace(_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows))
    assert trace.array("kernels", "graph_node")[-1] == 5
    assert (trace.array("kernels", "graph_node")[:-1] == -1).all()


@pytest.mark.parametrize("at", [0, 69_999])
@pytest.mark.parametrize("bad", ["text", 1.5, b"blob"])
def test_values_of_another_type_are_absent_and_said(at: int, bad: object, tmp_path: Path) -> None:
    rows = [_kernel(i, i + 1, registersPerThread=32) for i in range(70_000)]
    rows[at]["registersPerThread"] = bad
    trace = open_trace(_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows))
    registers = trace.array("kernels", "registers")
    assert (np.flatnonzero(registers == -1)).tolist() == [at]
    assert (np.delete(registers, at) == 32).all()
    assert "CUPTI_ACTIVITY_KIND_KERNEL.registersPerThread: 1 values of another type" in " ".join(trace.meta.warnings)


def test_a_needed_column_that_is_missing_is_named(tmp_path: Path) -> None:
    row = _kernel(0, 1)
    row["device"] = row.pop("deviceId")
    path = _export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[row],
        META_DATA_EXPORT=[{"name": "EXPORT_SCHEMA_VERSION", "value": "99.0.0"}],
    )
    with pytest.raises(InputError, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.deviceId is missing"):
        open_trace(path)


def test_a_newer_schema_is_said(tmp_path: Path) -> None:
    path = _export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 1)],
        META_DATA_EXPORT=[{"name": "EXPORT_SCHEMA_VERSION", "value": "99.0.0"}],
    )
    assert "export schema 99.0.0 is newer than the tested range" in " ".join(open_trace(path).meta.warnings)


def test_devices_are_found_by_uuid_not_by_ordinal(tmp_path: Path) -> None:
    other = 101 << 24
    path = _export(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 10), _kernel(5, 20, globalPid=other)],
        TARGET_INFO_CUDA_DEVICE=[
            {"gpuId": 3, "cudaId": 0, "pid": 100, "uuid": "aa"},
            {"gpuId": 4, "cudaId": 0, "pid": 101, "uuid": "bb"},
        ],
        TARGET_INFO_GPU=[{"id": 3, "name": "GPU three", "uuid": "aa"}, {"id": 4, "name": "GPU four", "uuid": "bb"}],
    )
    trace = open_trace(path)
    assert trace.text("devices", "name") == ["GPU three", "GPU four"]
    assert trace.array("tracks", "device").tolist() == [0, 1]
    assert trace.array("tracks", "ordinal").tolist() == [0, 0]


def test_backtrace_copies_of_calls_do_not_count(tmp_path: Path) -> None:
    calls = [
        {"start": 0, "end": 5, "eventClass": c, "globalTid": PID + 7, "correlationId": 1, "nameId": 2, "returnValue": 0}
        for c in (0, 67, 1)
    ]
    trace = open_trace(_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_RUNTIME=calls))
    assert trace.rows("calls") == 2
    assert sorted(trace.array("calls", "api").tolist()) == [0, 1]
    assert trace.name(int(trace.array("calls", "name")[0]), "base") == "cudaLaunchKernel"


def test_synchronisations_are_named_by_their_call_first(tmp_path: Path) -> None:
    strings = [{"id": 1, "value": "cudaStreamSynchronize_v3020"}, {"id": 2, "value": "cudaStreamWaitEvent_v3020"}]
    calls = [
        {
            "start": i,
            "end": i + 5,
            "eventClass": 0,
            "globalTid": PID + 7,
            "correlationId": i,
            "nameId": i,
            "returnValue": 0,
        }
        for i in (1, 2)
    ]
    syncs = [
        {
            "start": i,
            "end": i + 4,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 0xFFFFFFFF,
            "correlationId": i,
            "globalPid": PID,
            "syncType": 2,
            "eventId": 0xFFFFFFFF,
        }
        for i in (1, 2, 3)
    ]
    trace = open_trace(
        _export(
            tmp_path / "a.sqlite",
            StringIds=strings,
            CUPTI_ACTIVITY_KIND_RUNTIME=calls,
            CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=syncs,
        )
    )
    assert trace.frame("syncs")["kind"].tolist() == ["stream", "stream_wait", "stream_wait"]
    assert trace.array("syncs", "event").tolist() == [-1, -1, -1]
    assert trace.array("syncs", "stream_track").tolist() == [-1, -1, -1]
    assert trace.array("syncs", "thread_track").tolist() == [0, 0, -1]


def test_payloads_of_ranges_and_old_exports_that_fill_with_zero(tmp_path: Path) -> None:
    base = {"start": 0, "end": 10, "eventType": 59, "globalTid": PID + 7, "text": "x", "domainId": 0}
    rows = [
        {**base, "int64Value": -1, "doubleValue": None, "uint64Value": None},
        {**base, "int64Value": None, "doubleValue": 2.5, "uint64Value": None},
        {**base, "int64Value": None, "doubleValue": None, "uint64Value": -1},
        {**base, "int64Value": None, "doubleValue": None, "uint64Value": None},
    ]
    spans = open_trace(_export(tmp_path / "a.sqlite", NVTX_EVENTS=rows)).frame("spans")
    assert spans["payload_kind"].tolist() == ["int", "float", "uint", "none"]
    assert spans["payload_int"][0] == -1
    assert spans["payload_float"][1] == 2.5
    assert spans["payload_text"][2] == str(2**64 - 1)
    old = [{**base, "int64Value": 0, "doubleValue": 0.0, "uint64Value": 0}] * 3
    assert (
        open_trace(_export(tmp_path / "b.sqlite", NVTX_EVENTS=old)).frame("spans")["payload_kind"].tolist()
        == ["none"] * 3
    )


def test_stages_by_domain_and_category(tmp_path: Path) -> None:
    tid = PID + 7
    rows = [
        {"start": 0, "end": None, "eventType": 75, "globalTid": tid, "text": "profkit", "domainId": 4},
        {"start": 0, "end": None, "eventType": 33, "globalTid": tid, "text": "decode", "domainId": 4, "category": 2},
        {"start": 1, "end": 9, "eventType": 59, "globalTid": tid, "text": "anything", "domainId": 4, "category": 2},
        {"start": 11, "end": 19, "eventType": 59, "globalTid": tid, "text": "anything", "domainId": 4, "category": 3},
        {"start": 21, "end": 29, "eventType": 59, "globalTid": tid, "text": "profkit::prefill#7", "domainId": 0},
        {"start": 31, "end": None, "eventType": 34, "globalTid": tid, "text": "decode", "domainId": 4, "category": 2},
    ]
    spans = open_trace(_export(tmp_path / "a.sqlite", NVTX_EVENTS=rows)).frame("spans")
    assert spans["stage"].astype(object).where(spans["stage"].notna(), None).tolist() == [
        "decode",
        None,
        "prefill",
        None,
    ]
    assert spans["domain"].tolist()[:2] == ["profkit", "profkit"]
    assert spans["category"].tolist()[1] == "category 3"
    assert spans["payload_int"][2] == 7


def test_text_that_is_no_utf8_is_shown_with_marks(tmp_path: Path) -> None:
    db = sqlite3.connect(_export(tmp_path / "a.sqlite", StringIds=[], CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 1)]))
    db.execute("DROP TABLE StringIds")
    db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    db.execute("INSERT INTO StringIds VALUES (1, CAST(x'6765ff6d' AS TEXT))")
    db.commit()
    db.close()
    assert open_trace(tmp_path / "a.sqlite").names == ["ge\ufffdm"]


def test_environments_in_the_string_table_are_not_read(tmp_path: Path) -> None:
    strings = [{"id": 1, "value": "gemm"}, {"id": 9, "value": "PATH=/x\0HF_TOKEN=secret\0"}]
    trace = open_trace(_export(tmp_path / "a.sqlite", StringIds=strings, CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 1)]))
    assert trace.names == ["gemm"]


def test_memory_kinds_are_those_of_nsys(tmp_path: Path) -> None:
    copy = {
        "start": 0,
        "end": 1,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": PID,
        "bytes": 8,
        "copyKind": 1,
    }
    rows = [{**copy, "srcKind": kind, "dstKind": 2} for kind in range(9)]
    trace = open_trace(_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=rows))
    assert [MEMORY_KINDS[k] for k in trace.array("copies", "src_kind")] == [
        "pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown", "unknown",
    ]  # fmt: skip


def test_peer_copies_whatever_the_driver_called_them(tmp_path: Path) -> None:
    copy = {
        "start": 0,
        "end": 1_000_000,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": PID,
        "bytes": 256_000_000,
        "srcDeviceId": 0,
        "dstDeviceId": 1,
        "srcKind": 2,
        "dstKind": 2,
    }
    rows = [{**copy, "copyKind": 10}, {**copy, "copyKind": 8}, {**copy, "copyKind": 8, "dstDeviceId": 0}]
    trace = open_trace(_export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=rows))
    assert trace.frame("copies")["kind"].tolist() == ["p2p", "p2p", "d2d"]


def test_a_write_ahead_log_is_read_with_its_file(tmp_path: Path) -> None:
    path = _export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(0, 1)])
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
    db.commit()
    trace = open_trace(path)
    db.close()
    assert trace.rows("kernels") == 2
    assert "write-ahead log" in " ".join(trace.meta.warnings)


def test_damage_is_one_clear_line(tmp_path: Path) -> None:
    path = _export(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[_kernel(i, i + 1) for i in range(20_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    with pytest.raises(InputError, match=rf"truncated.*{len(whole)} bytes.*the file has {len(whole) * 6 // 10}"):
        open_trace(path)
    path.write_bytes(whole[:50])
    with pytest.raises(InputError, match="cut after 50 bytes"):
        open_trace(path)
    broken = bytearray(whole)
    broken[8_192:200_000] = bytes(200_000 - 8_192)
    path.write_bytes(bytes(broken))
    with pytest.raises(InputError, match="damaged"):
        open_trace(path)


def test_a_sqlite_file_of_something_else(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "a.sqlite")
    db.execute("CREATE TABLE users (id)")
    db.commit()
    db.close()
    with pytest.raises(InputError, match=r"no Nsight Systems export: it has no table StringIds \(tables: users\)"):
        open_trace(tmp_path / "a.sqlite")
