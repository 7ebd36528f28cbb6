"""Events of the PyTorch profiler to rows of tables, one function a kind of event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from profkit.builder import Builder
from profkit.ingest.kineto.lanes import Lanes, mapped
from profkit.ingest.kineto.records import Complete, Instant
from profkit.ingest.kineto.times import ABSENT, to_ns
from profkit.model import Array, Ints
from profkit.schema import APIS, COPY_KINDS, MEMORY_KINDS, PAYLOAD_KINDS, SPAN_KINDS, SYNC_KINDS
from profkit.stages import find_stages

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
_LIMIT = 1 << 62


class Timeless(Exception):  # noqa: N818 - control flow, never shown
    """An event has no time or one that is no number: it has no place in any table."""


def with_time(events: list[Complete]) -> list[Complete]:
    """The events that have a time."""
    known = to_ns([event.ts for event in events]) != ABSENT
    return [event for event, keep in zip(events, known.tolist(), strict=True) if keep]


def _times(events: list[Complete]) -> dict[str, Ints]:
    start = to_ns(list(map(attrgetter("ts"), events)))
    if (start == ABSENT).any():
        raise Timeless
    dur = to_ns(list(map(attrgetter("dur"), events)))
    return {"start_ns": start, "dur_ns": np.where(dur == ABSENT, -1, dur)}


def _integers(values: Iterable[int], n: int) -> Ints:
    """An int64 column; -1 for what does not fit."""
    listed = list(values)
    try:
        out = np.fromiter(listed, np.int64, n)
    except OverflowError:
        out = np.fromiter((v if abs(v) < _LIMIT else -1 for v in listed), np.int64, n)
    out[np.abs(out) >= _LIMIT] = -1
    return out


def _args(events: list[Complete], name: str) -> Ints:
    """An integer property of each event, -1 where it is absent."""
    return _integers(map(attrgetter(f"args.{name}"), events), len(events))


def _names(events: list[Any], row: Callable[[str], int]) -> Ints:
    return mapped(list(map(attrgetter("name"), events)), row)


def _tracks(events: list[Any], lanes: Lanes) -> Ints:
    return np.fromiter(map(lanes.threads.__getitem__, map(attrgetter("pid", "tid"), events)), np.int64, len(events))


def _processes(events: list[Any], lanes: Lanes) -> Ints:
    return np.fromiter(map(lanes.processes.__getitem__, map(attrgetter("pid"), events)), np.int64, len(events))


def _device_rows(events: list[Complete], lanes: Lanes) -> dict[str, Any]:
    """Without a device or a stream among its properties, an event's pid and tid are these."""
    where = list(map(attrgetter("args.device", "args.context", "args.stream"), events))
    if any(key[0] < 0 or key[2] < 0 for key in set(where)):
        keys: list[Any] = [
            (d if d >= 0 else event.pid, c, s if s >= 0 else event.tid)
            for (d, c, s), event in zip(where, events, strict=True)
        ]
    else:
        keys = where
    track = np.fromiter(map(lanes.streams.__getitem__, keys), np.int64, len(keys))
    return {"track": track, "correlation": _correlation(events), "process": -1, **_times(events)}


def _correlation(events: list[Complete]) -> Ints:
    """Correlation ids; CUPTI counts from 1 and writes 0 for none."""
    found = _args(events, "correlation")
    return np.where(found > 0, found, -1)


def _dims(events: list[Complete], what: str) -> dict[str, Ints]:
    values = list(map(attrgetter(f"args.{what}"), events))
    flat = _integers(chain.from_iterable(values), 3 * len(values)).reshape(-1, 3)
    return {f"{what}_{axis}": flat[:, i] for i, axis in enumerate("xyz")}


def add_kernels(builder: Builder, lanes: Lanes, events: list[Complete]) -> None:
    graph, node = _args(events, "graph"), _args(events, "graph_node")
    builder.add(
        "kernels",
        name=_names(events, builder.names.kernel),
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


def add_copies(builder: Builder, lanes: Lanes, events: list[Complete]) -> None:
    parsed = {name: copy_kinds(name) for name in set(map(attrgetter("name"), events))}
    columns = [[parsed[e.name][side] for e in events] for side in range(3)]
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


def add_memsets(builder: Builder, lanes: Lanes, events: list[Complete]) -> None:
    unknown = MEMORY_KINDS.index("unknown")
    builder.add(
        "copies",
        kind=COPY_KINDS.index("memset"),
        src_kind=unknown,
        dst_kind=np.fromiter(
            (MEMORY_KINDS.index("device") if "(Device)" in e.name else unknown for e in events), np.int8
        ),
        bytes=_args(events, "bytes"),
        **_device_rows(events, lanes),
    )


def add_calls(builder: Builder, lanes: Lanes, events: list[Complete], api: str) -> None:
    builder.add(
        "calls",
        name=_names(events, builder.names.row),
        api=APIS.index(api),
        track=_tracks(events, lanes),
        process=_processes(events, lanes),
        correlation=_correlation(events),
        **_times(events),
    )


def add_syncs(builder: Builder, lanes: Lanes, events: list[Complete]) -> None:
    rows = _device_rows(events, lanes)
    words = [(e.args.sync_kind or e.name).lower() for e in events]
    kind = np.fromiter((SYNC_KINDS.index(_SYNCS[w]) if w in _SYNCS else -1 for w in words), np.int8)
    builder.add("syncs", kind=kind, stream_track=rows["track"], event=_args(events, "sync_event"), **rows)


def add_overheads(builder: Builder, lanes: Lanes, events: list[Complete]) -> None:
    builder.add(
        "overheads",
        name=_names(events, builder.names.row),
        process=_processes(events, lanes),
        track=_tracks(events, lanes),
        kind=["profiler"] * len(events),
        **_times(events),
    )


def add_spans(builder: Builder, lanes: Lanes, events: list[Complete], kind: str) -> None:
    add_ranges(builder, lanes, events, kind, _times(events))


def add_ranges(builder: Builder, lanes: Lanes, events: list[Any], kind: str, times: dict[str, Ints]) -> None:
    """Spans whose times are at hand; events carry a name, a process and a thread."""
    track = _tracks(events, lanes)
    name = _names(events, builder.names.row)
    codes = np.full(len(name), SPAN_KINDS.index(kind), np.int8)
    if kind == "python":
        modules = mapped([e.name for e in events], lambda text: int(text.startswith("nn.Module:")))
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
        **times,
    )


def device_rows(events: list[Complete], lanes: Lanes) -> dict[str, Any]:
    """Lane and times of events on a device."""
    rows = _device_rows(events, lanes)
    return {key: rows[key] for key in ("track", "start_ns", "dur_ns")}


def thread_rows(events: list[Complete], lanes: Lanes) -> dict[str, Any]:
    """Lane and times of events on a host thread."""
    return {"track": _tracks(events, lanes), **_times(events)}


def device_allocs(events: list[Instant]) -> list[Instant]:
    """The ``[memory]`` instants of devices: those of the host are another matter and are left out."""
    return [e for e in events if e.name == "[memory]" and e.args.device_type != 0 and e.args.device >= 0]


def add_allocs(builder: Builder, lanes: Lanes, events: list[Instant]) -> None:
    """Allocations on devices; to be called when the devices are known: ROCm numbers them in another way here."""
    if not events:
        return
    size = _integers((e.args.bytes for e in events), len(events))
    builder.add(
        "allocs",
        start_ns=to_ns([e.ts for e in events]),
        dur_ns=np.zeros(len(events), np.int64),
        track=_tracks(events, lanes),
        process=_processes(events, lanes),
        device=mapped([e.args.device for e in events], lanes.known_device),
        address=_integers((e.args.address for e in events), len(events)),
        bytes=np.abs(size),
        operation=["alloc" if value >= 0 else "free" for value in size.tolist()],
    )
    _add_memory_counters(builder, lanes, events)


def _add_memory_counters(builder: Builder, lanes: Lanes, events: list[Instant]) -> None:
    """What the caching allocator held in all at each of its events, where the trace says so."""
    device = mapped([e.args.device for e in events], lanes.known_device)
    time = to_ns([e.ts for e in events])
    for name, value in (
        ("Total Allocated", _integers((e.args.allocated for e in events), len(events))),
        ("Total Reserved", _integers((e.args.reserved for e in events), len(events))),
    ):
        known = np.flatnonzero((value >= 0) & (device >= 0))
        if len(known):
            counter = builder.dimension(
                "counter_names", name, name=name, unit="bytes", scope="device", source="PyTorch memory profiler"
            )
            builder.add(
                "counters",
                counter=np.full(len(known), counter),
                track=mapped(device[known].tolist(), lanes.counter_track),
                time_ns=time[known],
                value=value[known].astype(np.float64),
            )


def _stages(builder: Builder, name: Ints, kind: str) -> tuple[Array, Ints, Array]:
    if kind not in ("annotation", "push_pop", "start_end"):
        n = len(name)
        return np.full(n, -1, np.int8), np.full(n, -1, np.int64), np.zeros(n, bool)
    absent = np.full(len(name), -1, np.int64)
    return find_stages(builder.names.texts(), name, absent, absent)
