"""SQLite exports of nsys reports, made by the local nsys and kept in the platform's cache folder."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profkit.capture import nsys as nsys_program
from profkit.errors import InputError, ProfkitError
from profkit.ingest.nsys.sqlite_file import MAGIC

MOST_EXPORTS = 4
"""Exports are as large as their reports: only the last ones are kept."""


def cache_folder() -> Path:
    """Where profkit keeps what it can make again: XDG_CACHE_HOME, or what the platform has for it."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "profkit"


def sound_export_beside(report: Path) -> tuple[Path | None, str]:
    """(the SQLite export beside a report, "") if it can stand for it, else (None, why not; "" if there is none)."""
    export = report.with_suffix(".sqlite")
    try:
        with export.open("rb") as file:
            head = file.read(len(MAGIC))
        older = export.stat().st_mtime_ns < report.stat().st_mtime_ns
    except OSError:
        return None, ""
    if not head.startswith(MAGIC):
        return None, f"{export.name} beside it is no sound export: delete it"
    if older:
        return None, f"{export.name} beside it is older than the report"
    return export, ""


@contextmanager
def exported(nsys: Path, report: Path) -> Iterator[Path]:
    """The SQLite export of ``report``: from the cache, or made now; where nothing can be cached, for this use only.

    Raises InputError with nsys's own last lines if it cannot export the report.
    """
    folder = cache_folder() / "nsys-exports"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        with tempfile.TemporaryDirectory(prefix="profkit-") as temporary:
            yield _export(nsys, report, Path(temporary) / "export.sqlite")
        return
    target = folder / f"{_key(nsys, report)}.sqlite"
    if not target.exists():
        _export(nsys, report, target)
    os.utime(target)
    _forget_oldest(folder)
    yield target


def _export(nsys: Path, report: Path, target: Path) -> Path:
    """Write aside and move: a target that exists is whole."""
    partial = target.with_name(f".{target.stem}.{os.getpid()}.partial")
    try:
        nsys_program.export(nsys, report, partial)
        partial.replace(target)
    except ProfkitError as error:
        raise InputError(f"{report}: {error.message}") from None
    except OSError as error:
        raise InputError(f"{report}: its export cannot be written to {target.parent}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def _key(nsys: Path, report: Path) -> str:
    """Changes with the report and with the nsys that exports it."""
    about = report.stat()
    program = nsys.stat()
    parts = (report.resolve(), about.st_size, about.st_mtime_ns, nsys.resolve(), program.st_size, program.st_mtime_ns)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.sqlite"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in files[MOST_EXPORTS:]:
        file.unlink(missing_ok=True)
