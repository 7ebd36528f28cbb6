"""The SQLite export of Nsight Systems (``nsys export --type sqlite``), schemas 2.x and 3.x.

What is read and what is ignored, table by table, is in docs/formats.md. Columns and tables are found by looking, never
by version number alone. Format: https://docs.nvidia.com/nsight-systems/UserGuide/index.html (exporter schema).
"""

from __future__ import annotations

from pathlib import Path

from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import Trace

MAGIC = b"SQLite format 3\0"


def sniff(path: Path, head: bytes) -> bool:
    """SQLite by its first bytes; a file of zeros where an export should be is told what it is."""
    return head.startswith(MAGIC) or (path.suffix == ".sqlite" and bool(head) and not head.strip(b"\0"))


def read(path: Path) -> Trace:
    """Read an export. Raises InputError if it is damaged or is a SQLite file of something else."""
    from profkit.ingest.nsys.reading import read_source
    from profkit.ingest.nsys.sqlite import SqliteSource

    with SqliteSource(path) as source:
        if not source.has("StringIds"):
            raise InputError(
                f"{path}: a SQLite file, but no Nsight Systems export: it has no table StringIds "
                f"(tables: {', '.join(sorted(source.tables)[:8]) or 'none'})"
            )
        return read_source(source)


READER = Reader(name="nsys-sqlite", sniff=sniff, read=read, what="Nsight Systems SQLite exports")
