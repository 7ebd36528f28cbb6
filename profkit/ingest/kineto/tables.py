"""Events of the PyTorch profiler to rows of tables, one function a kind of event."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from profkit.builder import Builder
from profkit.ingest.kineto.events import Event
from profkit.ingest.kineto.times import ABSENT, to_ns
from profkit.model import Array, Ints
from profkit.schema import APIS, COPY_KINDS, MEMORY_KINDS, PAYLOAD_KINDS, SPAN_KINDS, SYNC_KINDS, TRACK_KINDS
from profkit.stages import find_stages

_STREAM, _THREAD = TRACK_KINDS.index("stream"), TRACK_KINDS.index("thread")
_DIGITS = re.compile(r"-?\d+")
_COPY = re.compile(
    r"(?:Memcpy\s+|Copy)?(Host|Device|H|D|P|A|Array|Peer)\s*to\s*(Host|Device|H|D|P|A|Array|Peer)", re.IGNORECASE
)
_SIDES = re.compile(r"\(\s*(\w+)\s*->\s*(\w+)\s*\)")
_DIRECTION = {"hd": "h2d", "dh": "d2h", "dd": "d2d", "hh": "h2h", "pp": "p2p"}
_MEMORY = {
    "pageable": "pageable", "pinned": "pinned", "device": "device", "array": "array", "managed": "managed",
    "device static": "device", "managed static": "managed",
}  # fmt: skip
_SYNCS = {
    "event sync": "event", "stream sync": "stream", "stream wait event": "stream_wait", "context sync": "context",
}  # fmt: skip


class Lanes:
    """Rows of processes, devices and tracks for the ids that events carry; made when first asked for."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._host = builder.dimension("hosts", "host", clock="unknown")
        self._process_names: dict[Any, str] = {}
        self._thread_names: dict[tuple[Any, Any], str] = {}

    def learn(self, events: list[Event]) -> None:
        """Names of processes and threads from metadata events, wherever they stand in the file."""
        for event in events:
            text = event.args.name if event.args else None
            if isinstance(text, str) and event.name == "process_name":
                self._process_names.setdefault(_hashable(event.pid), text)
            elif isinstance(text, str) and event.name == "thread_name":
                self._thread_names.setdefault((_hashable(event.pid), _hashable(event.tid)), text)

    def finish(self, properties: Any, ranks: dict[str, int]) -> None:
        """Fill in names, ranks and device properties: they may stand behind the events."""
        for row in range(self._builder.count("processes")):
            self._builder.set_dimension("processes", row, **ranks)
        for facts in properties if isinstance(properties, list) else []:
            row = self._builder.row_of("devices", facts.get("id")) if isinstance(facts, dict) else -1
            if row >= 0:
                self._builder.set_dimension(
                    "devices",
                    row,
                    name=str(facts.get("name") or ""),
                    sm_count=_number(facts.get("numSms")),
                    memory_bytes=_number(facts.get("totalGlobalMem")),
                )
        for pid, name in self._process_names.items():
            row = self._builder.row_of("processes", ("pid", pid))
            if row >= 0:
                self._builder.set_dimension("processes", row, name=name)
        for (pid, tid), name in self._thread_names.items():
            row = self._builder.row_of("tracks", ("thread", pid, tid))
            if row >= 0:
                self._builder.set_dimension("tracks", row, label=name.strip())

    def process(self, pid: Any) -> int:
        return self._builder.dimension("processes", ("pid", pid), host=self._host, pid=_number(pid))

    def device(self, ordinal: int) -> int:
        return self._builder.dimension("devices", ordinal, host=self._host)

    def thread(self, pid: Any, tid: Any) -> int:
        number = _number(tid)
        label = f"thread {number}" if number >= 0 else str(tid)
        return self._builder.dimension(
            "tracks",
            ("thread", pid, tid),
            kind=_THREAD,
            host=self._host,
            process=self.process(pid),
            tid=number,
            label=label,
        )

    def stream(self, ordinal: int, context: int, stream: int) -> int:
        return self._builder.dimension(
            "tracks",
            ("stream", ordinal, stream),
            kind=_STREAM,
            host=self._host,
            device=self.device(ordinal),
            ordinal=ordinal,
            context=context,
            stream=stream,
            label=f"stream {stream}",
        )


def _number(value: Any) -> int:
    """A number from what a source wrote as one: 7, "7", "stream 7"; -1 for what is none."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int | float):
        return int(value) if abs(value) < 1 << 62 else -1
    if isinstance(value, str) and (match := _DIGITS.search(value)):
        return min(int(match[0]), 1 << 62)
    return -1


def _times(events: list[Event]) -> dict[str, Ints]:
    start = to_ns([event.ts for event in events])
    dur = to_ns([event.dur for event in events])
    return {"start_ns": start, "dur_ns": np.where(dur == ABSENT, -1, dur)}


def _mapped(keys: list[Any], function: Callable[[Any], int]) -> Ints:
    """``function`` of each key, called once for each distinct one."""
    seen = cache(function)
    return np.fromiter((seen(key) for key in keys), np.int64, len(keys))


def _threads(events: list[Event], lanes: Lanes) -> tuple[Ints, Ints]:
    keys = [(_hashable(e.pid), _hashable(e.tid)) for e in events]
    return _mapped(keys, lambda k: lanes.thread(*k)), _mapped([k[0] for k in keys], lanes.process)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | str) else str(value)


def _args(events: list[Event], name: str) -> Ints:
    """An integer property of each event, -1 where it is absent or no number."""
    values = [getattr(e.args, name) if e.args is not None else None for e in events]
    return np.fromiter(
        (v if type(v) is int and abs(v) < 1 << 62 else _number(v) for v in values), np.int64, len(values)
    )


def _device_rows(events: list[Event], lanes: Lanes) -> dict[str, Any]:
    keys = [
        (
            e.args.device if e.args and e.args.device is not None else e.pid,
            e.args.context if e.args else None,
            e.args.stream if e.args and e.args.stream is not None else e.tid,
        )
        for e in events
    ]
    keys = [tuple(map(_hashable, key)) for key in keys]
    track = _mapped(keys, lambda k: lanes.stream(_number(k[0]), _number(k[1]), _number(k[2])))
    return {"track": track, "correlation": _args(events, "correlation"), "process": -1, **_times(events)}


def _dims(events: list[Event], what: str) -> dict[str, Ints]:
    values = [getattr(e.args, what) if e.args is not None else None for e in events]
    good = [v if isinstance(v, list) and len(v) == 3 else (-1, -1, -1) for v in values]
    flat = np.fromiter((_number(x) for v in good for x in v), np.int64, 3 * len(good)).reshape(-1, 3)
    return {f"{what}_{axis}": flat[:, i] for i, axis in enumerate("xyz")}


def add_kernels(builder: Builder, lanes: Lanes, events: list[Event]) -> None:
    graph, node = _args(events, "graph_id"), _args(events, "graph_node")
    builder.add(
        "kernels",
        name=_mapped([str(e.name) for e in events], builder.names.kernel),
        registers=_args(events, "registers"),
        static_smem_bytes=_args(events, "smem"),
        graph=np.where(graph > 0, graph, -1),
        graph_node=np.where(node > 0, node, -1),
        **_dims(events, "grid"),
        **_dims(events, "block"),
        **_device_rows(events, lanes),
    )


def copy_kinds(name: str) -> tuple[str, str, str]:
    """(direction, memory it reads, memory it writes) of a copy's name: ``Memcpy HtoD (Pageable -> Device)``.

    ROCm writes ``CopyHostToDevice`` and ``(Host -> Device)``, which do not say pageable or pinned: unknown.
    """
    sides = _SIDES.search(name)
    src, dst = (_MEMORY.get(word.lower(), "unknown") for word in sides.groups()) if sides else ("unknown", "unknown")
    match = _COPY.search(name)
    if match is None:
        return "unknown", src, dst
    ends = "".join(word[0].lower() for word in match.groups())
    kind = "array" if "a" in ends else _DIRECTION.get(ends, "unknown")
    return kind, src, dst


def add_copies(builder: Builder, lanes: Lanes, events: list[Event]) -> None:
    parsed = {name: copy_kinds(name) for name in {str(e.name) for e in events}}
    columns = [[parsed[str(e.name)][side] for e in events] for side in range(3)]
    labels = (COPY_KINDS, MEMORY_KINDS, MEMORY_KINDS)
    codes = [
        np.fromiter((words.index(word) for word in column), np.int8)
        for column, words in zip(columns, labels, strict=True)
    ]
    builder.add(
        "copies",
        kind=codes[0],
        src_kind=codes[1],
        dst_kind=codes[2],
        bytes=_args(events, "bytes"),
        **_device_rows(events, lanes),
    )


def add_memsets(builder: Builder, lanes: Lanes, events: list[Event]) -> None:
    unknown = MEMORY_KINDS.index("unknown")
    builder.add(
        "copies",
        kind=COPY_KINDS.index("memset"),
        src_kind=unknown,
        dst_kind=np.fromiter(
            (MEMORY_KINDS.index("device") if "(Device)" in str(e.name) else unknown for e in events), np.int8
        ),
        bytes=_args(events, "bytes"),
        **_device_rows(events, lanes),
    )


def add_calls(builder: Builder, lanes: Lanes, events: list[Event], api: str) -> None:
    track, process = _threads(events, lanes)
    builder.add(
        "calls",
        name=_mapped([str(e.name) for e in events], builder.names.row),
        api=APIS.index(api),
        track=track,
        process=process,
        correlation=_args(events, "correlation"),
        **_times(events),
    )


def add_syncs(builder: Builder, lanes: Lanes, events: list[Event]) -> None:
    rows = _device_rows(events, lanes)
    words = [str(e.args.sync_kind if e.args and e.args.sync_kind else e.name).lower() for e in events]
    kind = np.fromiter((SYNC_KINDS.index(_SYNCS[w]) if w in _SYNCS else -1 for w in words), np.int8)
    builder.add("syncs", kind=kind, stream_track=rows["track"], **rows)


def add_spans(builder: Builder, lanes: Lanes, events: list[Event], kind: str) -> None:
    track, _ = _threads(events, lanes)
    name = _mapped([str(e.name) for e in events], builder.names.row)
    codes = np.full(len(name), SPAN_KINDS.index(kind), np.int8)
    if kind == "python":
        modules = _mapped([str(e.name) for e in events], lambda text: int(text.startswith("nn.Module:")))
        codes[modules == 1] = SPAN_KINDS.index("module")
    stage, payload, has_payload = _stages(builder, name, kind)
    builder.add(
        "spans",
        name=name,
        kind=codes,
        track=track,
        end_track=track,
        stage=stage,
        payload_kind=np.where(has_payload, PAYLOAD_KINDS.index("int"), 0),
        payload_int=payload,
        **_times(events),
    )


def _stages(builder: Builder, name: Ints, kind: str) -> tuple[Array, Ints, Array]:
    if kind != "annotation":
        n = len(name)
        return np.full(n, -1, np.int8), np.full(n, -1, np.int64), np.zeros(n, bool)
    absent = np.full(len(name), -1, np.int64)
    return find_stages(builder.names.texts(), name, absent, absent)
