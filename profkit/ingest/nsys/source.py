"""Reads an nsys SQLite export column by column, read-only, as arrays of known types.

SQLite is dynamically typed: every integer is asked for as ``coalesce(c, -1)``, every text as bytes. The Arrow driver
takes the type of a column from its first rows and stops at a row of another type; only then is the table read again
with that check in SQL, and the rows that do not fit are counted in a warning.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager as adbc
import adbc_driver_sqlite
import numpy as np
import pyarrow as pa

from profkit.errors import InputError
from profkit.model import Array

BATCH_ROWS = 65_536
_MOST_THREADS = 4
_FEWEST_ROWS_TO_SPLIT = 200_000
NO_INT = -(1 << 63) + 1
"""Stands for NULL where -1 is a value (the lowest integer itself cannot be written as a literal in SQLite)."""


@dataclass(frozen=True)
class Column:
    """A wanted column: the first of ``names`` that the table has; absent and not ``required`` gives ``default``."""

    names: tuple[str, ...]
    kind: str = "int"
    required: bool = False
    dtype: type = np.int64
    null: str = "-1"
    """SQL literal that stands for NULL."""


def ints(*names: str, required: bool = False) -> Column:
    return Column(names, "int", required)


def small(*names: str, required: bool = False) -> Column:
    """An integer that is kept as int32; values of unsigned 32 bits wrap, as CUDA's "none" and priorities need."""
    return Column(names, "int", required, np.int32)


def payload(*names: str) -> Column:
    """An integer for which -1 is a value: NULL becomes NO_INT."""
    return Column(names, "int", False, np.int64, str(NO_INT))


def floats(*names: str) -> Column:
    """A float; NULL becomes infinity, which no exporter writes."""
    return Column(names, "float", False, np.float64, "9e999")


def texts(*names: str, required: bool = False) -> Column:
    return Column(names, "text", required)


class SqliteSource:
    """The tables of one export. ``warnings`` collects what did not fit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        wal = path.with_name(path.name + "-wal")
        # Immutable lets SQLite skip locks and side files; a write-ahead log beside the file must be read with it.
        mode = "mode=ro" if wal.exists() and wal.stat().st_size else "mode=ro&immutable=1"
        self._uri = f"file:{quote(str(path.resolve()))}?{mode}"
        self._check_whole()

    def _check_whole(self) -> None:
        """Compare the size in the header with the size on disk: a cut file can look sound until its end is read."""
        with self.path.open("rb") as file:
            header = file.read(100)
        size = self.path.stat().st_size
        if len(header) < 100:
            raise InputError(f"{self.path}: a SQLite file cut after {size} bytes")
        page = int.from_bytes(header[16:18], "big") or 0
        page = 65_536 if page == 1 else page
        pages = int.from_bytes(header[28:32], "big")
        # The page count is valid only where the change counter matches the version-valid-for number.
        if header[24:28] == header[92:96] and page and pages * page > size and "immutable" in self._uri:
            raise InputError(
                f"{self.path}: truncated: the header says {pages * page} bytes ({pages} pages of {page}), "
                f"the file has {size}; copy or export it again"
            )

    @cached_property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of every table."""
        out = {}
        with self._sqlite() as db:
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
                out[str(name)] = tuple(str(row[1]) for row in db.execute(f'PRAGMA table_info("{_quoted(name)}")'))
        return out

    def has(self, table: str) -> bool:
        return table in self.tables

    def small_table(self, *names: str) -> list[dict[str, Any]]:
        """All rows of the first of ``names`` that exists, as dictionaries; [] where none does. For small tables."""
        table = next((name for name in names if name in self.tables), None)
        if table is None:
            return []
        columns = self.tables[table]
        with self._sqlite() as db:
            rows = db.execute(f'SELECT * FROM "{_quoted(table)}"').fetchall()
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def select_rows(self, table: str, column: str, values: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of ``table`` whose integer ``column`` is one of ``values``, as dictionaries."""
        if column not in self.tables.get(table, ()):
            return []
        columns = self.tables[table]
        out: list[dict[str, Any]] = []
        with self._sqlite() as db:
            for low in range(0, len(values), 500):
                part = values[low : low + 500]
                marks = ",".join("?" * len(part))
                sql = f'SELECT * FROM "{_quoted(table)}" WHERE "{_quoted(column)}" IN ({marks})'
                out += [dict(zip(columns, row, strict=True)) for row in db.execute(sql, part)]
        return out

    def fetch(self, table: str, wanted: Mapping[str, Column]) -> dict[str, Any] | None:
        """Columns of ``table`` by our name, or None where the table does not exist.

        Integers come as numpy arrays with -1 (or the column's ``null``) for NULL, floats with infinity, texts as
        Arrow binary with b"" for NULL. A
        column that the table lacks is absent from the result. Raises InputError for a required column that is missing.
        """
        if table not in self.tables:
            return None
        found: dict[str, tuple[str, Column]] = {}
        for key, column in wanted.items():
            name = next((n for n in column.names if n in self.tables[table]), None)
            if name is not None:
                found[key] = (name, column)
            elif column.required:
                raise InputError(
                    f"{self.path}: {table}.{column.names[0]} is missing; it has {', '.join(self.tables[table])}; "
                    "export the report again with a current nsys"
                )
        return self._read(table, found)

    def _read(self, table: str, found: dict[str, tuple[str, Column]]) -> dict[str, Any]:
        parts = self._parts(table)
        try:
            return self._collect_parts(table, found, parts, checked=False)
        except _OtherType:
            self._warn_types(table, found)
            return self._collect_parts(table, found, parts, checked=True)

    def _collect_parts(
        self, table: str, found: dict[str, tuple[str, Column]], parts: list[str], checked: bool
    ) -> dict[str, Any]:
        """Each part in a thread and a connection of its own: the work is done outside of the interpreter's lock."""
        queries = [_select(table, found, checked) + where for where in parts]
        if len(queries) == 1:
            return _collect(found, self._batches(queries[0]))
        with ThreadPoolExecutor(len(queries)) as pool:
            return _joined(list(pool.map(lambda query: _collect(found, self._batches(query)), queries)))

    def _parts(self, table: str) -> list[str]:
        """Conditions that cut a large table into ranges of rowid, one a core; one empty condition for a small one."""
        cores = min(os.cpu_count() or 1, _MOST_THREADS)
        try:
            with self._sqlite() as db:
                low, high = db.execute(f'SELECT min(rowid), max(rowid) FROM "{_quoted(table)}"').fetchone()
        except InputError:  # a view or a table without rowid; damage shows when the rows are read
            return [""]
        if cores == 1 or low is None or high - low < _FEWEST_ROWS_TO_SPLIT:
            return [""]
        edges = [low + (high - low + 1) * i // cores for i in range(cores + 1)]
        return [f" WHERE rowid >= {a} AND rowid < {b}" for a, b in itertools.pairwise(edges)]

    def _batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        try:
            with (
                closing(adbc_driver_sqlite.connect(self._uri)) as database,
                closing(adbc.AdbcConnection(database)) as connection,
                closing(adbc.AdbcStatement(connection)) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
                statement.set_sql_query(sql)
                handle, _ = statement.execute_query()
                yield from pa.RecordBatchReader._import_from_c(handle.address)
        except (OSError, UnicodeDecodeError, adbc.Error) as error:
            if "Type mismatch" in str(error):
                raise _OtherType from None
            raise InputError(f"{self.path}: damaged or locked: {error}") from None

    def _warn_types(self, table: str, found: dict[str, tuple[str, Column]]) -> None:
        bad = [
            (name, f"""typeof("{_quoted(name)}") NOT IN ('null', {_TYPES[column.kind]})""")
            for name, column in found.values()
            if column.kind != "text"
        ]
        with self._sqlite() as db:
            sums = ", ".join(f"sum({test})" for _, test in bad)
            counts = db.execute(f'SELECT {sums} FROM "{_quoted(table)}"').fetchone()
        for (name, _), count in zip(bad, counts, strict=True):
            if count:
                self.warnings.append(
                    f"{table}.{name}: {count} values of another type than expected were read as absent"
                )

    @contextmanager
    def _sqlite(self) -> Iterator[sqlite3.Connection]:
        """A connection whose every error, while it is used, says that the file is damaged."""
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as db:
                # Text may hold bytes that are no UTF-8, and whole environment blocks with NULs in them.
                db.text_factory = decode
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: not a sound SQLite file: {error}") from None


class _OtherType(Exception):  # noqa: N818 - control flow, never shown
    """A column holds a value of another type than its first rows had."""


_TYPES = {"int": "'integer'", "float": "'real', 'integer'"}


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _select(table: str, found: dict[str, tuple[str, Column]], checked: bool) -> str:
    terms = []
    for key, (name, column) in found.items():
        source = f'"{_quoted(name)}"'
        if column.kind == "text":
            term = f"coalesce(CAST({source} AS BLOB), x'')"
        elif column.kind == "float":
            term = f"coalesce(CAST({source} AS REAL), {column.null})"
            if checked:
                is_float = f"typeof({source}) IN ({_TYPES['float']})"
                term = f"CASE WHEN {is_float} THEN CAST({source} AS REAL) ELSE {column.null} END"
        else:
            term = f"coalesce({source}, {column.null})"
            if checked:
                term = f"CASE WHEN typeof({source}) = 'integer' THEN {source} ELSE {column.null} END"
        terms.append(f'{term} AS "{key}"')
    return f'SELECT {", ".join(terms) or "1"} FROM "{_quoted(table)}"'


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the parts one behind the other; each part is let go as soon as its column is copied."""
    out: dict[str, Any] = {}
    for key in list(parts[0]):
        values = [part.pop(key) for part in parts]
        if isinstance(values[0], pa.ChunkedArray):
            out[key] = pa.chunked_array([chunk for value in values for chunk in value.chunks], pa.binary())
        else:
            out[key] = np.concatenate(values)
    return out


_ARROW = {"int": pa.int64(), "float": pa.float64(), "text": pa.binary()}


def _collect(found: dict[str, tuple[str, Column]], batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    """Batches into one array a column; a batch is narrowed before the next one is read, to keep the peak low."""
    parts: dict[str, list[Any]] = {key: [] for key in found}
    for batch in batches:
        for key, (_, column) in found.items():
            values = batch.column(batch.schema.get_field_index(key))
            if batch.num_rows and values.type != _ARROW[column.kind]:
                raise _OtherType
            if column.kind == "text":
                parts[key].append(values)
            else:
                parts[key].append(_narrow(values.to_numpy(zero_copy_only=False), column.dtype))
    out: dict[str, Any] = {}
    for key, (_, column) in found.items():
        if column.kind == "text":
            out[key] = pa.chunked_array(parts[key], pa.binary())
        else:
            out[key] = np.concatenate(parts[key]) if parts[key] else np.zeros(0, column.dtype)
        parts[key] = []
    return out


def _narrow(values: Array, dtype: type) -> Array:
    if dtype is np.int64 or dtype is np.float64:
        return values.copy()
    return values.astype(np.uint32).view(np.int32) if len(values) else values.astype(np.int32)


def decode(raw: bytes) -> str:
    """Text of an export: bytes that are no UTF-8 are replaced, never fatal."""
    return raw.decode("utf-8", "replace")


def string_ids(source: SqliteSource, wanted: Sequence[Array]) -> dict[int, str]:
    """StringIds for the ids that events use. Only those: the table also holds whole environments of processes."""
    used = np.unique(np.concatenate([np.unique(ids) for ids in wanted])) if wanted else np.zeros(0, np.int64)
    used = used[used != -1]
    table = source.fetch("StringIds", {"id": ints("id", required=True), "value": texts("value", required=True)})
    out: dict[int, str] = {}
    if table is not None:
        at = np.flatnonzero(np.isin(table["id"], used))
        values = table["value"].take(pa.array(at)).to_pylist()
        out = {int(i): decode(value) for i, value in zip(table["id"][at].tolist(), values, strict=True)}
    return {int(i): out.get(int(i), f"<unknown #{int(i)}>") for i in used}
