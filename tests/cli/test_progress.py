"""A reading that takes long says so on a terminal, and only there."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from profkit.cli import _open
from profkit.errors import InputError


class Terminal(io.StringIO):
    """A stream that says it is a terminal and tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        self.written.set()
        return done


def test_a_long_reading_is_said_and_the_line_taken_back() -> None:
    terminal = Terminal()
    with _open.working("reading run.sqlite (5.00 MB)", terminal, after_s=0.01):
        assert terminal.written.wait(30)
    said = terminal.getvalue()
    assert said.startswith("\r\x1b[Kreading run.sqlite (5.00 MB): 0 s")
    assert said.endswith("\r\x1b[K")


def test_a_short_reading_says_nothing() -> None:
    terminal = Terminal()
    with _open.working("reading", terminal, after_s=600):
        pass
    assert terminal.getvalue() == ""


def test_the_line_is_taken_back_after_an_error() -> None:
    terminal = Terminal()

    def fail() -> None:
        with _open.working("reading", terminal, after_s=0.01):
            assert terminal.written.wait(30)
            raise InputError("damaged")

    with pytest.raises(InputError):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_log_gets_nothing() -> None:
    log = io.StringIO()
    with _open.working("reading", log, after_s=0):
        pass
    assert log.getvalue() == ""


def test_commands_open_through_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def note(what: str) -> object:
        said.append(what)
        return io.StringIO()  # any context manager

    monkeypatch.setattr(_open, "working", note)
    path = tmp_path / "x.sqlite"
    path.write_bytes(bytes(2_000))
    with pytest.raises(InputError):
        _open.open_trace(path)
    assert said == ["reading x.sqlite (2.00 kB)"]
