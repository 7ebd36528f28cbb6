"""Who is who in an nsys export: processes, devices, streams and threads, and the tracks they are drawn on.

Identifiers are packed as <hardware:8><vm:8><pid:24><tid:24>; a process is its global id without the thread bits, a
device is found through its uuid or id and never through the CUDA ordinal alone, which is relative to one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profkit.arrays import key_of, numbered
from profkit.builder import Builder
from profkit.ingest.nsys.source import SqliteSource
from profkit.model import Array, Ints
from profkit.schema import STREAM_KINDS, TRACK_KINDS

TID_MASK = 0xFFFFFF
PROCESS_MASK = ~TID_MASK

_STREAM, _THREAD = TRACK_KINDS.index("stream"), TRACK_KINDS.index("thread")
_STREAM_FLAGS = {1: STREAM_KINDS.index("default"), 2: STREAM_KINDS.index("non_blocking"), 3: STREAM_KINDS.index("null")}


class Identity:
    """Rows of processes, devices and tracks for the ids that events carry; made when first asked for."""

    def __init__(self, source: SqliteSource, builder: Builder) -> None:
        self._builder = builder
        self._host = builder.dimension("hosts", "host", clock="session")
        self._process_names = {
            _int(row.get("globalPid")) & PROCESS_MASK: str(row.get("name") or "")
            for row in source.small_table("PROCESSES")
        }
        strings = {_int(row.get("id")): row.get("value") for row in _thread_strings(source)}
        self._thread_names = {
            _int(row.get("globalTid")): str(strings.get(_int(row.get("nameId"))) or "")
            for row in source.small_table("ThreadNames")
        }
        self._gpus = source.small_table("TARGET_INFO_GPU")
        # (pid, ordinal) -> (gpu id, uuid): the only dependable way from an ordinal to a device.
        self._ordinals = {
            (_int(row.get("pid")), _int(row.get("cudaId"))): (_int(row.get("gpuId")), str(row.get("uuid") or ""))
            for row in source.small_table("TARGET_INFO_CUDA_DEVICE")
        }
        self._streams = {
            (_int(row.get("processId")), _int(row.get("contextId")), _int(row.get("streamId"))): row
            for row in source.small_table("TARGET_INFO_CUDA_STREAM")
        }

    def process(self, global_pid: int) -> int:
        """Row of processes for a packed id; its thread bits are ignored."""
        key = global_pid & PROCESS_MASK
        pid = (key >> 24) & TID_MASK
        return self._builder.dimension(
            "processes",
            key,
            host=self._host,
            pid=pid,
            name=self._process_names.get(key, ""),
            rank=-1,
            local_rank=-1,
            world_size=-1,
        )

    def processes(self, global_ids: Array) -> Ints:
        """Rows of processes for packed ids, -1 where the id is absent."""
        return _map_distinct(global_ids.astype(np.int64), lambda g: -1 if g == -1 else self.process(g))

    def device(self, process: int, ordinal: int) -> int:
        """Row of devices for a CUDA ordinal of a process."""
        pid = int(self._builder.get_dimension("processes", process, "pid")) if process >= 0 else -1
        gpu_id, uuid = self._ordinals.get((pid, ordinal), (ordinal, ""))
        info = next((gpu for gpu in self._gpus if _int(gpu.get("id")) == gpu_id), {})
        if (pid, ordinal) not in self._ordinals and _int(info.get("cuDevice")) not in (-1, ordinal):
            info = next((gpu for gpu in self._gpus if _int(gpu.get("cuDevice")) == ordinal), info)
        uuid = uuid or str(info.get("uuid") or "")
        return self._builder.dimension(
            "devices", uuid or ("gpu", gpu_id), host=self._host, uuid=uuid.removeprefix("GPU-"), **_gpu_facts(info)
        )

    def stream_tracks(self, rows: Mapping[str, Any]) -> tuple[Ints, Ints]:
        """(track, process) a row, for device rows with globalPid, deviceId, contextId, greenContextId and streamId."""
        n = len(rows["start"])
        absent = np.full(n, -1, np.int64)
        columns = [
            rows.get(name, absent) for name in ("globalPid", "deviceId", "contextId", "greenContextId", "streamId")
        ]
        _, first, inverse = numbered(key_of(*columns))
        tracks = np.empty(len(first), np.int64)
        owners = np.empty(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            pid, ordinal, context, green, stream = (int(column[row]) for column in columns)
            owners[i] = self.process(pid) if pid != -1 else -1
            tracks[i] = self._stream(int(owners[i]), ordinal, context, green, stream)
        return tracks[inverse], owners[inverse]

    def _stream(self, process: int, ordinal: int, context: int, green: int, stream: int) -> int:
        device = self.device(process, ordinal)
        pid = self._builder.get_dimension("processes", process, "pid") if process >= 0 else -1
        info = self._streams.get((pid, context, stream), {})
        priority = _int(info.get("priority"))
        return self._builder.dimension(
            "tracks",
            ("stream", process, device, context, green, stream),
            kind=_STREAM,
            host=self._host,
            process=process,
            device=device,
            ordinal=ordinal,
            context=context,
            green_context=green,
            stream=stream,
            stream_priority=priority - (1 << 32) if priority >= 1 << 31 else priority,
            stream_priority_known=bool(info),
            stream_kind=_STREAM_FLAGS.get(_int(info.get("flag")), -1),
            label=f"stream {stream}" if context in (-1, 1) else f"stream {stream} (context {context})",
        )

    def thread(self, global_tid: int) -> int:
        """Row of tracks for a packed thread id."""
        process, tid = self.process(global_tid), global_tid & TID_MASK
        name = self._thread_names.get(global_tid, "")
        return self._builder.dimension(
            "tracks",
            ("thread", process, tid),
            kind=_THREAD,
            host=self._host,
            process=process,
            tid=tid,
            label=f"{name} ({tid})" if name else f"thread {tid}",
        )

    def threads(self, global_tids: Array) -> Ints:
        """Rows of tracks for packed thread ids, -1 where the id is absent."""
        return _map_distinct(global_tids, lambda g: -1 if g == -1 else self.thread(g))

    def devices_of(self, process: Array, ordinals: Array) -> Ints:
        """Rows of devices for ordinals of processes, -1 where absent."""
        out = np.full(len(ordinals), -1, np.int64)
        known = np.flatnonzero(ordinals >= 0)
        if len(known):
            _, first, inverse = numbered(key_of(process[known], ordinals[known]))
            rows = [self.device(int(process[known[i]]), int(ordinals[known[i]])) for i in first.tolist()]
            out[known] = np.asarray(rows, np.int64)[inverse]
        return out


def _thread_strings(source: SqliteSource) -> list[dict[str, Any]]:
    """StringIds that ThreadNames needs, without reading the others."""
    wanted = {_int(row.get("nameId")) for row in source.small_table("ThreadNames")}
    return source.select_rows("StringIds", "id", sorted(wanted)) if wanted else []


def _gpu_facts(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": str(info.get("name") or ""),
        "bus": str(info.get("busLocation") or ""),
        "sm_count": _int(info.get("smCount")),
        "memory_bytes": _int(info.get("totalMemory")),
        "memory_bytes_per_s": _int(info.get("memoryBandwidth")),
        "clock_hz": _int(info.get("clockRate")),
    }


def _map_distinct(values: Array, function: Any) -> Ints:
    distinct, _, inverse = numbered(values)
    rows = np.fromiter((function(int(value)) for value in distinct), np.int64, len(distinct))
    return rows[inverse] if len(values) else np.zeros(0, np.int64)


def _int(value: Any) -> int:
    return int(value) if isinstance(value, int) else -1
