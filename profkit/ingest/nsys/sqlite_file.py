"""How a SQLite file may be opened: read-only, without locks and side files, and never as whole when it is not."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from profkit.errors import InputError

MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100


@dataclass
class Opened:
    """How to open a file: ``uri`` for SQLite, what to say about it, and what to remove afterwards."""

    uri: str
    warnings: list[str] = field(default_factory=list)
    folder: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        if self.folder is not None:
            self.folder.cleanup()


def check_whole(path: Path) -> None:
    """Compare the size in the header with the size on disk: a cut file can look sound until its end is read.

    Raises InputError with both sizes; for a file of zeros, with what to do.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    size = path.stat().st_size
    if header and not header.strip(b"\0"):
        raise InputError(f"{path}: {size} bytes, the first {len(header)} of them zero: {_what_of_zeros(path)}")
    if len(header) < _HEADER_BYTES:
        raise InputError(f"{path}: a SQLite file cut after {size} bytes")
    page = int.from_bytes(header[16:18], "big") or 0
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    # The page count is valid only where the change counter matches the version-valid-for number.
    if header[24:28] == header[92:96] and page and pages * page > size and not _write_ahead_log(path):
        raise InputError(
            f"{path}: truncated: the header says {pages * page} bytes ({pages} pages of {page}), "
            f"the file has {size}; copy or export it again"
        )


def _what_of_zeros(path: Path) -> str:
    """An export that was never written: nsys reserves the file first, and nsys stats takes it as current."""
    for report in (path.with_suffix(suffix) for suffix in (".nsys-rep", ".qdrep")):
        if report.is_file():
            age = "newer than" if path.stat().st_mtime_ns >= report.stat().st_mtime_ns else "older than"
            return (
                f"its export was interrupted, although it is {age} its report {report.name}: "
                f"delete it and run nsys export --type sqlite {report.name}"
            )
    return "it was never written to the end: export or copy it again"


def _write_ahead_log(path: Path) -> Path | None:
    wal = path.with_name(path.name + "-wal")
    return wal if wal.exists() and wal.stat().st_size else None


def open_uri(path: Path) -> Opened:
    """Immutable where nothing writes the file: SQLite then takes no locks and makes no side files.

    A write-ahead log beside the file is read with it; where no program holds it open, from a copy, since SQLite would
    make a file beside the user's. Raises InputError for a rollback journal: the file is being changed, or was left
    half-changed.
    """
    journal = path.with_name(path.name + "-journal")
    if journal.exists() and journal.stat().st_size:
        raise InputError(
            f"{path}: a rollback journal ({journal.name}) stands beside it: it is being written, or was left "
            "half-written; wait, or export it again"
        )
    wal = _write_ahead_log(path)
    if wal is None:
        return Opened(_uri(path, "mode=ro&immutable=1"))
    warning = "a write-ahead log stands beside the file and was read with it"
    if path.with_name(path.name + "-shm").exists():
        return Opened(_uri(path, "mode=ro"), [warning])
    folder = tempfile.TemporaryDirectory(prefix="profkit-")
    for file in (path, wal):
        shutil.copyfile(file, Path(folder.name) / file.name)
    return Opened(_uri(Path(folder.name) / path.name, "mode=ro"), [warning], folder)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.resolve()))}?{mode}"
