"""profkit's own store: opens at once, memory-mapped, with what profkit derived from the trace beside it."""

from __future__ import annotations

from pathlib import Path

from profkit.analysis.context import Analysis
from profkit.derived import Derived
from profkit.export import Exporter
from profkit.store import save


def write(analysis: Analysis, target: Path) -> None:
    """Write the whole trace and its derived tables."""
    save(analysis.trace, target, Derived(analysis).all(), force=True)


EXPORTER = Exporter(
    name="store", what="a folder that profkit opens at once", is_folder=True, write=write, takes_window=False
)
