"""Writes a simulated trace as an SQLite export of Nsight Systems, marked SIMULATED."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from profkit.schema import STAGES
from profkit.simulate import nsys_schema
from profkit.simulate.core import Simulation
from profkit.simulate.device import Device
from profkit.simulate.host import MARK, PUSH_POP, START_END, Host, Process
from profkit.simulate.ops import BLOCKING, NON_BLOCKING, NULL

SIMULATED = "SIMULATED"
_HARDWARE_ID = 1 << 48
_STREAM_FLAGS = {NULL: 3, BLOCKING: 1, NON_BLOCKING: 2}
_NONE_32 = 0xFFFFFFFF
_CATEGORY, _DOMAIN_NAME = 33, 75
_EVENT_TYPES = {PUSH_POP: 59, START_END: 60, MARK: 34}
UTC_NS = 1_700_000_000_000_000_000


def global_pid(process: Process) -> int:
    return _HARDWARE_ID + (process.pid << 24)


def global_tid(host: Host) -> int:
    return _HARDWARE_ID + (host.process.pid << 24) + host.tid


class NsysFile:
    """The file while it is written: ``write`` is a sink for a Recorder, ``finish`` adds what describes the capture."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=65536; BEGIN;")
        self._strings: dict[str, int] = {}
        self._tables: set[str] = set()
        self._domains: dict[str, int] = {}
        self._named: set[tuple[int, str]] = set()
        self._grid_ids = count(1)
        for table in nsys_schema.TABLES:
            if table not in nsys_schema.LAZY:
                self._create(table)

    def _create(self, table: str) -> None:
        if table not in self._tables:
            self._tables.add(table)
            self._db.execute(nsys_schema.create(table))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def write(self, kind: str, rows: list[Any]) -> None:
        """Add rows of one table of the recorder."""
        made: Iterable[tuple[Any, ...]] = getattr(self, f"_{kind}")(rows)
        self._create(nsys_schema.COLUMNS[kind][0])
        self._db.executemany(nsys_schema.insert(kind), made)

    def _kernels(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        names: dict[Any, tuple[int, ...]] = {}
        for op in rows:
            kernel = op.kernel
            facts = names.get(kernel)
            if facts is None:
                facts = names[kernel] = (
                    self._string(kernel.name), self._string(kernel.short), kernel.registers,
                    *kernel.grid, *kernel.block, kernel.smem,
                )  # fmt: skip
            stream = op.stream
            graph = op.graph
            yield (
                op.start, op.end, stream.device.ordinal, stream.number, op.correlation, global_pid(op.host.process),
                *facts, op.node or None, None if graph is None else graph.graph, next(self._grid_ids),
            )  # fmt: skip

    def _copies(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for op in rows:
            copy = op.copy
            sides = (copy.source_device, copy.target_device) if copy.source_device >= 0 else (None, None)
            yield (*_device_row(op), copy.size, copy.kind, copy.source, copy.target, *sides)

    def _memsets(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for op in rows:
            yield (*_device_row(op), op.copy.size, op.copy.target)

    def _graphs(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, op, graph in rows:
            yield (start, end, *_device_row(op)[2:], graph.graph, graph.exec_id)

    def _calls(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host, correlation, name in rows:
            if not host.process.lost(correlation):
                driver = int(name[2] != "d")
                yield (start, end, driver, global_tid(host), correlation, self._string(name))

    def _syncs(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host, stream, correlation, kind, event in rows:
            if not host.process.lost(correlation):
                number = stream.number if stream is not None else _NONE_32
                where = (host.process.device.ordinal, number, correlation, global_pid(host.process))
                yield (start, end, *where, kind, event if event >= 0 else _NONE_32)

    def _events(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for stream, correlation, host, event in rows:
            if not host.process.lost(correlation):
                yield (stream.device.ordinal, stream.number, correlation, global_pid(host.process), event)

    def _nodes(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host, node, original in rows:
            yield (start, end, global_tid(host), node, original if original >= 0 else None)

    def _ranges(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host, name, domain, payload, kind, category in rows:
            code = STAGES.index(category) + 1 if category else None
            number = self._domain(host, domain, category, code) if domain else 0
            until = None if kind == MARK else end
            tid = global_tid(host)
            yield (start, until, _EVENT_TYPES[kind], name, tid, code, number, payload if payload >= 0 else None)

    def _domain(self, host: Host, domain: str, category: str, code: int | None) -> int:
        """The number of a domain, and the rows that name it and its categories, at first use in each process."""
        number = self._domains.setdefault(domain, len(self._domains) + 1)
        pid, tid = host.process.pid, global_tid(host)
        for key, event, text, what in (
            ((pid, domain), _DOMAIN_NAME, domain, None),
            ((pid, f"{domain}/{category}"), _CATEGORY, category, code),
        ):
            if key not in self._named and (event == _DOMAIN_NAME or what is not None):
                self._named.add(key)
                self._create("NVTX_EVENTS")
                self._db.execute(
                    "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, category, domainId) "
                    "VALUES (0, ?, ?, ?, ?, ?)",
                    (event, text, tid, what, number),
                )
        return number

    def _os_calls(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host, name in rows:
            yield (start, end, global_tid(host), self._string(name))

    def _sched(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for time, host, running in rows:
            yield (time, global_tid(host), running)

    def _overheads(self, rows: list[Any]) -> Iterator[tuple[Any, ...]]:
        for start, end, host in rows:
            yield (start, end, global_tid(host), self._string("CUDA profiling data flush"))

    def finish(self, simulation: Simulation, facts: dict[str, str], graph_mode: str) -> None:
        """Add names, devices and options; ``facts`` go beside the mark. The file is complete then."""
        processes = list(dict.fromkeys(host.process for host in simulation.hosts))
        for host in simulation.hosts:
            self._add("ThreadNames", (self._string(host.name), 20, global_tid(host)))
        for process in processes:
            self._describe(process)
        for device in simulation.devices:
            self._add("TARGET_INFO_GPU", _gpu(device))
        for table, rows in _capture(facts, graph_mode, simulation.recorded_waits).items():
            for row in rows:
                self._add(table, row)
        self._db.executemany("INSERT INTO StringIds VALUES (?, ?)", ((i, s) for s, i in self._strings.items()))
        self._db.execute("COMMIT")
        self.close()

    def close(self) -> None:
        self._db.close()

    def _describe(self, process: Process) -> None:
        device, pid, hardware_id = process.device, process.pid, _HARDWARE_ID >> 48
        self._add("PROCESSES", (global_pid(process), pid, process.name))
        self._add("TARGET_INFO_CUDA_DEVICE", (device.ordinal, device.ordinal, pid, _uuid(device)))
        self._add("TARGET_INFO_CUDA_CONTEXT_INFO", (7, hardware_id, 0, pid, device.ordinal, 1, None, 0))
        for stream in process.streams:
            self._add("TARGET_INFO_CUDA_STREAM", (stream.number, hardware_id, 0, pid, 1, 0, _STREAM_FLAGS[stream.kind]))

    def _add(self, table: str, row: tuple[Any, ...]) -> None:
        self._db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _device_row(op: Any) -> tuple[Any, ...]:
    stream = op.stream
    pid = global_pid(op.host.process)
    return (op.start, op.end, stream.device.ordinal, stream.number, op.correlation, pid)


def _uuid(device: Device) -> str:
    return f"51a00000-0000-0000-0000-{device.ordinal:012x}"


def _gpu(device: Device) -> tuple[Any, ...]:
    bus = f"0000:{device.ordinal + 25:02x}:00.0"
    name = f"{SIMULATED} GPU"
    memory = device.hardware.d2d_bytes_per_us * 2_000_000
    return (
        0, device.ordinal, name, bus, 1, 50 << 20, 80 << 30, memory, 1_980_000_000, 132, _uuid(device), device.ordinal,
        9, 0,
    )  # fmt: skip


def _capture(facts: dict[str, str], graph_mode: str, waits: frozenset[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Rows about the capture: what was traced, by what, and that it is no real one."""
    traced = ["NvtxEvents", "Cuda"] + (["OSRuntime"] if "os_wait" in waits else [])
    captured = [("CAPTURE_EVENT_TYPE", word) for word in traced]
    captured.append(("CUDA_GRAPH_TRACE_OPTIONS:MODE", graph_mode))
    captured += [(SIMULATED, "the times come from a model of CUDA, not from a GPU")]
    captured += [(f"{SIMULATED}_{name.upper()}", value) for name, value in facts.items()]
    export = {
        "EXPORT_PRODUCT_NAME": f"profkit simulate ({SIMULATED})",
        "EXPORT_PRODUCT_VERSION": facts.get("profkit_version", ""),
        "EXPORT_SCHEMA_VERSION": "3.25.0",
    }
    return {
        "META_DATA_CAPTURE": captured,
        "META_DATA_EXPORT": list(export.items()),
        "TARGET_INFO_SESSION_START_TIME": [(UTC_NS, "2023-11-14T22:13:20", "2023-11-14T22:13:20", 0)],
        "TARGET_INFO_SYSTEM_ENV": [(_HARDWARE_ID, "CUDA", "CudaDriverVersion", 3, "13000")],
    }
