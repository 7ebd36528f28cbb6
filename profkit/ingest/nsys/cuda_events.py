"""What CUDA tells besides work and calls: event records, graphs and their nodes, device memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.arrays import first_match, pack
from profkit.builder import Builder
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.rows import LATEST_NS, POINT, TIMES, absent, event_rows, keep_rows, time_columns
from profkit.ingest.nsys.source import Source, ints, small, times
from profkit.model import Array

CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPH_EVENTS = "CUDA_GRAPH_EVENTS"
GRAPH_NODE_EVENTS = "CUDA_GRAPH_NODE_EVENTS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"

_WHERE = {
    "deviceId": small("deviceId"),
    "contextId": small("contextId"),
    "greenContextId": small("greenContextId"),
    "streamId": ints("streamId"),
    "globalPid": ints("globalPid"),
    "correlation": ints("correlationId"),
}
_EVENT = {"timestamp": times("timestamp"), **_WHERE, "event": ints("eventId"), "event_sync": ints("eventSyncId")}
_GRAPH_ROW = {
    **TIMES,
    "eventClass": small("eventClass"),
    "globalTid": ints("globalTid"),
    "graph": ints("graphId"),
    "graph_exec": ints("graphExecId"),
    "graph_node": ints("graphNodeId"),
    "original_node": ints("originalGraphNodeId"),
    "original_graph": ints("originalGraphId"),
}
_ALLOC = {
    **POINT,
    **_WHERE,
    "address": ints("address"),
    "bytes": ints("bytes"),
    "operation": small("memoryOperationType"),
    "pool": ints("localMemoryPoolAddress"),
}
# eventClass; a 2.x export has nodes in the table that 3.x has graphs in, so the class alone is not enough.
_GRAPH_KINDS = {95: "graph", 94: "exec", 96: "clone", 77: "node", 111: "update"}


def read_gpu_events(source: Source, builder: Builder, identity: Identity) -> None:
    """Event records. Most captures have no time of the device (--cuda-event-trace): then their call says when."""
    rows = source.fetch(CUDA_EVENT, _EVENT)
    if rows is None or not len(rows["event"]):
        return
    n = len(rows["event"])
    nothing = np.full(n, -1, np.int64)
    stamp = rows.pop("timestamp", nothing)
    on_device = (stamp > 0) & (stamp < LATEST_NS)
    process = identity.processes(rows.get("globalPid", nothing))
    called, known = _call_starts(builder, process, rows.get("correlation", nothing))
    rows["start"] = np.where(on_device, stamp, called)
    placed = on_device | known
    if not placed.all():
        source.warnings.append(
            f"{CUDA_EVENT}: {int((~placed).sum())} records have neither a time nor a recorded call and were left out"
        )
        rows, on_device = keep_rows(rows, placed), on_device[placed]
    track, process = identity.stream_tracks(rows)
    builder.add(
        "gpu_events",
        start_ns=rows["start"],
        dur_ns=np.zeros(len(track), np.int64),
        track=track,
        process=process,
        correlation=_positive(rows.get("correlation")),
        event=rows["event"],
        event_sync=rows.get("event_sync"),
        device_time=on_device,
    )


def _call_starts(builder: Builder, process: Array, correlation: Array) -> tuple[Array, Array]:
    """(start of the call of each (process, correlation), whether it was recorded)."""
    calls = builder.columns("calls", ("process", "correlation", "start_ns"))
    keys, wanted = pack([[calls["process"], process], [calls["correlation"], correlation]])
    at = np.where(correlation > 0, first_match(keys, wanted), -1)
    return (calls["start_ns"][at] if len(keys) else at), at >= 0


def read_graph_events(source: Source, builder: Builder, identity: Identity) -> None:
    """Creation, instantiation, cloning of graphs, and creation of nodes, whichever table they are in."""
    for table in (GRAPH_EVENTS, GRAPH_NODE_EVENTS):
        rows = event_rows(source, table, _GRAPH_ROW)
        if rows is None:
            continue
        tid = rows.pop("globalTid", absent(rows))
        is_node = table == GRAPH_NODE_EVENTS or "graph_node" in rows
        words = ["node" if is_node else "graph", *_GRAPH_KINDS.values()]
        index = np.zeros(len(tid), np.int8)
        event_class = rows.pop("eventClass", absent(rows))
        for place, code in enumerate(_GRAPH_KINDS, 1):
            index[event_class == code] = place
        ids = ("graph", "graph_exec", "graph_node", "original_node", "original_graph")
        builder.add(
            "graph_events",
            process=identity.processes(tid),
            track=identity.threads(tid),
            kind=pa.DictionaryArray.from_arrays(pa.array(index), pa.array(words)).cast(pa.string()),
            **time_columns(rows),
            **{key: rows.get(key) for key in ids},
        )


def read_allocs(source: Source, builder: Builder, identity: Identity) -> None:
    """Allocations and releases of device memory, on the stream's lane if they are ordered by one."""
    rows = event_rows(source, MEMORY_USAGE, _ALLOC)
    if rows is None:
        return
    process = identity.processes(rows.get("globalPid", absent(rows)))
    track, device = identity.device_tracks(process, rows.get("deviceId", absent(rows)))
    stream = rows.get("streamId", absent(rows))
    on_stream = (stream >= 0) & (stream != 0xFFFFFFFF)
    if on_stream.any():
        track[on_stream], _ = identity.stream_tracks(keep_rows(rows, on_stream))
    released = rows.get("operation", absent(rows)) == 1
    pool = rows.get("pool", absent(rows))
    builder.add(
        "allocs",
        process=process,
        track=track,
        device=device,
        address=rows.get("address"),
        bytes=rows.get("bytes"),
        operation=pa.DictionaryArray.from_arrays(pa.array(released.astype(np.int8)), pa.array(["alloc", "free"])).cast(
            pa.string()
        ),
        pool=_hexadecimal(pool),
        **time_columns(rows),
    )


def _hexadecimal(values: Array) -> pa.Array:
    """Addresses as text, "" for none."""
    distinct, inverse = np.unique(values, return_inverse=True)
    words = [f"{value & (1 << 64) - 1:#x}" if value not in (0, -1) else "" for value in distinct.tolist()]
    return pa.array(words, pa.string()).take(pa.array(inverse))


def _positive(values: Array | None) -> Array | None:
    return None if values is None else np.where(values > 0, values, -1)
