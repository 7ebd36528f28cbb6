"""Trace event JSON for ui.perfetto.dev and chrome://tracing, in the words of the PyTorch profiler.

Written: kernels, copies, memsets, graph launches, calls, synchronisations, ranges, operating system calls, overhead,
counters, an arrow from each launch call to what it started. Not written: event records, graph events, allocations,
samples. Times are exact: microseconds with three digits. profkit reads the file again; see docs/export.md.
Format: https://perfetto.dev/docs/getting-started/other-formats and the PyTorch profiler's output.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from profkit.analysis.context import Analysis
from profkit.export import Exporter
from profkit.export._lanes import Lanes, process_names
from profkit.folders import new_file
from profkit.model import Trace


def write(analysis: Analysis, target: Path) -> None:
    """Write what lies at least partly in what is selected, whole; compressed where the name ends in .gz."""
    from profkit.export._events import event_lines

    with new_file(target) as temporary, _opened(temporary, zipped=target.suffix == ".gz") as file:
        file.write(_head(analysis.trace))
        events = event_lines(analysis)
        for block in events:
            file.write(block)
        file.write(b"\n]}\n")


@contextmanager
def _opened(path: Path, *, zipped: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as plain:
        if not zipped:
            yield plain
            return
        # Neither the name nor the time of writing: the same trace gives the same bytes.
        with gzip.GzipFile("", "wb", compresslevel=4, fileobj=plain, mtime=0) as packed:
            yield packed  # type: ignore[misc]


def _head(trace: Trace) -> bytes:
    """The properties at the top level and the opening of the list, with a first event, so that each other one can
    begin with a comma."""
    meta = trace.meta
    top: dict[str, Any] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "profkit": f"profkit {version('profkit')}" + (", SIMULATED" if meta.simulated else ""),
        "deviceProperties": _device_properties(trace),
    }
    if meta.utc_ns >= 0:
        top["baseTimeNanoseconds"] = meta.utc_ns
    if trace.rows("processes") == 1 and trace.array("processes", "rank")[0] >= 0:
        world = int(trace.array("processes", "world_size")[0])
        top["distributedInfo"] = {"rank": int(trace.array("processes", "rank")[0])} | (
            {"world_size": world} if world > 0 else {}
        )
    first = {"ph": "M", "name": "trace_source", "pid": 0, "tid": 0, "args": {"name": meta.source}}
    return (json.dumps(top)[:-1] + ',\n"traceEvents":[\n' + json.dumps(first)).encode()


def _device_properties(trace: Trace) -> list[dict[str, Any]]:
    """Of each device by its row, what is known of it."""
    keys = {"numSms": "sm_count", "totalGlobalMem": "memory_bytes"}
    out = []
    for row, name in enumerate(trace.text("devices", "name")):
        facts = {key: int(trace.array("devices", column)[row]) for key, column in keys.items()}
        out.append({"id": row, "name": name} | {key: value for key, value in facts.items() if value >= 0})
    return out


def name_events(trace: Trace, lanes: Lanes) -> bytes:
    """Metadata events that name and order the lanes that were used."""
    out = []
    for pid, name, place in process_names(trace, lanes):
        out.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        out.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": place}})
    for pid, tid, name, place in sorted(lanes.used):
        out.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
        out.append({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": place}})
    return "".join(",\n" + json.dumps(event) for event in out).encode()


EXPORTER = Exporter(name="perfetto", what="trace event JSON for ui.perfetto.dev", is_folder=False, write=write)
