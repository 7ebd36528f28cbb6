"""Host rows of an nsys export: CUDA calls, synchronisations, operating system calls, profiler overhead."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from profkit import text
from profkit.arrays import first_match, numbered, pack
from profkit.builder import Builder
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.rows import TIMES, absent, event_rows, keep_rows, time_columns
from profkit.ingest.nsys.source import Source, ints, name_ids, small, string_ids
from profkit.model import Array, Ints
from profkit.schema import SYNC_KINDS

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
OS_RUNTIME = "OSRT_API"
OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

NONE_32 = 0xFFFFFFFF
"""What CUPTI writes for "no stream" and "no event"."""

_THREAD_ROW = {**TIMES, "globalTid": ints("globalTid")}
_CALL = {
    **_THREAD_ROW,
    "eventClass": small("eventClass"),
    "correlationId": ints("correlationId"),
    "nameId": name_ids("nameId", required=True),
    "returnValue": small("returnValue"),
    "callchainId": ints("callchainId"),
}
_SYNC = {
    **TIMES,
    "deviceId": small("deviceId"),
    "contextId": small("contextId"),
    "greenContextId": small("greenContextId"),
    "streamId": ints("streamId"),
    "correlationId": ints("correlationId"),
    "globalPid": ints("globalPid"),
    "syncType": small("syncType"),
    "eventId": ints("eventId"),
    "eventSyncId": ints("eventSyncId"),
}
_OS_CALL = {
    **_THREAD_ROW,
    "eventClass": small("eventClass"),
    "nameId": name_ids("nameId", required=True),
    "returnValue": ints("returnValue"),
}
_OVERHEAD = {**_THREAD_ROW, "nameId": name_ids("nameId"), "overheadType": small("overheadType")}

# eventClass: 0 runtime, 1 driver, 67 a copy of the same call made for its backtrace (would count double).
_CLASS_RUNTIME, _CLASS_DRIVER = 0, 1

# A synchronisation by the name of its call. nsys's own syncType is second: cudaStreamSynchronize has been seen there
# as "stream wait".
_SYNC_BY_CALL = (
    (r"(?i)StreamWaitEvent", "stream_wait"),
    (r"(?i)EventSynchronize|EventQuery", "event"),
    (r"(?i)StreamSynchronize|StreamQuery", "stream"),
    (r"(?i)(Device|Ctx|Thread)Synchronize", "context"),
)
# overheadType; 0 and 1 are undefined and unknown.
_OVERHEADS = {
    2: "driver_jit",
    3: "buffer_flush",
    4: "instrumentation",
    5: "resource",
    6: "module_loading",
    7: "lazy_function_loading",
    8: "command_buffer_full",
}
_SYNC_BY_TYPE = {1: "event", 2: "stream_wait", 3: "stream", 4: "context"}


def name_codes(source: Source, builder: Builder, ids: Array) -> Array:
    """Rows of names for StringIds ids, -1 where absent."""
    distinct, _, inverse = numbered(ids)
    texts = string_ids(source, [distinct])
    known = distinct != -1
    rows = np.full(len(distinct), -1, np.int32)
    rows[known] = builder.names.rows([texts[i] for i in distinct[known].tolist()])
    return rows[inverse]


def read_calls(source: Source, builder: Builder, identity: Identity) -> None:
    for table in (RUNTIME, DRIVER):
        rows = event_rows(source, table, _CALL)
        if rows is None:
            continue
        event_class = rows.get("eventClass", absent(rows, int(table == DRIVER)))
        keep = (event_class == _CLASS_RUNTIME) | (event_class == _CLASS_DRIVER)
        if not keep.all():
            rows, event_class = keep_rows(rows, keep), event_class[keep]
        tid = rows.pop("globalTid", absent(rows))
        correlation = rows.pop("correlationId", absent(rows))
        builder.add(
            "calls",
            name=name_codes(source, builder, rows.pop("nameId")),
            api=(event_class == _CLASS_DRIVER).astype(np.int8),
            process=identity.processes(tid),
            track=identity.threads(tid),
            correlation=np.where(correlation > 0, correlation, -1),
            return_code=rows.pop("returnValue", None),
            stack=_without_zero(rows.pop("callchainId", None)),
            **time_columns(rows),
        )


def read_syncs(source: Source, builder: Builder, identity: Identity) -> None:
    """Read after the calls, which say what each synchronisation is and on which thread it was."""
    rows = event_rows(source, SYNCHRONIZATION, _SYNC)
    if rows is None:
        return
    nothing = absent(rows)
    process = identity.processes(rows.get("globalPid", nothing))
    correlation = rows.get("correlationId", nothing)
    call_name, thread_track = _calls_of(builder, process, correlation)
    kind = np.full(len(nothing), -1, np.int8)
    for code, word in _SYNC_BY_TYPE.items():
        kind[rows.get("syncType", nothing) == code] = SYNC_KINDS.index(word)
    by_call = _kinds_by_call(builder, call_name)
    kind = np.where(by_call >= 0, by_call, kind)
    stream = rows.get("streamId", nothing)
    on_stream = (stream >= 0) & (stream != NONE_32)
    stream_track = nothing.copy()
    if on_stream.any():
        stream_track[on_stream], _ = identity.stream_tracks({key: values[on_stream] for key, values in rows.items()})
    builder.add(
        "syncs",
        kind=kind,
        process=process,
        correlation=np.where(correlation > 0, correlation, -1),
        track=np.where(stream_track >= 0, stream_track, thread_track),
        thread_track=thread_track,
        stream_track=stream_track,
        event=_without_none(rows.get("eventId", nothing)),
        event_sync=_without_none(rows.get("eventSyncId", nothing)),
        **time_columns(rows),
    )


def read_os_calls(source: Source, builder: Builder, identity: Identity) -> None:
    rows = event_rows(source, OS_RUNTIME, _OS_CALL)
    if rows is None:
        return
    tid = rows.get("globalTid", absent(rows))
    builder.add(
        "os_calls",
        name=name_codes(source, builder, rows["nameId"]),
        event_class=rows.get("eventClass", 27),
        return_code=rows.get("returnValue"),
        process=identity.processes(tid),
        track=identity.threads(tid),
        **time_columns(rows),
    )


def read_overheads(source: Source, builder: Builder, identity: Identity) -> None:
    for table in OVERHEADS:
        rows = event_rows(source, table, _OVERHEAD)
        if rows is None:
            continue
        tid = rows.get("globalTid", absent(rows))
        builder.add(
            "overheads",
            name=name_codes(source, builder, rows.get("nameId", absent(rows))),
            process=identity.processes(tid),
            track=identity.threads(tid),
            kind=_overhead_kinds(rows.get("overheadType", absent(rows)), table),
            **time_columns(rows),
        )


def _overhead_kinds(codes: Array, table: str) -> pa.Array:
    """By overheadType; where that says nothing, whose time it was by the table."""
    words = ["profiler" if table.startswith("PROFILER") else "driver", *_OVERHEADS.values()]
    index = np.zeros(len(codes), np.int8)
    for place, code in enumerate(_OVERHEADS, 1):
        index[codes == code] = place
    return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(words)).cast(pa.string())


def _without_zero(values: Array | None) -> Array | None:
    """0 stands for "no call chain"."""
    return None if values is None else np.where(values > 0, values, -1)


def _without_none(values: Array) -> Array:
    return np.where(values == NONE_32, -1, values)


def _calls_of(builder: Builder, process: Array, correlation: Array) -> tuple[Ints, Ints]:
    """Name and track of the call of each (process, correlation), -1 where it was not recorded."""
    calls = builder.columns("calls", ("process", "correlation", "name", "track"))
    keys, asked = pack([[calls["process"], process], [calls["correlation"], correlation]])
    at = np.where(correlation > 0, first_match(keys, asked), -1)
    name, track = (np.where(at >= 0, calls[key][at] if len(keys) else -1, -1) for key in ("name", "track"))
    return name, track


def _kinds_by_call(builder: Builder, names: Ints) -> Array:
    """Kind of synchronisation by the name of its call, -1 where the name says nothing."""
    distinct, _, inverse = numbered(names)
    texts = builder.names.texts()
    out = np.full(len(distinct), -1, np.int8)
    for i, row in enumerate(distinct.tolist()):
        base = re.sub(text.CALL_SUFFIX, "", texts[row]) if row >= 0 else ""
        word = next((word for pattern, word in _SYNC_BY_CALL if re.search(pattern, base)), None)
        out[i] = SYNC_KINDS.index(word) if word else -1
    return out[inverse]
