"""The SQLite export of Nsight Systems (``nsys export --type sqlite``), schemas 2.x and 3.x.

Read: kernels, copies, memsets, graph launches, CUDA calls, synchronisations, NVTX ranges, operating system calls,
profiler overhead, and what the capture says of itself. Ignored so far: CPU samples, scheduling, GPU metrics, memory
usage, MPI tables, payload structures. Columns and tables are found by looking, never by version number alone.
Format: https://docs.nvidia.com/nsight-systems/UserGuide/index.html (exporter schema).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profkit.builder import Builder
from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import Trace

MAGIC = b"SQLite format 3\0"


def read(path: Path) -> Trace:
    """Read an export. Raises InputError if it is damaged or is a SQLite file of something else."""
    from profkit.ingest.nsys import capture, device, host, spans
    from profkit.ingest.nsys.identity import Identity
    from profkit.ingest.nsys.source import SqliteSource

    source = SqliteSource(path)
    if not source.has("StringIds"):
        raise InputError(
            f"{path}: a SQLite file, but no Nsight Systems export: it has no table StringIds "
            f"(tables: {', '.join(sorted(source.tables)[:8]) or 'none'})"
        )
    builder = Builder()
    identity = Identity(source, builder)
    device.read_kernels(source, builder, identity)
    device.read_copies(source, builder, identity)
    device.read_graphs(source, builder, identity)
    host.read_calls(source, builder, identity)
    host.read_syncs(source, builder, identity)
    spans.read_spans(source, builder, identity)
    host.read_os_calls(source, builder, identity)
    host.read_overheads(source, builder, identity)
    meta = capture.read_meta(source)
    capture.say_what_is_missing(source, builder, meta.captured)
    return builder.finish(replace(meta, warnings=(*meta.warnings, *source.warnings)))


READER = Reader(
    name="nsys-sqlite",
    sniff=lambda path, head: head.startswith(MAGIC),
    read=read,
    what="Nsight Systems SQLite exports",
)
