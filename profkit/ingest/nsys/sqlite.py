"""Reads an nsys SQLite export column by column, read-only, as arrays of known types.

SQLite is dynamically typed: every integer is asked for as ``coalesce(c, -1)``, every text as bytes. The Arrow driver
takes the type of a column from its first rows and stops at a row of another type; only then is the table read again
with that check in SQL, and the rows that do not fit are counted in a warning.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import adbc_driver_manager as adbc
import adbc_driver_sqlite
import numpy as np
import pyarrow as pa

from profkit.errors import InputError
from profkit.ingest.nsys.buffers import Buffer, OtherType, gathered, make_buffers
from profkit.ingest.nsys.source import (
    Column,
    DamagedTable,
    decode,
    find_columns,
    ints,
    leave_out,
    ordered_strings,
    texts,
)
from profkit.ingest.nsys.sqlite_file import check_whole, open_uri
from profkit.model import Array

BATCH_ROWS = 65_536
_MOST_THREADS = 4
_FEWEST_ROWS_TO_SPLIT = 200_000
_SAMPLE_ROWS = 1_000
_FEWEST_EMPTY_COLUMNS = 4
"""The proof that fewer are empty takes as long as reading them."""
_FEWEST_BYTES_A_ROW = 8


class SqliteSource:
    """The tables of one SQLite export. Use as a context: a copy made for a write-ahead log goes with it."""

    format = "nsys-sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.partial = False
        check_whole(path)
        self._opened = open_uri(path)
        self._uri = self._opened.uri
        self.warnings += self._opened.warnings

    def __enter__(self) -> SqliteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @cached_property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of every table and view."""
        out = {}
        with self._sqlite() as db:
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall():
                out[str(name)] = tuple(str(row[1]) for row in db.execute(f'PRAGMA table_info("{_quoted(name)}")'))
        return out

    def has(self, table: str) -> bool:
        return table in self.tables

    def small_table(self, *names: str) -> list[dict[str, Any]]:
        table = next((name for name in names if name in self.tables), None)
        if table is None:
            return []
        columns = self.tables[table]
        try:
            with self._sqlite(table) as db:
                rows = db.execute(f'SELECT * FROM "{_quoted(table)}"').fetchall()
        except DamagedTable as error:
            leave_out(self, error)
            return []
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def fetch(self, table: str, wanted: Mapping[str, Column]) -> dict[str, Any] | None:
        if table not in self.tables:
            return None
        found = find_columns(self.path, table, self.tables[table], wanted)
        parts = self._parts(table)
        if len(parts) > 1:
            empty = self._empty_columns(table, [name for name, column in found.values() if not column.required], parts)
            found = {key: value for key, value in found.items() if value[0] not in empty}
        try:
            return self._collect_parts(table, found, parts, checked=False)
        except OtherType:
            self._warn_types(table, found)
            return self._collect_parts(table, found, parts, checked=True)

    def string_table(self) -> tuple[Array, pa.ChunkedArray]:
        return self._strings

    @cached_property
    def _strings(self) -> tuple[Array, pa.ChunkedArray]:
        table = self.fetch("StringIds", {"id": ints("id", required=True), "value": texts("value", required=True)})
        if table is None:
            return np.zeros(0, np.int64), pa.chunked_array([], pa.binary())
        return ordered_strings(table["id"], table["value"])

    def _collect_parts(
        self, table: str, found: dict[str, tuple[str, Column]], parts: list[_Part], checked: bool
    ) -> dict[str, Any]:
        """Each part in a thread and a connection of its own: the work is done outside of the interpreter's lock."""
        columns = {key: column for key, (_, column) in found.items()}
        select = _select(table, found, checked)
        if len(parts) == 1:
            whole: dict[str, Array] = {}
            buffers = [Buffer(columns)]
            self._fill(table, select, buffers[0])
        else:
            whole, buffers = make_buffers(columns, [part.most_rows for part in parts])
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda i: self._fill(table, select + parts[i].where, buffers[i]), range(len(parts))))
        for key, (name, _) in found.items():
            if lost := sum(buffer.lost[key] for buffer in buffers):
                self.warnings.append(f"{table}.{name}: {lost} values beyond 32 bits were read as absent")
        return gathered(columns, whole, buffers)

    def _fill(self, table: str, sql: str, buffer: Buffer) -> None:
        for batch in self._batches(table, sql):
            buffer.append(batch)

    def _parts(self, table: str) -> list[_Part]:
        """A large table as ranges of rowid, one a core; a small one, or one without rowid, as one part."""
        cores = min(os.cpu_count() or 1, _MOST_THREADS)
        if cores == 1:
            return [_Part()]
        try:
            with self._sqlite(table) as db:
                # One at a time: then SQLite looks at the ends of the table and not at all of it.
                low, high = (
                    db.execute(f'SELECT {end}(rowid) FROM "{_quoted(table)}"').fetchone()[0] for end in ("min", "max")
                )
        except InputError:  # a view or a table without rowid; damage shows when the rows are read
            return [_Part()]
        # Rows of a sparse range would not fill the memory that is set aside for them.
        most = self.path.stat().st_size // _FEWEST_BYTES_A_ROW
        if not isinstance(low, int) or not isinstance(high, int) or not _FEWEST_ROWS_TO_SPLIT <= high - low < most:
            return [_Part()]
        edges = [low + (high - low + 1) * i // cores for i in range(cores + 1)]
        return [_Part(f" WHERE rowid >= {a} AND rowid < {b}", b - a) for a, b in itertools.pairwise(edges)]

    def _empty_columns(self, table: str, names: list[str], parts: list[_Part]) -> set[str]:
        """Which columns of a large table hold nothing but NULL: an export has many, and reading one takes as long as
        reading a full one. Looked for in the first rows, then proven over all of them."""
        terms = ", ".join(f'max("{_quoted(name)}" IS NOT NULL)' for name in names)
        source = f'"{_quoted(table)}"'
        with self._sqlite(table) as db:
            sample = db.execute(f"SELECT {terms or '1'} FROM (SELECT * FROM {source} LIMIT {_SAMPLE_ROWS})").fetchone()
        empty = [name for name, used in zip(names, sample, strict=False) if not used]
        if len(empty) < _FEWEST_EMPTY_COLUMNS:
            return set()
        used = " OR ".join(f'"{_quoted(name)}" IS NOT NULL' for name in empty)

        def uses(part: _Part) -> bool:
            with self._sqlite(table) as db:
                return db.execute(f"SELECT 1 FROM {source}{part.where} AND ({used}) LIMIT 1").fetchone() is not None

        with ThreadPoolExecutor(len(parts)) as pool:
            return set() if any(pool.map(uses, parts)) else set(empty)

    def _batches(self, table: str, sql: str) -> Iterator[pa.RecordBatch]:
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
                raise OtherType from None
            raise self._named(table, error) from None

    def _warn_types(self, table: str, found: dict[str, tuple[str, Column]]) -> None:
        bad = [
            (name, f"""typeof("{_quoted(name)}") NOT IN ('null', {_TYPES[column.kind]})""")
            for name, column in found.values()
            if column.kind != "text"
        ]
        with self._sqlite(table) as db:
            sums = ", ".join(f"sum({test})" for _, test in bad)
            counts = db.execute(f'SELECT {sums} FROM "{_quoted(table)}"').fetchone()
        for (name, _), count in zip(bad, counts, strict=True):
            if count:
                self.warnings.append(
                    f"{table}.{name}: {count} values of another type than expected were read as absent"
                )

    @contextmanager
    def _sqlite(self, table: str = "") -> Iterator[sqlite3.Connection]:
        """A connection whose every error, while it is used, is a line that names the file and the table."""
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as db:
                # Text may hold bytes that are no UTF-8, and whole environment blocks with NULs in them.
                db.text_factory = decode
                yield db
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise self._named(table, error) from None

    def _named(self, table: str, error: Exception) -> InputError:
        text = str(error)
        if "locked" in text or "busy" in text:
            return InputError(f"{self.path}: locked by a program that is writing it: try again when it is done")
        where = f"table {table} is damaged" if table else "not a sound SQLite file"
        return DamagedTable(table, f"{self.path}: {where}: {text}")


@dataclass(frozen=True)
class _Part:
    """Some rows of a table: a condition, and how many there can be (0: not known)."""

    where: str = ""
    most_rows: int = 0


_TYPES = {"int": "'integer'", "name": "'integer'", "float": "'real', 'integer'"}


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _select(table: str, found: dict[str, tuple[str, Column]], checked: bool) -> str:
    terms = []
    for key, (name, column) in found.items():
        source = f'"{_quoted(name)}"'
        if column.kind == "text":
            term = f"coalesce(CAST({source} AS BLOB), x'')"
        elif column.kind == "float":
            null = "9e999" if column.null == np.inf else repr(column.null)
            term = f"coalesce(CAST({source} AS REAL), {null})"
            if checked:
                is_float = f"typeof({source}) IN ({_TYPES['float']})"
                term = f"CASE WHEN {is_float} THEN CAST({source} AS REAL) ELSE {null} END"
        else:
            term = f"coalesce({source}, {column.null})"
            if checked:
                term = f"CASE WHEN typeof({source}) = 'integer' THEN {source} ELSE {column.null} END"
        terms.append(f'{term} AS "{key}"')
    return f'SELECT {", ".join(terms) or "1"} FROM "{_quoted(table)}"'
