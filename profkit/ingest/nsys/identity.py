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
from profkit.ingest.nsys.source import Source, string_ids
from profkit.model import Array, Ints
from profkit.schema import STREAM_KINDS, TRACK_KINDS

TID_MASK = 0xFFFFFF
PROCESS_MASK = ~TID_MASK

_STREAM_FLAGS = {1: STREAM_KINDS.index("default"), 2: STREAM_KINDS.index("non_blocking"), 3: STREAM_KINDS.index("null")}
_MIG = "MIG-"


class Identity:
    """Rows of processes, devices and tracks for the ids that events carry; made when first asked for."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self._builder = builder
        self._host = builder.dimension("hosts", "host", clock="session")
        self._process_names = {
            whole(row.get("globalPid")) & PROCESS_MASK: str(row.get("name") or "")
            for row in source.small_table("PROCESSES")
        }
        self._ranks = {
            whole(row.get("globalPid")) & PROCESS_MASK: whole(row.get("rank"))
            for row in source.small_table("MPI_RANKS")
        }
        self._thread_names = _thread_names(source)
        gpus = source.small_table("TARGET_INFO_GPU")
        self._gpus = {whole(gpu.get("id")): gpu for gpu in reversed(gpus)}
        self._by_ordinal = {whole(gpu.get("cuDevice")): gpu for gpu in reversed(gpus)}
        # (pid, ordinal) -> (gpu id, uuid): the only dependable way from an ordinal to a device.
        self._ordinals = {
            (whole(row.get("pid")), whole(row.get("cudaId"))): (whole(row.get("gpuId")), str(row.get("uuid") or ""))
            for row in source.small_table("TARGET_INFO_CUDA_DEVICE")
        }
        self._streams = {_stream_key(row): row for row in source.small_table("TARGET_INFO_CUDA_STREAM")}
        self._stream_names = {
            _stream_key(row): str(row.get("name") or "") for row in source.small_table("TARGET_INFO_NVTX_CUDA_STREAM")
        }

    def process(self, global_pid: int) -> int:
        """Row of processes for a packed id; its thread bits are ignored."""
        key = global_pid & PROCESS_MASK
        return self._builder.dimension(
            "processes",
            key,
            host=self._host,
            pid=(key >> 24) & TID_MASK,
            name=self._process_names.get(key, ""),
            rank=self._ranks.get(key, -1),
            world_size=max(self._ranks.values()) + 1 if key in self._ranks else -1,
        )

    def processes(self, global_ids: Array) -> Array:
        """Rows of processes for packed ids, -1 where the id is absent."""
        return _map_distinct(global_ids & PROCESS_MASK, lambda g: -1 if g == PROCESS_MASK else self.process(g))

    def knows_process(self, global_id: int) -> bool:
        """Whether an event of this process was read already."""
        return self._builder.row_of("processes", global_id & PROCESS_MASK) >= 0

    def device(self, process: int, ordinal: int) -> int:
        """Row of devices for a CUDA ordinal of a process."""
        pid = int(self._builder.get_dimension("processes", process, "pid")) if process >= 0 else -1
        gpu_id, uuid = self._ordinals.get((pid, ordinal), (ordinal, ""))
        info = self._gpus.get(gpu_id, {})
        if (pid, ordinal) not in self._ordinals and whole(info.get("cuDevice")) not in (-1, ordinal):
            info = self._by_ordinal.get(ordinal, info)
        return self._device(gpu_id, uuid, info)

    def gpu(self, gpu_id: int) -> int:
        """Row of devices for nsys's own number of a GPU."""
        return self._device(gpu_id, "", self._gpus.get(gpu_id, {}))

    def _device(self, gpu_id: int, uuid: str, info: Mapping[str, Any]) -> int:
        own = str(info.get("uuid") or "")
        mig = uuid.removeprefix(_MIG) if uuid.startswith(_MIG) else ""
        whole_gpu = own if mig else uuid or own
        return self._builder.dimension(
            "devices",
            mig or whole_gpu.removeprefix("GPU-") or ("gpu", gpu_id),
            host=self._host,
            uuid=whole_gpu.removeprefix("GPU-"),
            mig=mig,
            **_gpu_facts(info),
        )

    def stream_tracks(self, rows: Mapping[str, Any]) -> tuple[Array, Array]:
        """(track, process) a row, for device rows with globalPid, deviceId, contextId, greenContextId and streamId."""
        nowhere = np.full(len(rows["start"]), -1, np.int64)
        columns = [
            rows.get(name, nowhere) for name in ("globalPid", "deviceId", "contextId", "greenContextId", "streamId")
        ]
        _, first, inverse = numbered(key_of(*columns))
        tracks = np.empty(len(first), np.int32)
        owners = np.empty(len(first), np.int32)
        for i, row in enumerate(first.tolist()):
            pid, ordinal, context, green, stream = (int(column[row]) for column in columns)
            owners[i] = self.process(pid) if pid != -1 else -1
            tracks[i] = self._stream(int(owners[i]), ordinal, context, green, stream)
        return tracks[inverse], owners[inverse]

    def _stream(self, process: int, ordinal: int, context: int, green: int, stream: int) -> int:
        device = self.device(process, ordinal)
        pid = int(self._builder.get_dimension("processes", process, "pid")) if process >= 0 else -1
        info = self._streams.get((pid, context, stream), {})
        name = self._stream_names.get((pid, context, stream), "")
        priority = whole(info.get("priority"))
        label = f"stream {stream}" if context in (-1, 1) else f"stream {stream} (context {context})"
        return self._track(
            "stream",
            (process, device, context, green, stream),
            process=process,
            device=device,
            ordinal=ordinal,
            context=context,
            green_context=green,
            stream=stream,
            stream_priority=priority - (1 << 32) if priority >= 1 << 31 else priority,
            stream_priority_known=bool(info),
            stream_kind=_STREAM_FLAGS.get(whole(info.get("flag")), -1),
            label=f"{name} ({label})" if name else label,
        )

    def thread(self, global_tid: int) -> int:
        """Row of tracks for a packed thread id."""
        process, tid = self.process(global_tid), global_tid & TID_MASK
        name = self._thread_names.get(global_tid, "")
        label = f"{name} ({tid})" if name else f"thread {tid}"
        return self._track("thread", (process, tid), process=process, tid=tid, label=label)

    def name_thread(self, global_tid: int, name: str) -> None:
        """A name that the program gave a thread; nsys's own name of it comes first."""
        self._thread_names.setdefault(global_tid, name)

    def threads(self, global_tids: Array) -> Array:
        """Rows of tracks for packed thread ids, -1 where the id is absent."""
        return _map_distinct(global_tids, lambda g: -1 if g == -1 else self.thread(g))

    def device_tracks(self, process: Array, ordinals: Array) -> tuple[Ints, Ints]:
        """(track of the device as seen by its process, row of devices) for ordinals of processes."""
        _, first, inverse = numbered(key_of(process, ordinals))
        devices = np.empty(len(first), np.int64)
        tracks = np.empty(len(first), np.int64)
        for i, row in enumerate(first.tolist()):
            owner, ordinal = int(process[row]), int(ordinals[row])
            devices[i] = device = self.device(owner, ordinal)
            tracks[i] = self._track(
                "device", (owner, device), process=owner, device=device, ordinal=ordinal, label=f"device {ordinal}"
            )
        return tracks[inverse], devices[inverse]

    def counter_track(self, gpu_id: int) -> int:
        """Row of tracks for the counters of a GPU, by nsys's own number of it."""
        device = self.gpu(gpu_id)
        return self._track("counter", (device,), device=device, label=f"counters of GPU {gpu_id}")

    def devices_of(self, process: Array, ordinals: Array) -> Ints:
        """Rows of devices for ordinals of processes, -1 where absent."""
        out = np.full(len(ordinals), -1, np.int64)
        known = np.flatnonzero(ordinals >= 0)
        if len(known):
            _, first, inverse = numbered(key_of(process[known], ordinals[known]))
            rows = [self.device(int(process[known[i]]), int(ordinals[known[i]])) for i in first.tolist()]
            out[known] = np.asarray(rows, np.int64)[inverse]
        return out

    def _track(self, kind: str, key: tuple[int, ...], **values: Any) -> int:
        return self._builder.dimension("tracks", (kind, *key), kind=TRACK_KINDS.index(kind), host=self._host, **values)


def _thread_names(source: Source) -> dict[int, str]:
    rows = source.small_table("ThreadNames")
    texts = string_ids(source, [np.asarray([whole(row.get("nameId")) for row in rows], np.int64)])
    names = {}
    for row in rows:
        name = row.get("nameId")
        names[whole(row.get("globalTid"))] = name if isinstance(name, str) else texts.get(whole(name), "")
    return {tid: name for tid, name in names.items() if not name.startswith("<unknown #")}


def _stream_key(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return whole(row.get("processId")), whole(row.get("contextId")), whole(row.get("streamId"))


def _gpu_facts(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": str(info.get("name") or ""),
        "bus": str(info.get("busLocation") or ""),
        "sm_count": whole(info.get("smCount")),
        "memory_bytes": whole(info.get("totalMemory")),
        "memory_bytes_per_s": whole(info.get("memoryBandwidth")),
        "clock_hz": whole(info.get("clockRate")),
    }


def _map_distinct(values: Array, function: Any) -> Array:
    distinct, _, inverse = numbered(values)
    rows = np.fromiter((function(int(value)) for value in distinct), np.int32, len(distinct))
    return rows[inverse] if len(values) else np.zeros(0, np.int32)


def whole(value: Any) -> int:
    """An integer of a row, -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
