"""profkit's own store: a folder with ``meta.json`` and one Arrow IPC file a table (see :mod:`profkit.store`).

Read: everything that was saved, as it was, by mapping the files into memory. Ignored: derived tables; an analysis makes
its own, and ``profkit sql`` takes them where the same version of profkit made them.
Format: docs/export.md.
"""

from __future__ import annotations

from pathlib import Path

from profkit.ingest import Reader
from profkit.model import Trace


def sniff(path: Path, head: bytes) -> bool:
    """A folder whose meta.json names the format; the folder's own name does not matter."""
    from profkit.store import is_store

    return path.is_dir() and is_store(path)


def read(path: Path) -> Trace:
    """Map a store. Raises InputError for one that is newer, incomplete or damaged."""
    from profkit.store import load

    return load(path)


READER = Reader(name="saved", sniff=sniff, read=read, what="profkit's own stores")
