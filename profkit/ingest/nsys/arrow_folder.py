"""Reads an nsys ``parquetdir`` or ``arrowdir`` export: a folder with one file a table, named like the table.

Parquet files, Arrow files and Arrow streams are told apart by content. Strings may be ids of a StringIds file or stand
in the table itself; unsigned ids of 64 bits are taken as the signed ones that SQLite would hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.ingest.nsys.source import (
    Column,
    DamagedTable,
    decode,
    find_columns,
    leave_out,
    narrow,
    ordered_strings,
)
from profkit.model import Array

SUFFIXES = (".parquet", ".arrow", ".arrows")
_FIRST_INLINE_ID = 1 << 40
"""Ids for texts that stand in place of an id; those of StringIds are far below."""


def table_files(folder: Path) -> dict[str, Path]:
    """File of each table in a folder; of two for one table the Parquet one."""
    found: dict[str, Path] = {}
    for file in sorted(
        folder.iterdir(), key=lambda file: SUFFIXES.index(file.suffix) if file.suffix in SUFFIXES else 9
    ):
        if file.suffix in SUFFIXES and file.is_file():
            found.setdefault(file.stem, file)
    return found


class ArrowFolder:
    """The tables of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.partial = False
        self._files = table_files(path)
        parquet = any(file.suffix == ".parquet" for file in self._files.values())
        self.format = "nsys-parquet" if parquet else "nsys-arrow"
        self._inline: dict[bytes, int] = {}
        self._schemas: dict[str, tuple[str, ...]] = {}

    @cached_property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of every table; of a file that cannot be read, none: reading it says why."""
        return {name: self._columns(name) for name in self._files}

    def _columns(self, table: str) -> tuple[str, ...]:
        try:
            return tuple(self._schema(table).names)
        except (pa.ArrowException, OSError):
            return ()

    def has(self, table: str) -> bool:
        return table in self._files

    def small_table(self, *names: str) -> list[dict[str, Any]]:
        name = next((name for name in names if name in self._files), None)
        if name is None:
            return []
        try:
            table = self._read(name, None)
        except DamagedTable as error:
            leave_out(self, error)
            return []
        columns = {c: _plain(_decoded(table.column(c))) for c in table.column_names}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def fetch(self, table: str, wanted: Mapping[str, Column]) -> dict[str, Any] | None:
        if table not in self._files:
            return None
        if not self.tables[table]:
            self._read(table, None)  # raises the reason
        found = find_columns(self.path, table, self.tables[table], wanted)
        read = self._read(table, [name for name, _ in found.values()])
        return {key: self._column(table, name, read.column(name), column) for key, (name, column) in found.items()}

    def string_table(self) -> tuple[Array, pa.ChunkedArray]:
        ids, values = self._strings
        if not self._inline:
            return ids, values
        extra = np.fromiter(self._inline.values(), np.int64, len(self._inline))
        chunks = [*values.chunks, pa.array(list(self._inline), pa.binary())]
        return np.concatenate([ids, extra]), pa.chunked_array(chunks, pa.binary())

    @cached_property
    def _strings(self) -> tuple[Array, pa.ChunkedArray]:
        wanted = {"id": Column(("id",), required=True), "value": Column(("value",), "text", required=True)}
        table = self.fetch("StringIds", wanted)
        if table is None:
            return np.zeros(0, np.int64), pa.chunked_array([], pa.binary())
        return ordered_strings(table["id"], table["value"])

    def _schema(self, table: str) -> pa.Schema:
        import pyarrow.parquet as pq

        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                return pq.read_schema(file)
            with pa.memory_map(str(file)) as opened:
                return _ipc(opened).schema
        except UnicodeDecodeError as error:  # a damaged column name
            raise DamagedTable(table, f"{self.path}: {file.name} is damaged: {error}") from None

    def _read(self, table: str, columns: list[str] | None) -> pa.Table:
        """Columns of one file; a stream that was cut gives the batches before the cut, and a warning."""
        import pyarrow.parquet as pq

        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                return pq.ParquetFile(file, memory_map=True).read(columns)
            with pa.memory_map(str(file)) as opened:
                read = _ipc(opened)
                batches = read if isinstance(read, pa.RecordBatchStreamReader) else _batches(read)
                return self._table(table, read.schema, batches, columns)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DamagedTable(table, f"{self.path}: {file.name} is damaged: {error}") from None

    def _table(self, table: str, schema: pa.Schema, batches: Any, columns: list[str] | None) -> pa.Table:
        names = list(dict.fromkeys(columns if columns is not None else schema.names))
        kept: list[pa.RecordBatch] = []
        try:
            for batch in batches:
                kept.append(batch.select(names))  # noqa: PERF401 - what was read before an error is kept
        except (pa.ArrowException, OSError) as error:
            if not kept:
                raise
            rows = sum(batch.num_rows for batch in kept)
            self.partial = True
            self.warnings.append(f"{table} ends early: the first {rows} rows were read ({error})")
        fields = [schema.field(name) for name in names]
        return pa.Table.from_batches(kept, pa.schema(fields))

    def _column(self, table: str, name: str, values: pa.ChunkedArray, column: Column) -> Any:
        values = _decoded(values)
        if column.kind == "text":
            return self._text(table, name, values)
        if column.kind == "name" and _is_text(values.type):
            return self._interned(values)
        numbers = _numbers(values, column)
        if numbers is None:
            self.warnings.append(f"{table}.{name}: {len(values)} values of type {values.type} were read as absent")
            return np.full(len(values), column.null, column.dtype)
        array, lost = numbers
        array, beyond = narrow(array, column)
        if lost:
            self.warnings.append(f"{table}.{name}: {lost} values that are no integers were read as absent")
        if beyond:
            self.warnings.append(f"{table}.{name}: {beyond} values beyond 32 bits were read as absent")
        return array

    def _text(self, table: str, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_null(values.type):
            return pa.chunked_array([pa.array([b""] * len(values), pa.binary())])
        if not _is_text(values.type):
            self.warnings.append(f"{table}.{name}: {len(values)} values of type {values.type} were read as absent")
            return pa.chunked_array([pa.array([b""] * len(values), pa.binary())])
        return pc.fill_null(values.cast(pa.binary()), b"")

    def _interned(self, values: pa.ChunkedArray) -> Array:
        """Ids of our own for texts in place of ids; -1 for NULL."""
        encoded = values.cast(pa.binary()).combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        ids = np.fromiter(
            (
                self._inline.setdefault(text, _FIRST_INLINE_ID + len(self._inline))
                for text in encoded.dictionary.to_pylist()
            ),
            np.int64,
            len(encoded.dictionary),
        )
        indices = pc.fill_null(encoded.indices, -1).to_numpy()
        return np.where(indices >= 0, ids[indices] if len(ids) else -1, -1)


def _ipc(opened: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    magic = opened.read(6)
    opened.seek(0)
    return pa.ipc.open_file(opened) if magic == b"ARROW1" else pa.ipc.open_stream(opened)


def _batches(reader: pa.RecordBatchFileReader) -> Any:
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _plain(values: pa.ChunkedArray) -> list[Any]:
    """Values as Python has them: text decoded with marks for what is no UTF-8, unsigned ids as signed ones."""
    if _is_text(values.type):
        return [None if raw is None else decode(raw) for raw in values.cast(pa.binary()).to_pylist()]
    if pa.types.is_uint64(values.type):
        return [None if v is None else v - (1 << 64) if v >= 1 << 63 else v for v in values.to_pylist()]
    return list(values.to_pylist())


def _numbers(values: pa.ChunkedArray, column: Column) -> tuple[Array, int] | None:
    """(numbers with ``column.null`` for NULL, how many were no integers), None for a type that holds no numbers."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), column.null, column.dtype if column.kind == "float" else np.int64), 0
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.int8()), pa.int8()
    if pa.types.is_temporal(kind):
        values, kind = values.cast(pa.int64()), pa.int64()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    missing = pc.is_null(values).to_numpy() if values.null_count else None
    array = (pc.fill_null(values, 0) if values.null_count else values).to_numpy()
    lost = 0
    if column.kind == "float":
        array = array.astype(np.float64)
    elif pa.types.is_floating(kind):
        # Tools that have no integer with NULL write these as floats: exact up to 2^53.
        whole = np.isfinite(array) & (np.abs(np.nan_to_num(array)) <= 1 << 53)
        whole &= np.where(whole, array, 0) == np.floor(np.where(whole, array, 0))
        lost = int((~whole & ~np.isnan(array)).sum())
        array = np.where(whole, array, column.null if abs(column.null) < 1 << 53 else 0).astype(np.int64)
        missing = ~whole if missing is None else missing | ~whole
    else:
        array = array.astype(np.uint64).view(np.int64) if kind == pa.uint64() else array.astype(np.int64)
    return (array if missing is None else np.where(missing, column.null, array).astype(array.dtype)), lost
