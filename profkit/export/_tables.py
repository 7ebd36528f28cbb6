"""Folders of tables: the trace's and the derived ones, decoded, with ``meta.json`` beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from profkit import decoded
from profkit.analysis.context import Analysis
from profkit.derived import Derived
from profkit.folders import META, new_folder
from profkit.model import Window
from profkit.schema import TABLES
from profkit.show import plain
from profkit.store import describe_capture

BATCH_ROWS = 250_000

WriteTable = Callable[[Path, pa.Schema, Iterator[pa.Table]], None]
"""Writes one table, given its schema and its rows in pieces."""


def write_tables(analysis: Analysis, target: Path, kind: str, suffix: str, write_table: WriteTable) -> None:
    """One file a table that holds rows; ``meta.json`` has the capture, what is missing and why, and each schema."""
    trace = analysis.trace
    names = decoded.name_texts(trace)
    tables = {**trace.tables, **Derived(analysis).all()}
    with new_folder(target) as folder:
        content = {
            "schema": f"profkit.{kind}/1",
            "profkit_version": version("profkit"),
            **describe_capture(trace),
            "window": [analysis.selected.start_ns, analysis.selected.end_ns] if analysis.selected else None,
            "tables": {},
        }
        for name, table in tables.items():
            rows = selected_rows(table, TABLES[name].kind, analysis.selected)
            count = table.num_rows if rows is None else len(rows)
            if not count:
                continue
            schema = decoded.decode(name, table.slice(0, 0), names).schema
            write_table(folder / f"{name}{suffix}", schema, _pieces(name, table, rows, names))
            content["tables"][name] = {"rows": count, "doc": TABLES[name].doc, "columns": _columns(name)}
        (folder / META).write_text(json.dumps(plain(content), indent=1, allow_nan=False), "utf-8", newline="\n")


def selected_rows(table: pa.Table, kind: str, window: Window | None) -> np.ndarray | None:
    """Rows of an event or long table that lie at least partly in a window; None for all. Rows keep their whole length.

    Dimensions and derived tables are whole: the derived ones were made of what is selected.
    """
    if window is None or kind not in ("event", "long"):
        return None
    if "start_ns" in table.column_names:
        start = table.column("start_ns").to_numpy()
        end = start + table.column("dur_ns").to_numpy()
        inside = (start < window.end_ns) & ((end > window.start_ns) | ((start == end) & (start >= window.start_ns)))
        return np.flatnonzero(inside)
    if "time_ns" in table.column_names:
        time = table.column("time_ns").to_numpy()
        return np.flatnonzero((time >= window.start_ns) & (time < window.end_ns))
    return None


def _pieces(name: str, table: pa.Table, rows: np.ndarray | None, names: pa.Array) -> Iterator[pa.Table]:
    count = table.num_rows if rows is None else len(rows)
    for first in range(0, count, BATCH_ROWS):
        piece = (
            table.slice(first, BATCH_ROWS) if rows is None else table.take(pa.array(rows[first : first + BATCH_ROWS]))
        )
        yield decoded.decode(name, piece, names, first)


def _columns(name: str) -> dict[str, dict[str, str]]:
    schema = TABLES[name]
    return {
        column.name: {"unit": "" if decoded.is_word(column) else column.unit, "doc": column.doc}
        for column in schema.columns
    }
