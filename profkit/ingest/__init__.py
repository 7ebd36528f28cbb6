"""Readers: one READER a file turns what a profiler exported into a Trace."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import InputError
from profkit.model import Trace
from profkit.plugins import discover

HEAD_BYTES = 4096


@dataclass(frozen=True)
class Reader:
    """One trace format: ``sniff`` knows it by its first bytes, never by its name; ``read`` makes a Trace."""

    name: str
    sniff: Callable[[Path, bytes], bool]
    read: Callable[[Path], Trace]
    what: str
    """What it reads, in words, for the error that lists them all."""


def open_trace(path: str | Path) -> Trace:
    """Read any file that a reader knows, found by content.

    Raises InputError, in one line, for a file that is missing, unreadable, empty, or no trace.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise InputError(f"{path}: no regular file: write what it gives to one first")
        folder = stat.S_ISDIR(mode)
        head = b"" if folder else _head(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if not folder and not head:
        raise InputError(f"{path}: the file is empty")
    readers = discover("profkit.ingest", "READER", Reader)
    for reader in readers.values():
        if reader.sniff(path, head):
            try:
                return reader.read(path)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                # Hostile content that no check foresaw: still one line, and never a part of a trace as the whole.
                what = f"{type(error).__name__}: {error}"
                raise InputError(f"{path}: no sound {reader.name}, or a fault of profkit ({what})") from error
    raise InputError(f"{path}: {_guess(path, head)}; profkit reads {', '.join(r.what for r in readers.values())}")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _guess(path: Path, head: bytes) -> str:
    """What a file is that no reader knows, and what to do where that is clear."""
    if path.is_dir():
        return "a folder that holds no trace"
    if path.suffix in (".nsys-rep", ".qdrep"):
        return "an Nsight Systems report: export it first, with nsys export --type sqlite"
    if path.suffix == ".qdstrm":
        return "a raw Nsight Systems stream: import it with the nsys that wrote it, then nsys export --type sqlite"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive: unpack it first"
    if b"\0" in head:
        return "a binary file of an unknown format, no trace"
    return "not a trace"
