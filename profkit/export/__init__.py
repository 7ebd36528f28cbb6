"""Exports: one EXPORTER a file writes a trace in a format that other tools read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profkit.analysis.context import Analysis
from profkit.errors import UsageError
from profkit.folders import check_file_target, check_folder_target
from profkit.plugins import discover


@dataclass(frozen=True)
class Exporter:
    """One format: ``write`` makes ``target``, a file or a folder, from what is selected of a trace.

    ``write`` puts the target in place in one move, and replaces what is there: :func:`export` has checked it.
    """

    name: str
    what: str
    is_folder: bool
    write: Callable[[Analysis, Path], None]
    takes_window: bool = True


def exporters() -> dict[str, Exporter]:
    """Every format by its name."""
    return discover("profkit.export", "EXPORTER", Exporter)


def check_target(exporter: Exporter, source: Path, target: Path, *, force: bool, windowed: bool) -> None:
    """Refuse before work is done. Raises UsageError or ProfkitError, in one line."""
    if windowed and not exporter.takes_window:
        raise UsageError(f"a {exporter.name} keeps the whole trace: give --window to the command that reads it")
    if source.resolve().is_relative_to(target.resolve()):
        raise UsageError(f"{target} is or holds the trace itself: choose another name")
    if exporter.is_folder:
        check_folder_target(target, force=force)
    else:
        check_file_target(target, source, force=force)
