"""What the fuzzer damages: small traces of every format made here, and the files of a corpus where one is given."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = {"sqlite": 800_000, "json": 150_000}
"""Larger files of a corpus would make a case slow, and damage to them is no other damage."""

PID = 100
PROCESS = PID << 24
THREAD = PROCESS + PID
DEVICE_ROW = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_TABLES = {
    "StringIds": ("id", "value TEXT"),
    KERNEL: (*DEVICE_ROW, "demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
             "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "localMemoryTotal", "graphNodeId"),
    MEMCPY: (*DEVICE_ROW, "bytes", "copyKind", "srcKind", "dstKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*DEVICE_ROW, "bytes", "memKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*DEVICE_ROW, "graphId", "graphExecId"),
    RUNTIME: ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    SYNC: (*DEVICE_ROW, "syncType", "eventId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text TEXT", "textId", "globalTid", "endGlobalTid", "domainId",
                    "category", "int64Value"),
    "OSRT_API": ("start", "end", "eventClass", "globalTid", "nameId", "returnValue", "callchainId"),
    "PROCESSES": ("globalPid", "pid", "name TEXT"),
    "ThreadNames": ("nameId", "priority", "globalTid"),
    "TARGET_INFO_GPU": ("id", "name TEXT", "busLocation TEXT", "uuid TEXT", "smCount", "totalMemory"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid", "uuid TEXT"),
    "TARGET_INFO_CUDA_STREAM": ("streamId", "processId", "contextId", "priority", "flag"),
    "META_DATA_CAPTURE": ("name TEXT", "value TEXT"),
    "META_DATA_EXPORT": ("name TEXT", "value TEXT"),
    "DIAGNOSTIC_EVENT": ("timestamp", "timestampType", "source", "severity", "text TEXT", "globalPid"),
}  # fmt: skip
_STRINGS = ("gemm", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020", "poll", "norm",
            "cudaGraphLaunch_v10000", "main")  # fmt: skip
_STEPS = 12


@dataclass(frozen=True)
class Seed:
    """A sound trace: ``kind`` is sqlite, json (plain or gzip) or folder."""

    kind: str
    path: Path


def make_seeds(folder: Path, corpus: Path | None = None) -> list[Seed]:
    """The traces to damage, in a fixed order; those made here are written into ``folder``."""
    export = write_nsys(folder / "run.sqlite")
    seeds = [Seed("sqlite", export), Seed("json", write_kineto(folder / "trace.json"))]
    seeds += [
        Seed("json", write_kineto(folder / "trace.json.gz")),
        Seed("folder", write_parquet(export, folder / "pq")),
    ]
    if corpus is not None:
        for kind, pattern in (("sqlite", "nsys/*.sqlite"), ("json", "kineto/*.json*")):
            files = sorted(file for file in corpus.glob(pattern) if file.stat().st_size <= MOST_BYTES[kind])
            seeds += [Seed(kind, file) for file in files]
    return seeds


def write_nsys(path: Path) -> Path:
    """An export of a few decode steps: launches, a graph, copies, waits, ranges with payloads, system calls."""
    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in _TABLES}
    rows["StringIds"] = list(enumerate(_STRINGS, 1))
    for i in range(_STEPS):
        at, one, two = 100_000 * i, 4 * i + 1, 4 * i + 2
        rows[RUNTIME] += [
            (at + 2_000, at + 6_000, 0, THREAD, one, 2, 0),
            (at + 8_000, at + 9_000, 0, THREAD, two, 3, 0),
            (at + 10_000, at + 70_000, 0, THREAD, 4 * i + 3, 4, 0),
        ]
        rows[KERNEL].append((at + 9_000, at + 50_000, 0, 1, 7, one, PROCESS, 1, 1, *[1] * 6, 32, 0, 0, 0, None))
        rows[MEMCPY].append((at + 52_000, at + 60_000, 0, 1, 7, two, PROCESS, 4096, 2, 2, 0))
        rows[SYNC].append((at + 10_500, at + 69_000, 0, 1, 7, 4 * i + 3, PROCESS, 3, 0))
        rows["NVTX_EVENTS"].append((at + 1_000, at + 80_000, 59, "decode", None, THREAD, None, 0, None, 8))
        rows["NVTX_EVENTS"].append((at + 82_000, at + 90_000, 59, None, 8, THREAD, None, 1, 2, None))
        rows["OSRT_API"].append((at + 91_000, at + 95_000, 27, THREAD, 5, 0, 0))
    end = 100_000 * _STEPS
    rows["NVTX_EVENTS"] += [
        (0, None, 75, "engine", None, THREAD, None, 1, None, None),
        (0, None, 33, "io", None, THREAD, None, 1, 2, None),
        (500, end, 60, "request 1", None, THREAD, None, 1, None, None),
    ]
    rows[RUNTIME].append((end, end + 3_000, 0, THREAD, 900, 7, 0))
    rows[KERNEL] += [(end + 5_000 * n, end + 5_000 * n + 4_000, 0, 1, 8, 900, PROCESS, 6, 6, *[1] * 6, 16, 0, 0, 0, n)
                     for n in range(1, 4)]  # fmt: skip
    rows["CUPTI_ACTIVITY_KIND_MEMSET"].append((end + 30_000, end + 31_000, 0, 1, 7, 901, PROCESS, 64, 2))
    rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((end + 40_000, end + 60_000, 0, 1, 7, 902, PROCESS, 1, 2))
    rows["PROCESSES"].append((PROCESS, PID, "python"))
    rows["ThreadNames"].append((8, 0, THREAD))
    rows["TARGET_INFO_GPU"].append((0, "NVIDIA H200", "0000:01:00.0", "gpu-0", 132, 150_000_000_000))
    rows["TARGET_INFO_CUDA_DEVICE"].append((0, 0, PID, "gpu-0"))
    rows["TARGET_INFO_CUDA_STREAM"] += [(7, PID, 1, 0, 1), (8, PID, 1, 4_294_967_295, 2)]
    rows["META_DATA_CAPTURE"] += [("CAPTURE_EVENT_TYPE", word) for word in ("Cuda", "NvtxEvents", "OSRuntime")]
    rows["META_DATA_EXPORT"] += [("EXPORT_SCHEMA_VERSION", "3.25.0"), ("EXPORT_PRODUCT_VERSION", "2026.2.1.210")]
    rows["DIAGNOSTIC_EVENT"].append((0, 0, 1, 2, "Not all NVTX events might have been collected", PROCESS))
    with closing(sqlite3.connect(path)) as db:
        for table, columns in _TABLES.items():
            types = ", ".join(f"{c.split()[0]!r} {'TEXT' if ' ' in c else 'INTEGER'}" for c in columns)
            db.execute(f"CREATE TABLE {table} ({types})".replace("'", '"'))
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", rows[table])
        db.commit()
    return path


def write_kineto(path: Path) -> Path:
    """The same kind of work as the PyTorch profiler writes it; gzipped where the name ends in .gz."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": PID, "tid": PID, "args": {"name": "main"}},
    ]

    def add(cat: str, name: str, ts: float, dur: float, pid: int = PID, tid: int = PID, **args: object) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        events.append(event)

    for i in range(_STEPS):
        at, one = 1_000_000 + 100 * i, 2 * i + 1
        add("user_annotation", "decode", at, 80.5)
        add("cpu_op", "aten::mm", at + 1, 20.25, **{"External id": i})
        add("cuda_runtime", "cudaLaunchKernel", at + 2, 4.5, correlation=one)
        add("kernel", "gemm", at + 9, 41, 0, 7, device=0, stream=7, correlation=one, grid=[1, 2, 3], block=[32, 1, 1])
        add("cuda_runtime", "cudaMemcpyAsync", at + 8, 1.5, correlation=one + 1)
        on_device = {"device": 0, "stream": 7, "correlation": one + 1, "bytes": 4096}
        add("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 52, 8, 0, 7, **on_device)
    top = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 150_000_000_000}],
        "distributedInfo": {"rank": 0, "world_size": 1},
        "traceEvents": events,
        "traceName": "trace.json",
    }
    text = json.dumps(top, indent=1).encode()
    path.write_bytes(gzip.compress(text, 1, mtime=0) if path.suffix == ".gz" else text)
    return path


def write_parquet(export: Path, folder: Path) -> Path:
    """The tables of an export as ``nsys export --type parquetdir`` writes them: one file a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    with closing(sqlite3.connect(export)) as db:
        for table in _TABLES:
            cursor = db.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            columns = list(zip(*cursor, strict=True)) or [()] * len(names)
            arrays = {
                name: pa.array(values, pa.int64() if not values else None)
                for name, values in zip(names, columns, strict=True)
            }
            pq.write_table(pa.table(arrays), folder / f"{table}.parquet")
    return folder
