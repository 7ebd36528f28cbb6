"""The PyTorch profiler's trace (Kineto, Chrome trace event JSON), plain or gzipped.

Read: kernels, copies, memsets, runtime and driver calls, synchronisations, operators, Python functions, annotations,
overhead, names of processes and threads, device properties, the rank. Ignored: flow arrows (the correlation id says
the same), memory instants, GPU annotations (the work itself is there), counters, events of devices that are no GPU;
what was ignored is counted in a warning where it held time.
Format: https://github.com/pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.builder import Builder
from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import RunMeta, Trace

if TYPE_CHECKING:
    from profkit.ingest.kineto.events import Event
    from profkit.ingest.kineto.tables import Lanes

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
    "cpu_op": ("add_spans", {"kind": "op"}),
    "operator": ("add_spans", {"kind": "op"}),
    "python_function": ("add_spans", {"kind": "python"}),
    "user_annotation": ("add_spans", {"kind": "annotation"}),
    "": ("add_spans", {"kind": "op"}),
}
_SKIPPED = frozenset({"trace", "gpu_user_annotation", "overhead", "ac2g", "async", "async_gpu", "fwdbwd"})
_LAUNCH = re.compile(r"Launch")


def sniff(path: Path, head: bytes) -> bool:
    """JSON by its first character, or gzip: other content says so when it is read."""
    return head.startswith(b"\x1f\x8b") or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def read(path: Path) -> Trace:
    """Read a trace. Raises InputError for what is no trace, is cut short, or holds no timed event."""
    from profkit.ingest.kineto import tables
    from profkit.ingest.kineto.events import read_events

    builder = Builder()
    top: dict[str, Any] = {}
    ignored: Counter[str] = Counter()
    lanes: Lanes | None = None
    whole_us = True
    for chunk in read_events(path):
        if isinstance(chunk, dict):
            top = chunk
            continue
        if lanes is None:
            lanes = tables.Lanes(builder)
        metadata, by_category = _sort(chunk, ignored)
        lanes.learn(metadata)
        for category, events in by_category.items():
            whole_us = whole_us and not any(b"." in bytes(event.ts) for event in events[:50])
            name, options = _HANDLERS[category]
            getattr(tables, name)(builder, lanes, events, **options)
    if lanes is None or not any(builder.count(table) for table in ("kernels", "copies", "calls", "spans", "syncs")):
        raise InputError(
            f"{path}: no timed events in this trace" + (f" (ignored: {_listed(ignored)})" if ignored else "")
        )
    lanes.finish(top.get("deviceProperties"), _rank(top, builder))
    _own_device_rows(builder)
    _say_what_is_missing(builder, top)
    if ignored:
        builder.warnings.append(f"events not read: {_listed(ignored)}")
    origin = builder.shift_to_origin()
    base = top.get("baseTimeNanoseconds")
    return builder.finish(
        RunMeta(
            source="kineto-json",
            source_version=str(top.get("schemaVersion", "")),
            path=path.name,
            origin_ns=origin,
            utc_ns=_utc(base, origin),
            clock="realtime" if _utc(base, origin) >= 0 else "unknown",
            resolution_ns=1000 if whole_us else 1,
            simulated="SIMULATED" in str(top.get("profkit", "")),
            captured=("PyTorch profiler",),
        )
    )


def _sort(events: list[Event], ignored: Counter[str]) -> tuple[list[Event], dict[str, list[Event]]]:
    """Metadata events, and complete events by category; whatever else held time is counted."""
    metadata: list[Event] = []
    by_category: dict[str, list[Event]] = {}
    for event in events:
        if event.ph == "X":
            by_category.setdefault(event.cat if isinstance(event.cat, str) else "", []).append(event)
        elif event.ph == "M":
            metadata.append(event)
        elif event.ph in ("B", "E", "b", "e"):
            ignored[f"{event.ph} events"] += 1
    out: dict[str, list[Event]] = {}
    for category, found in by_category.items():
        key = category.lower()
        if key in _HANDLERS:
            out.setdefault(key, []).extend(found)
        elif key not in _SKIPPED:
            ignored[f"category {key}"] += len(found)
    return metadata, out


def _listed(ignored: Counter[str]) -> str:
    return ", ".join(f"{count} of {what}" for what, count in ignored.most_common(6))


def _rank(top: dict[str, Any], builder: Builder) -> dict[str, int]:
    info = top.get("distributedInfo")
    if not isinstance(info, dict) or not isinstance(info.get("rank"), int):
        builder.notes.append("the trace does not name its rank: taken as rank 0")
        return {"rank": 0}
    world = info.get("world_size")
    return {"rank": info["rank"], "world_size": world if isinstance(world, int) else -1}


def _utc(base: Any, origin: int) -> int:
    """UTC of the first event: times are relative to ``baseTimeNanoseconds``, or absolute where there is none."""
    if isinstance(base, int) and base > 0:
        return base + origin
    return origin if origin > 10**18 else -1


def _own_device_rows(builder: Builder) -> None:
    """Give device rows the process that launched them. Correlation ids are unique in one process only."""
    callers = builder.distinct("calls", "process")
    if not callers and builder.count("processes") == 1:
        callers = [0]
    unclear = builder.own_device_rows(callers) if callers else 0
    if unclear:
        builder.warnings.append(f"{unclear} GPU rows could not be given to one process: correlation ids are not unique")


def _say_what_is_missing(builder: Builder, top: dict[str, Any]) -> None:
    builder.miss("os_calls", "the PyTorch profiler does not record operating system calls")
    if not any(builder.count(table) for table in ("kernels", "copies")):
        launches = builder.count_calls(lambda name: _LAUNCH.search(name) is not None)
        if top.get("legacy"):
            why = "legacy list form without GPU activity"
        elif launches:
            why = (
                "no GPU kernels in this capture, although kernels were launched; likely causes: another profiler held "
                "CUPTI, records were lost or out of the window, or the platform (WSL, Windows) gives none"
            )
        else:
            why = "no GPU activity in this trace: it ran on the CPU, or the profiler was not asked for CUDA"
        for table in ("kernels", "copies", "graphs"):
            builder.miss(table, why)
    for table, what in (
        ("calls", "CUDA calls"),
        ("spans", "operators or annotations"),
        ("syncs", "synchronisation records"),
    ):
        if not builder.count(table):
            builder.miss(table, f"no {what} in this trace")


READER = Reader(name="kineto-json", sniff=sniff, read=read, what="PyTorch profiler JSON (plain or gzip)")
