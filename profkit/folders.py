"""Files and folders that profkit writes: filled aside, put in place in one move, never over what is not to be lost.

A folder of profkit's is known by its ``meta.json``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profkit.errors import ProfkitError

META = "meta.json"
_HEAD_BYTES = 4096


def is_written_by_profkit(folder: Path, kind: str = "profkit.") -> bool:
    """Whether a folder has a ``meta.json`` of profkit's: of any kind, or of one such as ``profkit.store``."""
    try:
        with (folder / META).open("rb") as file:
            return f'"schema": "{kind}'.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def check_folder_target(folder: Path, *, force: bool) -> None:
    """Refuse a folder before work is done. ``force`` allows to replace what profkit wrote, never any other folder.

    Raises ProfkitError for one that is in the way or has no folder to stand in.
    """
    if not folder.absolute().parent.is_dir():
        raise ProfkitError(f"there is no folder {folder.parent} to write to")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_written_by_profkit(folder):
        raise ProfkitError(f"{folder} exists and was not written by profkit: choose another name")
    if not force:
        raise ProfkitError(f"{folder} exists: choose another name, or replace it with --force")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its place in one move when all is written; what was there is then removed.

    Raises ProfkitError where that cannot be done; nothing is left behind then, and what was there stays.
    """
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.absolute().parent))
    except OSError as error:
        raise ProfkitError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        filled = made / "new"
        filled.mkdir()
        yield filled
        if folder.exists():
            folder.rename(made / "old")
        filled.rename(folder)
    except OSError as error:
        raise ProfkitError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        if (made / "old").exists() and not folder.exists():
            (made / "old").rename(folder)
        shutil.rmtree(made, ignore_errors=True)


def check_file_target(target: Path, source: Path, *, force: bool) -> None:
    """Refuse a file before work is done. Raises ProfkitError for one that exists, is the source, or has no folder."""
    if target.is_dir():
        raise ProfkitError(f"{target} is a folder: name a file")
    if target.exists() and source.exists() and target.samefile(source):
        raise ProfkitError(f"{target} is the trace itself: name another file")
    if target.exists() and not force:
        raise ProfkitError(f"{target} exists: choose another name, or overwrite it with --force")
    if not target.absolute().parent.is_dir():
        raise ProfkitError(f"there is no folder {target.parent} to write to")


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A file to write, which takes the target's place in one move. Raises ProfkitError if it cannot."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise ProfkitError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
