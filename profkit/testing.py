"""``build_trace``: a tiny trace in a few lines, for the examples of rules, for tests and for samples.

>>> trace = build_trace(launch("gemm", at=0, start=10_000, dur=50_000), span("decode", 0, 70_000))

Every function makes rows; times are ns. Lanes, names and processes appear when a row needs them: process 100 with
thread 100, device 0 with stream 7, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from profkit.builder import Builder
from profkit.model import RunMeta, Trace, Window
from profkit.schema import APIS, COPY_KINDS, MEMORY_KINDS, PAYLOAD_KINDS, SPAN_KINDS, SYNC_KINDS, TRACK_KINDS
from profkit.stages import find_stages

PID, TID, DEVICE, STREAM = 100, 100, 0, 7

_numbers = count(1_000_000)


@dataclass(frozen=True)
class Row:
    """One row of a table to be; ``lane`` is (pid, tid) of a thread or (pid, device, stream) of a stream."""

    table: str
    lane: tuple[int, ...]
    name: str
    values: Mapping[str, Any]


def kernel(
    start: int, dur: int, name: str = "gemm", *, correlation: int = -1, pid: int = PID, device: int = DEVICE,
    stream: int = STREAM, graph_node: int = -1, grid: int = -1,
) -> Row:  # fmt: skip
    """A kernel on a stream; ``dur`` -1 was not seen to end, ``grid`` is its number of blocks."""
    values = {"start_ns": start, "dur_ns": dur, "correlation": correlation, "graph_node": graph_node}
    if grid >= 0:
        values |= {"grid_x": grid, "grid_y": 1, "grid_z": 1}
    return Row("kernels", (pid, device, stream), name, values)


def copy(
    start: int, dur: int, kind: str, size: int, src: str = "unknown", dst: str = "unknown", *, correlation: int = -1,
    pid: int = PID, device: int = DEVICE, stream: int = STREAM, cause: int = -1,
) -> Row:  # fmt: skip
    """A copy, with kind memset a memset of ``size`` bytes, or with kind um_h2d a migration for a ``cause``."""
    values = {
        "start_ns": start, "dur_ns": dur, "kind": COPY_KINDS.index(kind), "bytes": size, "correlation": correlation,
        "src_kind": MEMORY_KINDS.index(src), "dst_kind": MEMORY_KINDS.index(dst), "cause": cause,
    }  # fmt: skip
    return Row("copies", (pid, device, stream), "", values)


def graph(
    start: int, dur: int, *, correlation: int = -1, number: int = 1, pid: int = PID, device: int = DEVICE,
    stream: int = STREAM,
) -> Row:  # fmt: skip
    """A launch of the graph ``number`` recorded as one piece."""
    values = {"start_ns": start, "dur_ns": dur, "correlation": correlation, "graph": number, "graph_exec": number}
    return Row("graphs", (pid, device, stream), "", values)


def call(
    start: int, dur: int, name: str = "cudaLaunchKernel", *, correlation: int = -1, pid: int = PID, tid: int = TID,
    api: str = "runtime",
) -> Row:  # fmt: skip
    """A CUDA call on a host thread."""
    values = {"start_ns": start, "dur_ns": dur, "correlation": correlation, "api": APIS.index(api), "return_code": 0}
    return Row("calls", (pid, tid), name, values)


def sync(start: int, dur: int, kind: str = "stream", *, correlation: int = -1, pid: int = PID, tid: int = TID) -> Row:
    """A synchronisation record."""
    values = {"start_ns": start, "dur_ns": dur, "kind": SYNC_KINDS.index(kind), "correlation": correlation}
    return Row("syncs", (pid, tid), "", values)


def span(
    name: str, start: int, dur: int, *, kind: str = "push_pop", payload: int | None = None, pid: int = PID,
    tid: int = TID, domain: str = "", category: str = "",
) -> Row:  # fmt: skip
    """A range; ``dur`` -1 was never closed."""
    values = {"start_ns": start, "dur_ns": dur, "kind": SPAN_KINDS.index(kind), "domain": domain, "category": category}
    if payload is not None:
        values |= {"payload_kind": PAYLOAD_KINDS.index("int"), "payload_int": payload}
    return Row("spans", (pid, tid), name, values)


def os_call(start: int, dur: int, name: str = "poll", *, pid: int = PID, tid: int = TID) -> Row:
    """An operating system call."""
    return Row("os_calls", (pid, tid), name, {"start_ns": start, "dur_ns": dur, "event_class": 27})


def overhead(start: int, dur: int, kind: str = "profiler", *, pid: int = PID, tid: int = TID) -> Row:
    """Time that the profiler or the driver took for itself on a host thread."""
    return Row("overheads", (pid, tid), "", {"start_ns": start, "dur_ns": dur, "kind": kind})


def counter(time: int, name: str, value: float, *, pid: int = PID, device: int = DEVICE) -> Row:
    """A sample of a counter of a device."""
    return Row("counters", (pid, device, STREAM), name, {"time_ns": time, "value": value})


def alloc(time: int, size: int, *, freed: bool = False, address: int = -1, pid: int = PID, device: int = DEVICE) -> Row:
    """An allocation of device memory or, if ``freed``, its release."""
    values = {
        "start_ns": time, "dur_ns": 0, "bytes": size, "address": address, "operation": "free" if freed else "alloc",
    }  # fmt: skip
    return Row("allocs", (pid, device, STREAM), "", values)


def collective(
    start: int, dur: int, name: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", *, operation: str = "all_reduce",
    size: int = -1, communicator: str = "", pid: int = PID, device: int = DEVICE, stream: int = 20,
) -> list[Row]:  # fmt: skip
    """A collective with its kernel."""
    values = {"start_ns": start, "dur_ns": dur, "operation": operation, "bytes": size, "communicator": communicator}
    return [
        kernel(start, dur, name, pid=pid, device=device, stream=stream),
        Row("collectives", (pid, device, stream), name, values),
    ]


def sched(time: int, running: bool, *, pid: int = PID, tid: int = TID) -> Row:
    """A host thread put on a CPU or taken off it."""
    return Row("sched", (pid, tid), "", {"time_ns": time, "running": running})


def event_record(
    start: int, event: int, *, record: int = -1, correlation: int = -1, on_device: bool = False, pid: int = PID,
    device: int = DEVICE, stream: int = STREAM,
) -> Row:  # fmt: skip
    """A record of a CUDA event on a stream, with its own number ``record``."""
    values = {
        "start_ns": start, "dur_ns": 0, "event": event, "event_sync": record, "correlation": correlation,
        "device_time": on_device,
    }  # fmt: skip
    return Row("gpu_events", (pid, device, stream), "", values)


def stream_wait(
    start: int, event: int, *, record: int = -1, correlation: int = -1, pid: int = PID, device: int = DEVICE,
    stream: int = STREAM,
) -> Row:  # fmt: skip
    """A stream that is made to wait for a record of a CUDA event, as the driver reports it."""
    values = {
        "start_ns": start, "dur_ns": 0, "kind": SYNC_KINDS.index("stream_wait"), "event": event, "event_sync": record,
        "correlation": correlation,
    }  # fmt: skip
    return Row("syncs", (pid, device, stream), "", values)


def launch(
    name: str, *, at: int, start: int, dur: int, call_dur: int = 5_000, pid: int = PID, tid: int = TID,
    device: int = DEVICE, stream: int = STREAM, api: str = "cudaLaunchKernel",
) -> list[Row]:  # fmt: skip
    """A launch call at ``at`` and its kernel, joined by a correlation id of their own."""
    number = next(_numbers)
    return [
        call(at, call_dur, api, correlation=number, pid=pid, tid=tid),
        kernel(start, dur, name, correlation=number, pid=pid, device=device, stream=stream),
    ]


def build_trace(
    *rows: Row | Iterable[Row],
    simulated: bool = False,
    windows: tuple[Window, ...] = (),
    missing: Mapping[str, str] | None = None,
    warnings: tuple[str, ...] = (),
    gpu: Mapping[str, Any] | None = None,
    ranks: Mapping[int, int] | None = None,
) -> Trace:
    """A Trace of these rows; tables in ``missing`` were not captured, for that reason.

    ``gpu`` are columns of ``devices``, alike for all of them; ``ranks`` are those of processes, by pid.
    """
    builder = Builder()
    host = builder.dimension("hosts", "host", clock="session")
    for row in _flat(rows):
        _add(builder, host, row, gpu or {})
    for table, reason in (missing or {}).items():
        builder.miss(table, reason)
    for pid, rank in (ranks or {}).items():
        builder.set_dimension("processes", builder.row_of("processes", pid), rank=rank, world_size=len(ranks or {}))
    meta = RunMeta(source="built", simulated=simulated, warnings=warnings)
    return builder.finish(meta, windows)


def _flat(rows: Iterable[Row | Iterable[Row]]) -> Iterable[Row]:
    for row in rows:
        if isinstance(row, Row):
            yield row
        else:
            yield from row


def _add(builder: Builder, host: int, row: Row, gpu: Mapping[str, Any]) -> None:
    process = builder.dimension("processes", row.lane[0], host=host, pid=row.lane[0], rank=-1)
    values: dict[str, Any] = {
        key: np.asarray([value]) if isinstance(value, int | float) else value for key, value in row.values.items()
    }
    if len(row.lane) == 3:
        values["track"] = np.asarray([_stream(builder, host, process, *row.lane, gpu)])
    else:
        values["track"] = np.asarray([_thread(builder, host, process, *row.lane)])
    if row.table in ("kernels", "collectives"):
        values["name"] = builder.names.kernel(row.name)
    elif row.table in ("calls", "os_calls", "spans"):
        values["name"] = builder.names.row(row.name)
    if row.table == "counters":
        values["counter"] = builder.dimension("counter_names", row.name, name=row.name, scope="device")
    if row.table == "spans":
        for key in ("domain", "category"):
            word = str(row.values[key])
            values[key] = builder.names.row(word) if word else -1
        values |= _stage(builder, values)
    elif row.table == "collectives":
        values["kernel"] = builder.count("kernels") - 1  # its kernel was added just before
    elif row.table not in ("sched", "counters"):
        values["process"] = process
    if row.table == "allocs":
        values["device"] = builder.row_of("devices", row.lane[1])
    if row.table == "syncs":
        values["stream_track" if len(row.lane) == 3 else "thread_track"] = values["track"]
    builder.add(row.table, **values)


def _stage(builder: Builder, values: Mapping[str, Any]) -> dict[str, Any]:
    codes = [np.asarray([values[key]]) for key in ("name", "domain", "category")]
    stage, payload, has_payload = find_stages(builder.names.texts(), *codes)
    out = {"stage": np.where(values["kind"] == SPAN_KINDS.index("mark"), -1, stage), "end_track": values["track"]}
    if has_payload[0] and "payload_int" not in values:
        out |= {"payload_kind": PAYLOAD_KINDS.index("int"), "payload_int": payload}
    return out


def _stream(
    builder: Builder, host: int, process: int, pid: int, device: int, stream: int, gpu: Mapping[str, Any]
) -> int:
    row = builder.dimension("devices", device, host=host, **gpu)
    return builder.dimension(
        "tracks", (pid, device, stream), kind=TRACK_KINDS.index("stream"), host=host, process=process, device=row,
        ordinal=device, context=1, stream=stream, label=f"stream {stream}",
    )  # fmt: skip


def _thread(builder: Builder, host: int, process: int, pid: int, tid: int) -> int:
    return builder.dimension(
        "tracks", (pid, tid), kind=TRACK_KINDS.index("thread"), host=host, process=process, tid=tid,
        label=f"thread {tid}",
    )  # fmt: skip
