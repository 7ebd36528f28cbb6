"""Reports of Nsight Systems (``.nsys-rep``, before 2021.5 ``.qdrep``), by way of an export.

The format is NVIDIA's own and not published: the nsys of this machine exports the report into profkit's cache, beside
which nothing is written. Without nsys, an SQLite export that lies beside the report and is not older is read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import Trace

SUFFIXES = (".nsys-rep", ".qdrep")
_OTHER_CONTENT = (b"SQLite format 3\0", b"\x1f\x8b", b"PK\x03\x04", b"{", b"[")


def sniff(path: Path, head: bytes) -> bool:
    """By name, as no mark in the content is published; whatever has a known content of another kind is none."""
    return path.suffix in SUFFIXES and path.is_file() and not head.startswith(_OTHER_CONTENT)


def read(path: Path) -> Trace:
    """Export a report and read the export. Raises InputError, in one line, where it cannot be exported."""
    from profkit.capture.nsys import find
    from profkit.ingest.nsys.exports import exported, sound_export_beside
    from profkit.ingest.nsys_sqlite import read as read_sqlite

    beside, why_not = sound_export_beside(path)
    if beside is not None:
        trace = read_sqlite(beside)
        note = f"read from {beside.name}, the export beside the report"
        return replace(trace, meta=replace(trace.meta, path=path.name, notes=(*trace.meta.notes, note)))
    nsys = find().path
    if nsys is None:
        hint = f" ({why_not})" if why_not else ""
        raise InputError(
            f"{path}: an Nsight Systems report: export it first, with nsys export --type sqlite, on a machine that has "
            f"nsys; there is none here{hint}"
        )
    with exported(nsys, path) as database:
        trace = read_sqlite(database)
    return replace(trace, meta=replace(trace.meta, path=path.name))


READER = Reader(name="nsys-report", sniff=sniff, read=read, what="Nsight Systems reports (by the nsys of this machine)")
