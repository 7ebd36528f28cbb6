"""The PyTorch profiler's trace (Kineto, Chrome trace event JSON), plain or gzipped.

Read: kernels, copies, memsets, runtime and driver calls, synchronisations, operators, Python functions, annotations,
ranges written as two events, overhead, allocations on devices, collectives, names of processes and threads, device
properties, the rank. Ignored: flow arrows (the correlation id says the same), GPU annotations (the work itself is
there), counters, allocations on the host, events of devices that are no GPU; what was ignored is counted in a warning
where it held time. What is no JSON but clear is mended, and counted too.
Format: https://github.com/pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import compress, repeat
from operator import attrgetter, eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.builder import Builder
from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import RunMeta, Trace

if TYPE_CHECKING:
    from profkit.ingest.kineto.events import EventFile
    from profkit.ingest.kineto.lanes import Lanes
    from profkit.ingest.kineto.ranks import Rank
    from profkit.ingest.kineto.records import Record

# Category (in small letters: 2020's were capitalised) -> what to make of its complete events.
_HANDLERS: dict[str, tuple[str, dict[str, str]]] = {
    "kernel": ("add_kernels", {}),
    "gpu_memcpy": ("add_copies", {}),
    "memcpy": ("add_copies", {}),
    "gpu_memset": ("add_memsets", {}),
    "memset": ("add_memsets", {}),
    "cuda_runtime": ("add_calls", {"api": "runtime"}),
    "runtime": ("add_calls", {"api": "runtime"}),
    "cuda_driver": ("add_calls", {"api": "driver"}),
    "cuda_sync": ("add_syncs", {}),
    "overhead": ("add_overheads", {}),
    "cpu_op": ("add_spans", {"kind": "op"}),
    "operator": ("add_spans", {"kind": "op"}),
    "python_function": ("add_spans", {"kind": "python"}),
    "user_annotation": ("add_spans", {"kind": "annotation"}),
    "": ("add_spans", {"kind": "op"}),
}
_SKIPPED = frozenset({"trace", "gpu_user_annotation", "ac2g", "async", "async_gpu", "fwdbwd"})
_TIMED = ("kernels", "copies", "calls", "spans", "syncs")
_JSON_STARTS = (b"{", b"[", b"\xff\xfe", b"\xfe\xff")


def sniff(path: Path, head: bytes) -> bool:
    """JSON by its first character, or gzip: other content says so when it is read."""
    if path.is_dir():
        return False
    return head.startswith(b"\x1f\x8b") or head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_JSON_STARTS)


def read(path: Path) -> Trace:
    """Read a trace. Raises InputError for what is no trace, is cut short, or holds no timed event."""
    from profkit.ingest.kineto import remarks
    from profkit.ingest.kineto.collectives import link_collectives
    from profkit.ingest.kineto.events import EventFile
    from profkit.ingest.kineto.lanes import Lanes
    from profkit.ingest.kineto.ranks import find_rank

    builder = Builder()
    lanes = Lanes(builder)
    file = EventFile(path)
    ignored: Counter[str] = Counter()
    whole_us = _add_events(builder, lanes, file, ignored)
    if not any(builder.count(table) for table in _TIMED):
        raise InputError(
            f"{path}: no timed events in this trace" + (f" (ignored: {remarks.listed(ignored)})" if ignored else "")
        )
    rank = find_rank(file.top, path)
    builder.notes += [rank.note] if rank.note else []
    lanes.finish(
        file.top.get("deviceProperties") or file.top.get("computeProperties"),
        {"rank": rank.rank, "world_size": rank.world_size},
    )
    _own_device_rows(builder, lanes)
    remarks.say_missing(builder, file.legacy)
    remarks.say_damage(builder, path, file.damage)
    remarks.say_ignored(builder, ignored)
    builder.warnings += [*([f"partial: {file.partial}"] if file.partial else []), *file.remarks]
    trace = builder.finish(_meta(path, file, builder.shift_to_origin(), whole_us, rank))
    return _explained(link_collectives(trace))


def _explained(trace: Trace) -> Trace:
    from profkit.ingest.kineto.remarks import explanations

    return replace(trace, meta=replace(trace.meta, notes=(*trace.meta.notes, *explanations(trace))))


def _meta(path: Path, file: EventFile, origin: int, whole_us: bool, rank: Rank) -> RunMeta:
    utc = _utc(file.top.get("baseTimeNanoseconds"), origin)
    return RunMeta(
        source="kineto-json",
        source_version=str(file.top.get("schemaVersion", "")),
        path=path.name,
        origin_ns=origin,
        utc_ns=utc,
        clock="realtime" if utc >= 0 else "unknown",
        resolution_ns=1000 if whole_us else 1,
        simulated="SIMULATED" in str(file.top.get("profkit", "")),
        partial=bool(file.partial or file.damage.lost),
        captured=("PyTorch profiler",),
        extra={"rank_from": rank.source, "rank_note": rank.note},
    )


def _utc(base: Any, origin: int) -> int:
    """UTC of the first event: times are relative to ``baseTimeNanoseconds``, or absolute where there is none."""
    if isinstance(base, int) and base > 0:
        return base + origin
    return origin if origin > 10**18 else -1


def _add_events(builder: Builder, lanes: Lanes, file: EventFile, ignored: Counter[str]) -> bool:
    """All events to rows; returns whether all times seen were whole microseconds."""
    from profkit.ingest.kineto import pairs, remarks, tables
    from profkit.ingest.kineto.collectives import add_collectives
    from profkit.ingest.kineto.records import Complete, Half, Instant, Meta

    halves: list[Any] = []
    allocs: list[Any] = []
    whole_us = True
    for chunk in file:
        by_type = _grouped(chunk, type)
        lanes.learn(by_type.pop(Meta, []))
        allocs += tables.device_allocs(by_type.pop(Instant, []))
        for category, events in _grouped(by_type.pop(Complete, []), attrgetter("cat")).items():
            key = category.lower()
            if key in _HANDLERS:
                name, options = _HANDLERS[key]
                try:
                    getattr(tables, name)(builder, lanes, events, **options)
                except tables.Timeless:
                    sound = tables.with_time(events)
                    ignored[f"category {key} without a time"] += len(events) - len(sound)
                    events = sound
                    if events:
                        getattr(tables, name)(builder, lanes, events, **options)
                whole_us = whole_us and not any(b"." in bytes(event.ts) for event in events[:50])
                if key in ("kernel", "cpu_op", "operator", ""):
                    add_collectives(builder, lanes, events, on_device=key == "kernel")
            elif key not in _SKIPPED:
                ignored[f"category {key}"] += len(events)
        halves += [half for kind, found in by_type.items() if issubclass(kind, Half) for half in found]
    tables.add_allocs(builder, lanes, allocs)
    threads, others = (pairing(part) for pairing, part in zip(
        (pairs.pair_threads, pairs.pair_async), pairs.kinds_of(halves), strict=True
    ))  # fmt: skip
    for paired, kind in ((threads, "push_pop"), (others, "start_end")):
        if paired.begins:
            tables.add_ranges(
                builder, lanes, paired.begins, kind, {"start_ns": paired.start_ns, "dur_ns": paired.dur_ns}
            )
            whole_us = whole_us and not any(b"." in bytes(half.ts) for half in paired.begins[:50])
    remarks.say_halves(builder, threads, others)
    return whole_us


def _grouped(records: list[Record], key: Any) -> dict[Any, list[Record]]:
    """Records by their key, in order; one pass a distinct key, of which there are few, beats a step a record."""
    keys = list(map(key, records))
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return dict.fromkeys(distinct, records)
    if len(distinct) > 64:  # hostile: many categories
        out: dict[Any, list[Record]] = {}
        for value, record in zip(keys, records, strict=True):
            out.setdefault(value, []).append(record)
        return out
    return {value: list(compress(records, map(eq, keys, repeat(value)))) for value in distinct}


def _own_device_rows(builder: Builder, lanes: Lanes) -> None:
    """Give device rows the process that launched them. Correlation ids are unique in one process only."""
    callers = builder.distinct("calls", "process")
    if not callers and builder.count("processes") == 1:
        callers = [0]
    unclear = builder.own_device_rows(callers, lanes.owners()) if callers else 0
    if unclear:
        builder.warnings.append(f"{unclear} GPU rows could not be given to one process: correlation ids are not unique")


READER = Reader(name="kineto-json", sniff=sniff, read=read, what="PyTorch profiler JSON (plain or gzip)")
