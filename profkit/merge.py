"""Joins traces, one a rank or a capture, into one: hosts, processes, devices, lanes and names get new numbers.

Times go on the axis of the first trace's clock where the ends of collectives tell how far the others are off (see
:mod:`profkit.clocks`): each offset is said in a note, and ``hosts`` holds it with its uncertainty. A trace that cannot
be aligned keeps its own times, absolute ones where every trace has them, else with its first event at 0: a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from profkit.arrays import sort_order
from profkit.axis import Axis, common_axis, moved, not_aligned
from profkit.clocks import Alignment
from profkit.errors import InputError
from profkit.model import EVERY_PROCESS, Array, Ints, RunMeta, Trace, Window
from profkit.schema import EVENT_TABLES, TABLES, Column

_REFERENCES = {("spans", "parent"): "spans", ("collectives", "span"): "spans", ("collectives", "kernel"): "kernels"}
"""Columns that hold a row of an event table."""


@dataclass(frozen=True)
class Part:
    """One trace to join: where it was read from, and whether another capture of the same process came before it."""

    path: Path
    trace: Trace
    same_as: int = -1
    """Index of the part whose processes, devices and lanes it continues; -1 for a process of its own."""
    rank: int = -1
    """What it is called by; -1 is not one rank."""


def merge_traces(parts: Sequence[Part], source: str, name: str) -> Trace:
    """One trace of all parts. ``source`` and ``name`` are its format and path.

    Raises InputError for no part, for parts of which one continues another that comes later, and for captures of one
    process that lie so far apart that no time holds both.
    """
    if not parts:
        raise InputError(f"{name}: no trace to join")
    if any(part.same_as >= place for place, part in enumerate(parts)):
        raise InputError(f"{name}: a capture continues one that is not read yet")
    axis = common_axis(parts, name)
    rows = _Rows(parts)
    tables: dict[str, pa.Table] = {table: rows.dimension(table, axis.clocks) for table in rows.dimensions}
    columns = {
        table: _stacked(parts, table, rows, axis.shifts) for table in TABLES if TABLES[table].kind in ("event", "long")
    }
    orders = {table: _sort(columns[table]) for table in EVENT_TABLES}
    for (table, column), other in _REFERENCES.items():
        columns[table][column] = orders[other][columns[table][column]]
    for table, values in columns.items():
        tables[table] = _frozen(table, values)
    meta = _meta(parts, source, name, axis)
    return Trace(meta, tables, _missing(parts, rows), _windows(parts, axis.shifts))


class _Rows:
    """New rows of the dimension tables, by part and old row; a part that continues another shares its rows."""

    dimensions = ("names", "hosts", "processes", "devices", "tracks", "counter_names")

    def __init__(self, parts: Sequence[Part]) -> None:
        self._tables: dict[str, list[dict[str, Any]]] = {table: [] for table in self.dimensions}
        self._keys: dict[tuple[str, Any], int] = {}
        self._host_owners: list[int] = []
        self._new: list[dict[str, Ints]] = []
        for place, part in enumerate(parts):
            self._new.append({})
            owner = part.same_as if part.same_as >= 0 else place
            for table in self.dimensions:
                self._new[place][table] = self._add(table, part.trace.tables[table], owner, place)

    def _add(self, table: str, source: pa.Table, owner: int, place: int) -> Ints:
        out = np.empty(source.num_rows + 1, np.int64)
        out[-1] = -1  # no row stays no row
        for row, values in enumerate(source.to_pylist()):
            for column in TABLES[table].columns:
                if (other := _dimension_of(column)) is not None:
                    values[column.name] = int(self._new[place][other][values[column.name]])
            key = _identity(table, values, owner)
            number = self._keys.setdefault((table, key), len(self._tables[table]))
            if number == len(self._tables[table]):
                self._tables[table].append(values)
                self._host_owners += [owner] if table == "hosts" else []
            elif table == "processes":
                self._tables[table][number]["gpu_rows"] |= values["gpu_rows"]
            out[row] = number
        return out

    def renumber(self, place: int, table: str, codes: Array) -> Ints:
        new: Ints = self._new[place][table][codes]
        return new

    def dimension(self, table: str, clocks: Mapping[int, Alignment]) -> pa.Table:
        rows = self._tables[table]
        if table == "hosts":
            rows = [_on_axis(row, clocks[owner]) for row, owner in zip(rows, self._host_owners, strict=True)]
        return pa.Table.from_pylist(rows, schema=TABLES[table].schema)


def _on_axis(host: dict[str, Any], clock: Alignment) -> dict[str, Any]:
    """A host of one trace with the offset to the first trace's clock; one that was never aligned stays so."""
    if min(host["offset_error_ns"], clock.error_ns) < 0:
        return {**host, "offset_ns": 0, "offset_error_ns": -1}
    error = host["offset_error_ns"] + clock.error_ns
    return {**host, "offset_ns": host["offset_ns"] + clock.offset_ns, "offset_error_ns": error}


def _identity(table: str, values: Mapping[str, Any], owner: int) -> tuple[Any, ...]:
    """What makes two rows one: a text, a GPU's UUID; else only rows of one owner, two captures of a process, can be."""
    if table == "names":
        return (values["text"],)
    if table == "counter_names":
        return tuple(values.values())
    if table == "devices" and values["uuid"]:
        return (values["uuid"], values["mig"])
    if table == "processes":
        return (owner, values["host"], values["pid"], values["rank"])
    if table == "hosts":
        return (owner, values["hostname"])
    return (owner, *values.values())


def _dimension_of(column: Column) -> str | None:
    """The dimension table whose rows a column holds."""
    other = column.unit.removeprefix("row of ")
    return other if other != column.unit and TABLES[other].kind == "dimension" else None


def _stacked(parts: Sequence[Part], table: str, rows: _Rows, shifts: Sequence[int]) -> dict[str, Any]:
    """Columns of a table of all parts, with new rows of dimensions, and rows of other tables counted through."""
    out: dict[str, Any] = {}
    for column in TABLES[table].columns:
        if column.name == "id":
            continue
        pieces: list[Any] = []
        for place, part in enumerate(parts):
            if column.type == pa.string():
                pieces.append(part.trace.tables[table].column(column.name).combine_chunks())
                continue
            values = part.trace.array(table, column.name)
            if column.name in ("start_ns", "time_ns"):
                values = values + shifts[place]
            elif (other := _dimension_of(column)) is not None:
                values = rows.renumber(place, other, values).astype(values.dtype)
            elif (table, column.name) in _REFERENCES:
                before = sum(p.trace.rows(_REFERENCES[table, column.name]) for p in parts[:place])
                values = np.where(values >= 0, values + before, -1)
            pieces.append(values)
        out[column.name] = (
            pa.chunked_array(pieces, pa.string()).combine_chunks()
            if column.type == pa.string()
            else np.concatenate(pieces)
        )
    return out


def _sort(columns: dict[str, Any]) -> Ints:
    """Put rows in the order of time; returns the new place of each old row, and -1 behind them for no row."""
    order = sort_order(columns["start_ns"], columns["dur_ns"], columns["track"])
    for name, values in columns.items():
        columns[name] = values.take(pa.array(order)) if isinstance(values, pa.Array) else values[order]
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1
    return place


def _frozen(table: str, columns: Mapping[str, Any]) -> pa.Table:
    schema = TABLES[table].schema
    n = len(next(iter(columns.values())))
    arrays = []
    for column in schema:
        values = np.arange(n) if column.name == "id" and "id" not in columns else columns[column.name]
        arrays.append(values if isinstance(values, pa.Array) else pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _missing(parts: Sequence[Part], rows: _Rows) -> dict[str, dict[int, str]]:
    """Why a table is missing: for every process where all parts lack it, else for the processes of those that do."""
    out: dict[str, dict[int, str]] = {}
    for table in dict.fromkeys(table for part in parts for table in part.trace.missing):
        lacking = [part for part in parts if part.trace.missing.get(table)]
        if len(lacking) == len(parts) and not any(part.trace.rows(table) for part in parts):
            reason = lacking[0].trace.why_missing(table) or next(iter(lacking[0].trace.missing[table].values()))
            out[table] = {EVERY_PROCESS: reason}
            continue
        for place, part in enumerate(parts):
            for process, reason in part.trace.missing.get(table, {}).items():
                own = range(part.trace.rows("processes")) if process == EVERY_PROCESS else [process]
                for row in own:
                    number = int(rows.renumber(place, "processes", np.asarray([row]))[0])
                    out.setdefault(table, {})[number] = reason
    return out


def _windows(parts: Sequence[Part], shifts: Sequence[int]) -> tuple[Window, ...]:
    """When collection was on in any part; windows that touch are one."""
    found = sorted(
        (window.start_ns + shift, window.end_ns + shift)
        for part, shift in zip(parts, shifts, strict=True)
        for window in part.trace.windows
    )
    out: list[tuple[int, int]] = []
    for start, end in found:
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return tuple(Window(start, end) for start, end in out)


def _meta(parts: Sequence[Part], source: str, name: str, axis: Axis) -> RunMeta:
    metas = [part.trace.meta for part in parts]
    first = metas[0]
    return replace(
        first,
        source=source,
        source_version=", ".join(dict.fromkeys(meta.source_version for meta in metas if meta.source_version)),
        path=name,
        origin_ns=first.origin_ns if len(parts) == 1 else 0 if axis.absolute else max(axis.start_ns, 0),
        utc_ns=axis.start_ns if axis.absolute else -1,
        clock=first.clock if len({meta.clock for meta in metas}) == 1 else "unknown",
        resolution_ns=max(meta.resolution_ns for meta in metas),
        captured=tuple(dict.fromkeys(word for meta in metas for word in meta.captured)),
        simulated=any(meta.simulated for meta in metas),
        partial=any(meta.partial for meta in metas),
        warnings=(*_said([meta.warnings for meta in metas], parts), *not_aligned(parts, axis)),
        notes=(*_said([meta.notes for meta in metas], parts), *moved(parts, axis)),
        extra={"files": str(len(parts))},
    )


def _said(texts: Sequence[Sequence[str]], parts: Sequence[Part]) -> tuple[str, ...]:
    """What the parts have to say, each sentence once, with the files that say it."""
    files: dict[str, list[str]] = {}
    for said, part in zip(texts, parts, strict=True):
        for sentence in said:
            files.setdefault(sentence, []).append(part.path.name)
    return tuple(
        f"{sentence} (in all {len(parts)} files)" if len(names) == len(parts) > 1
        else f"{names[0]}: {sentence}" if len(names) == 1
        else f"{sentence} (in {len(names)} files: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for sentence, names in files.items()
    )  # fmt: skip
