"""Opening a trace for a command: the library's ``open_trace``, and a line on a terminal when it takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from profkit import text

if TYPE_CHECKING:
    from profkit.model import Trace

AFTER_SECONDS = 1.0
_CLEAR = "\r\x1b[K"


def open_trace(path: Path) -> Trace:
    """:func:`profkit.ingest.open_trace`; from one second on, stderr says what is read and for how long."""
    from profkit.ingest import open_trace as read

    with working(f"reading {_described(path)}"):
        return read(path)


@contextmanager
def working(what: str, stream: TextIO | None = None, after_s: float = AFTER_SECONDS) -> Iterator[None]:
    """While the body runs longer than ``after_s``, a terminal's last line says ``what`` and the seconds so far.

    The line is gone when the body ends. A stream that is no terminal gets nothing: a log has no use for it.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    ended = threading.Event()
    clock = threading.Thread(target=_tick, args=(what, stream, after_s, ended), daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()


def _tick(what: str, stream: TextIO, after_s: float, ended: threading.Event) -> None:
    seconds, shown = after_s, False
    while not ended.wait(after_s):
        shown = True
        stream.write(f"{_CLEAR}{what}: {seconds:.0f} s")
        stream.flush()
        seconds += after_s
    if shown:
        stream.write(_CLEAR)
        stream.flush()


def _described(path: Path) -> str:
    """The name of a file with its size."""
    name = text.printable(path.name or str(path))
    try:
        return f"{name} ({text.size(path.stat().st_size)})" if path.is_file() else name
    except OSError:
        return name
