"""Device rows of an nsys export: kernels, copies with memsets and migrations, and graphs recorded as one piece."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit.arrays import numbered
from profkit.builder import Builder
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.rows import TIMES, absent, event_rows, time_columns
from profkit.ingest.nsys.source import Source, ints, name_ids, small, string_ids
from profkit.model import Array
from profkit.schema import COPY_KINDS, LAUNCH_KINDS, MEMORY_KINDS

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

_COMMON = {
    **TIMES,
    "deviceId": small("deviceId", required=True),
    "contextId": small("contextId"),
    "greenContextId": small("greenContextId"),
    "streamId": ints("streamId", required=True),
    "correlationId": ints("correlationId"),
    "globalPid": ints("globalPid"),
}
_KERNEL = {
    "demangled": name_ids("demangledName"),
    "short": name_ids("shortName", required=True),
    "mangled": name_ids("mangledName"),
    "launch_type": small("launchType"),
    **{f"{what}_{axis.lower()}": small(f"{what}{axis}") for what in ("grid", "block", "cluster") for axis in "XYZ"},
    "registers": small("registersPerThread"),
    "static_smem_bytes": ints("staticSharedMemory"),
    "dynamic_smem_bytes": ints("dynamicSharedMemory"),
    "local_bytes": ints("localMemoryTotal"),
    "graph": ints("graphId"),
    "graph_node": ints("graphNodeId"),
}
_MEMCPY = {
    "bytes": ints("bytes", required=True),
    "copy_kind": small("copyKind", required=True),
    "src_kind": small("srcKind"),
    "dst_kind": small("dstKind"),
    "src_device": small("srcDeviceId"),
    "dst_device": small("dstDeviceId"),
    "cause": small("migrationCause"),
    "address": ints("virtualAddress"),
    "graph_node": ints("graphNodeId"),
}
_MEMSET = {"bytes": ints("bytes"), "memory": small("memKind"), "graph_node": ints("graphNodeId")}
_GRAPH = {"graph": ints("graphId"), "graph_exec": ints("graphExecId")}

# copyKind: 0 unknown 1 H2D 2 D2H 3-7 arrays 8 D2D 9 H2H 10 P2P 11-13 unified memory
_COPY = (
    "unknown",
    "h2d",
    "d2h",
    "array",
    "array",
    "array",
    "array",
    "array",
    "d2d",
    "h2h",
    "p2p",
    "um_h2d",
    "um_d2h",
    "um_d2d",
)
# memKind: 0 pageable 1 pinned 2 device 3 array 4 managed 5 device static 6 managed static 7 unknown
_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown")
# launchType: 0 unknown 1 regular 2 and 3 cooperative
_LAUNCH = {1: "regular", 2: "cooperative", 3: "cooperative"}


def read_kernels(source: Source, builder: Builder, identity: Identity) -> None:
    rows = event_rows(source, KERNEL, _COMMON | _KERNEL)
    if rows is None:
        return
    common = _take_common(rows, identity)
    name = _kernel_names(source, builder, rows)
    launch = _coded(rows.pop("launch_type", None), _launch_codes(), len(name))
    rest = {key: values for key, values in rows.items() if key in _KERNEL}
    builder.add("kernels", name=name, launch_kind=launch, **common, **rest)


def read_copies(source: Source, builder: Builder, identity: Identity) -> None:
    """Copies and unified-memory migrations from MEMCPY, memsets from MEMSET."""
    rows = event_rows(source, MEMCPY, _COMMON | _MEMCPY)
    if rows is not None:
        _add_copies(rows, builder, identity)
    rows = event_rows(source, MEMSET, _COMMON | _MEMSET)
    if rows is not None:
        common = _take_common(rows, identity)
        n = len(common["start_ns"])
        builder.add(
            "copies",
            kind=COPY_KINDS.index("memset"),
            bytes=rows.get("bytes"),
            src_kind=_memory(None, n),
            dst_kind=_memory(rows.get("memory"), n),
            graph_node=rows.get("graph_node"),
            **common,
        )


def _add_copies(rows: dict[str, Any], builder: Builder, identity: Identity) -> None:
    nowhere = absent(rows)
    common = _take_common(rows, identity)
    n = len(common["start_ns"])
    kind = _coded(rows["copy_kind"], [COPY_KINDS.index(k) for k in _COPY], n, COPY_KINDS.index("unknown"))
    sides = {
        side: identity.devices_of(common["process"], rows.get(side, nowhere)) for side in ("src_device", "dst_device")
    }
    # A device-to-device copy whose ends differ went between peers, whatever the driver called it.
    across = (kind == COPY_KINDS.index("d2d")) & (sides["src_device"] >= 0) & (sides["dst_device"] >= 0)
    across &= sides["src_device"] != sides["dst_device"]
    kind[across] = COPY_KINDS.index("p2p")
    builder.add(
        "copies",
        kind=kind,
        bytes=rows["bytes"],
        src_kind=_memory(rows.get("src_kind"), n),
        dst_kind=_memory(rows.get("dst_kind"), n),
        cause=rows.get("cause"),
        address=rows.get("address"),
        graph_node=rows.get("graph_node"),
        **sides,
        **common,
    )


def read_graphs(source: Source, builder: Builder, identity: Identity) -> None:
    rows = event_rows(source, GRAPH_TRACE, _COMMON | _GRAPH)
    if rows is not None:
        common = _take_common(rows, identity)
        builder.add("graphs", **common, graph=rows.get("graph"), graph_exec=rows.get("graph_exec"))


def _take_common(rows: dict[str, Any], identity: Identity) -> dict[str, Array]:
    """Time, track, process and correlation of device rows; the source's columns are given back to memory."""
    track, process = identity.stream_tracks(rows)
    common = {**time_columns(rows), "track": track, "process": process}
    if "correlationId" in rows:
        # 0 is what CUPTI writes where there was no call.
        common["correlation"] = np.where(rows["correlationId"] > 0, rows["correlationId"], -1)
    for name in ("start", "dur", "flags", *_COMMON):
        rows.pop(name, None)
    return common


def _kernel_names(source: Source, builder: Builder, rows: dict[str, Any]) -> Array:
    """Rows of names, one for each distinct demangled name; the short and the mangled form come along."""
    short = rows.pop("short")
    full = rows.pop("demangled", short)
    if (full < 0).any():
        full = np.where(full < 0, short, full)
    mangled = rows.pop("mangled", np.full(len(full), -1, np.int64))
    distinct, first, inverse = numbered(full)
    texts = string_ids(source, [distinct, short[first], mangled[first]])
    texts[-1] = ""
    codes = [
        builder.names.kernel(texts[int(f)], texts[int(short[i])], texts[int(mangled[i])])
        for f, i in zip(distinct.tolist(), first.tolist(), strict=True)
    ]
    return np.asarray(codes, np.int32)[inverse]


def _coded(values: Array | None, codes: list[int], n: int, fallback: int = -1) -> Array:
    """Source codes to ours by position in ``codes``; what lies outside becomes ``fallback``."""
    if values is None:
        return np.full(n, fallback, np.int8)
    table = np.asarray(codes, np.int8)
    inside = (values >= 0) & (values < len(table))
    return np.where(inside, table[np.where(inside, values, 0)], fallback).astype(np.int8)


def _launch_codes() -> list[int]:
    return [LAUNCH_KINDS.index(_LAUNCH[code]) if code in _LAUNCH else -1 for code in range(4)]


def _memory(values: Array | None, n: int) -> Array:
    return _coded(values, [MEMORY_KINDS.index(kind) for kind in _MEMORY], n, MEMORY_KINDS.index("unknown"))
