"""Tables as a person reads them: names and codes as words, absent values as null, dimensions with their row number.

The same rules serve CSV and Parquet exports and SQL. Absent is -1 in an integer column whose sentence in the schema
says so, and "" in a text; the few columns in which another one says whether they hold a value are named in GUARDS.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.model import Trace
from profkit.schema import PAYLOAD_KINDS, TABLES, Column, Table

ROW_OF_NAMES = "row of names"
GUARDS = {
    "stream_priority": ("stream_priority_known", True),
    "payload_int": ("payload_kind", PAYLOAD_KINDS.index("int")),
    "payload_float": ("payload_kind", PAYLOAD_KINDS.index("float")),
}
"""Column -> (the column that says whether it holds a value, what that one is then)."""


def has_row_numbers(table: Table) -> bool:
    """Whether ``id`` is put before the columns: rows of these tables are referred to, and carry no number."""
    return "id" not in {column.name for column in table.columns}


def is_word(column: Column) -> bool:
    """Whether a column holds numbers that stand for texts."""
    return bool(column.labels) or column.unit == ROW_OF_NAMES


def may_be_absent(column: Column) -> bool:
    """Whether -1 means absent, as the column's sentence says."""
    return pa.types.is_integer(column.type) and column.name not in GUARDS and "-1" in column.doc


def name_texts(trace: Trace) -> pa.Array:
    """Texts of ``names`` as one array."""
    column = trace.tables["names"].column("text")
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def decode(name: str, rows: pa.Table, names: pa.Array, first: int = 0) -> pa.Table:
    """Rows of a table, decoded; ``first`` is the number of the first row, ``names`` are from :func:`name_texts`."""
    schema = TABLES[name]
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    if has_row_numbers(schema):
        columns["id"] = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    for column in schema.columns:
        values = rows.column(column.name)
        if is_word(column):
            columns[column.name] = words(column, values, names)
        elif column.name in GUARDS:
            guard, value = GUARDS[column.name]
            held = pc.equal(rows.column(guard), pa.scalar(value, schema.column(guard).type))
            columns[column.name] = pc.if_else(held, values, pa.scalar(None, values.type))
        elif column.type == pa.string():
            columns[column.name] = _nulls(values, "")
        elif may_be_absent(column):
            columns[column.name] = _nulls(values, -1)
        else:
            columns[column.name] = values
    return pa.table(columns)


def words(column: Column, values: pa.ChunkedArray, names: pa.Array) -> pa.Array:
    """A column of codes or of rows of ``names`` as texts of a dictionary, null for -1; the numbers are not copied."""
    codes = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    texts = pa.array(column.labels, pa.string()) if column.labels else names
    if len(codes) and pc.min(codes).as_py() < 0:
        codes = _nulls(codes, -1)
    return pa.DictionaryArray.from_arrays(codes, texts)


def _nulls(values: pa.Array, absent: str | int) -> pa.Array:
    return pc.if_else(pc.equal(values, pa.scalar(absent, values.type)), pa.scalar(None, values.type), values)
