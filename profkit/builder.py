"""The one way to make a Trace: readers add columns, ``finish`` sorts, checks and freezes.

Checks live here, so that every reader gets them: no nulls, no negative length, rows sorted, flags for what is not
whole, a parent for each span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from profkit import text
from profkit.arrays import depths, first_match, pack, parents, sort_order
from profkit.canonical import begin_at_zero, renumber
from profkit.late_ends import mark_late_ends
from profkit.model import EVERY_PROCESS, Array, Ints, RunMeta, Trace, Window
from profkit.names import Names
from profkit.redact import redacted
from profkit.schema import (
    CAPTURE_TABLES,
    DEVICE_TABLES,
    EVENT_TABLES,
    FLAG_BEFORE_ITS_LAUNCH,
    FLAG_OPEN_END,
    FLAG_OVERLAPS_NEXT,
    FLAG_SIMULATED,
    SPAN_KINDS,
    TABLES,
    Column,
)

_REFERENCES = {"collectives": (("span", "spans"), ("kernel", "kernels"))}
"""Columns that hold a row of another event table: given as its number in the order of adding."""

_CHUNK_ROWS = 1 << 20
_NESTED_KINDS = [SPAN_KINDS.index(kind) for kind in ("push_pop", "op", "module", "python", "annotation")]


class Builder:
    """Collects what a reader found; see :meth:`finish`."""

    def __init__(self) -> None:
        self.names = Names()
        self.missing: dict[str, dict[int, str]] = {}
        self.warnings: list[str] = []
        """What makes a number doubtful."""
        self.notes: list[str] = []
        """What was assumed, and makes no number doubtful."""
        self.host_names: list[str] = []
        """Names of machines that the source gives away: no text of the trace shows them."""
        self._dimensions: dict[str, list[dict[str, Any]]] = {
            t.name: [] for t in TABLES.values() if t.kind == "dimension" and t.name != "names"
        }
        self._keys: dict[tuple[str, Any], int] = {}
        self._events: dict[str, list[dict[str, Array | pa.Array]]] = {}

    def dimension(self, table: str, key: Any, **values: Any) -> int:
        """Row of ``table`` for ``key``, made from ``values`` at first sight; columns not given are absent."""
        row = self._keys.get((table, key))
        if row is None:
            row = len(self._dimensions[table])
            self._keys[table, key] = row
            columns = TABLES[table].columns
            unknown = set(values) - {c.name for c in columns}
            if unknown:
                raise KeyError(f"{table} has no column {sorted(unknown)}")
            self._dimensions[table].append({c.name: _fitting(c, values.get(c.name, _absent(c))) for c in columns})
        return row

    def row_of(self, table: str, key: Any) -> int:
        """Row that :meth:`dimension` made for ``key``, -1 if it made none."""
        return self._keys.get((table, key), -1)

    def set_dimension(self, table: str, row: int, **values: Any) -> None:
        """Fill columns of a row that :meth:`dimension` made."""
        fitting = {key: _fitting(TABLES[table].column(key), value) for key, value in values.items()}
        self._dimensions[table][row].update(fitting)

    def get_dimension(self, table: str, row: int, column: str) -> Any:
        return self._dimensions[table][row][column]

    def count(self, table: str) -> int:
        """Rows of a table so far."""
        if table in self._dimensions:
            return len(self._dimensions[table])
        return sum(len(next(iter(part.values()))) for part in self._events.get(table, []))

    def add(self, table: str, **columns: Any) -> None:
        """Add rows of an event or long table: arrays of one length, scalars for all rows; the rest, or None, is absent.

        ``span`` and ``kernel`` of a collective are numbers of rows in the order of adding; ``finish`` translates them.
        A negative ``dur_ns`` means that the row was not seen to end.
        """
        lengths = {len(v) for v in columns.values() if v is not None and not isinstance(v, int | float | str | bool)}
        if len(lengths) > 1:
            raise ValueError(f"columns of {table} differ in length: {sorted(lengths)}")
        n = lengths.pop() if lengths else 1
        unknown = set(columns) - {c.name for c in TABLES[table].columns}
        if unknown:
            raise KeyError(f"{table} has no column {sorted(unknown)}")
        part = {c.name: _column(c, columns.get(c.name), n) for c in TABLES[table].columns if c.name != "id"}
        if n:
            self._events.setdefault(table, []).append(part)

    def distinct(self, table: str, column: str) -> list[int]:
        """Distinct values of an integer column so far."""
        parts = self._events.get(table, [])
        return sorted({int(value) for part in parts for value in np.unique(part[column])})

    def columns(self, table: str, names: tuple[str, ...]) -> dict[str, Array]:
        """Columns of a table so far, in the order of adding."""
        parts = self._events.get(table, [])
        return {name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)]) for name in names}

    def count_calls(self, match: Callable[[str], bool]) -> int:
        """Number of calls whose name satisfies ``match``."""
        wanted = [row for row, name in enumerate(self.names.texts()) if match(name)]
        return sum(int(np.isin(part["name"], wanted).sum()) for part in self._events.get("calls", []))

    def earliest(self) -> int:
        """The earliest start of an event of the capture so far, 0 without events."""
        parts = [part for name in CAPTURE_TABLES for part in self._events.get(name, [])]
        return min((int(part["start_ns"].min()) for part in parts), default=0)

    def shift_to_origin(self) -> int:
        """Subtract the earliest start from all event times, and return it: for sources with absolute times."""
        origin = self.earliest()
        for part in (part for name in EVENT_TABLES for part in self._events.get(name, [])):
            part["start_ns"] = part["start_ns"] - origin
        for part in (part for table in self._events.values() for part in table if "time_ns" in part):
            part["time_ns"] = part["time_ns"] - origin
        return origin

    def own_device_rows(self, processes: list[int], by_track: Mapping[int, int] | None = None) -> int:
        """Give device rows without a process the one whose calls hold their correlation id.

        With one process it is that one; a track in ``by_track`` belongs to that process, whatever the ids say. Returns
        how many rows no single process could be found for.
        """
        tracks = np.fromiter((by_track or {}).keys(), np.int64)
        owners = np.fromiter((by_track or {}).values(), np.int64)
        keys = {
            process: np.concatenate(
                [part["correlation"][part["process"] == process] for part in self._events.get("calls", [])] or [[]]
            ).astype(np.int64)
            for process in processes
        }
        unclear = 0
        for part in (part for table in (*DEVICE_TABLES, "syncs") for part in self._events.get(table, [])):
            if len(processes) == 1:
                part["process"] = np.full(len(part["start_ns"]), processes[0], np.int32)
                continue
            hits = np.stack([first_match(keys[p], part["correlation"]) >= 0 for p in processes] or [np.zeros(0, bool)])
            single = hits.sum(axis=0) == 1
            process = np.where(single, np.asarray(processes)[hits.argmax(axis=0)], -1)
            owner = first_match(tracks, part["track"].astype(np.int64))
            process[owner >= 0] = owners[owner[owner >= 0]]
            part["process"] = process.astype(np.int32)
            unclear += int((process < 0).sum())
        return unclear

    def miss(self, table: str, reason: str, process: int = EVERY_PROCESS) -> None:
        """Say why a table holds nothing: not captured is not empty."""
        self.missing.setdefault(table, {})[process] = reason

    def finish(self, meta: RunMeta, windows: tuple[Window, ...] = ()) -> Trace:
        """Sort, check and freeze. Without ``windows`` collection is taken to be on from the first to the last event."""
        columns = {t.name: self._joined(t.name) for t in TABLES.values() if t.kind in ("event", "long")}
        meta, note = begin_at_zero(meta, columns)
        self.notes += [note] if note else []
        renumber(self._dimensions, columns, self.missing)
        edges = [
            (int(c["start_ns"].min()), int((c["start_ns"] + np.maximum(c["dur_ns"], 0)).max()))
            for name, c in columns.items()
            if name in CAPTURE_TABLES and len(c["start_ns"])
        ]
        last = max((end for _, end in edges), default=0)
        for name in EVENT_TABLES:
            self._close_open(name, columns[name], last)
            if meta.simulated:
                columns[name]["flags"] |= FLAG_SIMULATED
        with ThreadPoolExecutor() as pool:  # numpy lets go of the interpreter's lock while it sorts and takes
            orders = dict(zip(EVENT_TABLES, pool.map(lambda name: _sort(columns[name]), EVENT_TABLES), strict=True))
        _translate_references(columns, orders)
        _nest(columns["spans"])
        for name in DEVICE_TABLES:
            _flag_device_rows(columns[name], columns["calls"])
        self._mark_gpu_rows(columns)
        tables = {name: _frozen(name, part) for name, part in columns.items()}
        tables["names"] = self.names.table()
        for name, rows in self._dimensions.items():
            schema = TABLES[name].schema
            tables[name] = pa.Table.from_pylist(rows, schema=schema)
        if not windows and edges:
            windows = (Window(min(start for start, _ in edges), last),)
        meta = replace(meta, warnings=(*meta.warnings, *self.warnings), notes=(*meta.notes, *self.notes))
        trace = mark_late_ends(Trace(meta, tables, _frozen_missing(self.missing), windows))
        return redacted(trace, self.host_names)

    def _joined(self, table: str) -> dict[str, Any]:
        parts = self._events.pop(table, [])
        out: dict[str, Any] = {}
        for column in TABLES[table].columns:
            if column.name == "id":
                continue
            values = [part.pop(column.name) for part in parts]
            if column.type == pa.string():
                out[column.name] = (
                    pa.chunked_array(values, pa.string()).combine_chunks() if values else pa.array([], pa.string())
                )
            elif len(values) == 1:
                out[column.name] = values[0]
            else:
                dtype = column.type.to_pandas_dtype()
                out[column.name] = np.concatenate(values) if values else np.zeros(0, dtype)
        return out

    def _close_open(self, table: str, columns: dict[str, Any], last: int) -> None:
        """Rows that never ended: ranges and calls reach to the end of the capture, device rows get no length."""
        open_rows = columns["dur_ns"] < 0
        count = int(open_rows.sum())
        if not count:
            return
        reach = np.maximum(last - columns["start_ns"], 0) if table in ("spans", "calls", "syncs", "os_calls") else 0
        columns["dur_ns"] = np.where(open_rows, reach, columns["dur_ns"])
        columns["flags"] = np.where(open_rows, columns["flags"] | FLAG_OPEN_END, columns["flags"]).astype(np.int32)
        what = (
            text.count(count, "unclosed range")
            if table == "spans"
            else text.count(count, f"row of {table}", f"rows of {table}")
        )
        self.warnings.append(
            f"{what} without an end: "
            + ("drawn to the end of the capture, " if table in ("spans", "calls") else "")
            + "not counted in durations"
        )

    def _mark_gpu_rows(self, columns: Mapping[str, dict[str, Any]]) -> None:
        seen: set[int] = set()
        for name in DEVICE_TABLES:
            seen.update(int(row) for row in np.unique(columns[name]["process"]))
        for row, process in enumerate(self._dimensions["processes"]):
            process["gpu_rows"] = row in seen


def with_times(trace: Trace, times: Mapping[str, Mapping[str, Ints]]) -> Trace:
    """The same rows at other times: ``times[table][column]`` replace columns; rows are put in order of them again."""
    columns: dict[str, dict[str, Any]] = {}
    for name in TABLES:
        if TABLES[name].kind in ("event", "long") and name in trace.tables:
            table = trace.tables[name]
            columns[name] = {
                c.name: table.column(c.name).combine_chunks() if c.type == pa.string() else trace.array(name, c.name)
                for c in TABLES[name].columns
                if c.name != "id"
            }
            columns[name] |= times.get(name, {})
    columns["spans"] |= {name: columns["spans"][name].copy() for name in ("parent", "depth")}
    _translate_references(columns, {name: _sort(columns[name]) for name in EVENT_TABLES})
    _nest(columns["spans"])
    return replace(trace, tables={**trace.tables, **{name: _frozen(name, part) for name, part in columns.items()}})


def _absent(column: Column) -> Any:
    if column.type == pa.string():
        return ""
    if column.type == pa.bool_():
        return False
    return 0 if column.name in ("flags", "offset_ns", "offset_error_ns") else -1


def _fitting(column: Column, value: Any) -> Any:
    """The value, or absent where the column cannot hold it: a count of 2^62 processors is damage, not a count."""
    if isinstance(value, str):  # half a surrogate pair is no text that Arrow can hold
        return value.encode("utf-8", "replace").decode()
    if not isinstance(value, int) or isinstance(value, bool) or not pa.types.is_integer(column.type):
        return value
    limit = 1 << (column.type.bit_width - 1)
    return value if -limit <= value < limit else _absent(column)


def _column(column: Column, value: Any, n: int) -> Any:
    if column.type == pa.string():
        if value is None or isinstance(value, str):
            return pa.repeat(value or "", n)
        return value if isinstance(value, pa.Array) else pa.array(value, pa.string())
    dtype = column.type.to_pandas_dtype()
    if column.name == "payload_kind" and value is None:
        return np.zeros(n, dtype)
    if value is None or isinstance(value, int | float | bool):
        return np.full(n, _absent(column) if value is None else value, dtype)
    return np.asarray(value).astype(dtype, copy=False)


def _sort(columns: dict[str, Any]) -> Ints | None:
    """Put the rows in order; returns the order, None where they were in it."""
    order = sort_order(columns["start_ns"], columns["dur_ns"], columns["track"])
    if np.array_equal(order, np.arange(len(order))):
        return None
    for name, values in columns.items():
        columns[name] = values.take(pa.array(order)) if isinstance(values, pa.Array) else values[order]
    return order


def _translate_references(columns: Mapping[str, dict[str, Any]], orders: Mapping[str, Ints | None]) -> None:
    for table, references in _REFERENCES.items():
        for column, other in references:
            order = orders[other]
            rows = columns[table][column]
            if order is None or not len(rows):
                continue
            place = np.empty(len(order) + 1, np.int64)
            place[order] = np.arange(len(order))
            place[-1] = -1  # no row stays no row
            columns[table][column] = place[rows]


def _nest(spans: dict[str, Any]) -> None:
    """Fill ``parent`` and ``depth`` of ranges that nest on their thread."""
    rows = np.flatnonzero(np.isin(spans["kind"], _NESTED_KINDS))
    start = spans["start_ns"][rows]
    inside = parents(start, start + spans["dur_ns"][rows], spans["track"][rows])
    spans["parent"][rows] = np.where(inside >= 0, rows[np.maximum(inside, 0)], -1) if len(rows) else -1
    spans["depth"][:] = 0
    spans["depth"][rows] = depths(inside)


def _flag_device_rows(rows: dict[str, Any], calls: dict[str, Any]) -> None:
    """Mark rows that begin before the call that caused them, and rows that reach into the next one of their stream.

    The rows are in order of start.
    """
    start, track, flags = rows["start_ns"], rows["track"], rows["flags"]
    few = len(track) and int(track.max()) < 1 << 15  # then numpy counts instead of sorting
    order = np.argsort(track.astype(np.int16) if few else track, kind="stable")
    for at in _chunks(len(order) - 1):
        this, after = order[at], order[at.start + 1 : at.stop + 1]
        over = (track[this] == track[after]) & (start[this] + rows["dur_ns"][this] > start[after])
        flags[this[over]] |= FLAG_OVERLAPS_NEXT
    del order
    if not len(calls["start_ns"]):
        return
    call_key, row_key = pack([[calls["process"], rows["process"]], [calls["correlation"], rows["correlation"]]])
    call = first_match(call_key, row_key)
    del call_key, row_key
    for at in _chunks(len(call)):
        known = (call[at] >= 0) & (rows["correlation"][at] >= 0)
        early = known & (start[at] < calls["start_ns"][call[at]])
        flags[at][early] |= FLAG_BEFORE_ITS_LAUNCH


def _chunks(n: int) -> Iterator[slice]:
    """Parts of n rows: what is needed for one of them at a time stays small."""
    return (slice(low, min(low + _CHUNK_ROWS, n)) for low in range(0, n, _CHUNK_ROWS))


def _frozen(table: str, columns: dict[str, Any]) -> pa.Table:
    schema = TABLES[table].schema
    n = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        if field.name == "id" and "id" not in columns:
            arrays.append(pa.array(np.arange(n, dtype=np.int64)))
        else:
            values = columns[field.name]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _frozen_missing(missing: dict[str, dict[int, str]]) -> dict[str, dict[int, str]]:
    return {table: dict(reasons) for table, reasons in missing.items()}
