"""SQL over a trace: DuckDB on the Arrow tables where they are, without a file, a network or a way to write.

Tables have their names of the schema. They are decoded (:mod:`profkit.decoded`): names and codes are text, absent is
NULL, event tables have ``end_ns`` too, dimensions their row number as ``id``. The tables as they are stored, without a
copy and with -1 for absent, are in the schema ``raw``. A derived table is made when a query names it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from profkit import decoded, text
from profkit.errors import MissingExtra, ProfkitError, UsageError
from profkit.model import Trace
from profkit.schema import PAYLOAD_KINDS, TABLES, Column, Table

if TYPE_CHECKING:
    import duckdb

DEFAULT_LIMIT = 1_000
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_MEMORY = "4GB"
_ALLOWED = ("SELECT", "EXPLAIN")
_LOCKED = {
    "python_enable_replacements": "false",  # variables of this program are no tables
    "temp_directory": "''",  # nothing is spilled to a disk
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",  # last: nothing can be set after it
}
_SQL_TYPES = {
    pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Rows of a query, at most the limit; ``cut`` says whether there were more."""

    table: pa.Table
    cut: bool


@dataclass(frozen=True)
class Described:
    """One column as ``--schema`` prints it; ``type`` is DuckDB's."""

    table: str
    column: str
    type: str
    unit: str
    doc: str


def query(
    trace: Trace,
    sql: str,
    derived: Callable[[str], pa.Table] | None = None,
    *,
    limit: int = DEFAULT_LIMIT,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory: str = DEFAULT_MEMORY,
) -> Answer:
    """The rows of one SELECT over a trace; ``limit`` 0 is all of them. ``derived`` makes a derived table by its name.

    Raises MissingExtra without duckdb; ProfkitError, in one line, for what is no single SELECT, for what DuckDB
    refuses, and for a query that takes longer than ``timeout_s`` or more than ``memory``.
    """
    with _connection() as con, _errors_of_duckdb(timeout_s):
        _set(con, "memory_limit", f"'{_checked_memory(memory)}'")
        con.execute("CREATE SCHEMA raw")
        names = decoded.name_texts(trace)
        for name, table in trace.tables.items():
            _register(con, name, table, names)
        if derived is not None:
            for name in _derived_names(sql):
                _register(con, name, derived(name), names)
        for key, value in _LOCKED.items():
            _set(con, key, value)
        with _interrupted_after(con, timeout_s):
            statements = con.extract_statements(sql)
            if len(statements) != 1 or statements[0].type.name not in _ALLOWED:
                raise ProfkitError("profkit sql takes one SELECT (or EXPLAIN, DESCRIBE, SUMMARIZE, SHOW TABLES)")
            return _rows(con.sql(sql), limit)


def describe() -> Iterator[Described]:
    """Every column that a query can name, in the order of the schema, as it is outside of ``raw``."""
    for name, table in TABLES.items():
        if decoded.has_row_numbers(table):
            yield Described(name, "id", "BIGINT", "", "Row number: what other tables refer to.")
        for column in table.columns:
            unit = "" if decoded.is_word(column) else column.unit
            words = f" One of: {', '.join(column.labels)}." if column.labels else ""
            yield Described(name, column.name, _sql_type(column), unit, column.doc + words)
        if table.kind == "event":
            yield Described(name, "end_ns", "BIGINT", "ns", "start_ns + dur_ns.")


def _derived_names(sql: str) -> list[str]:
    """Derived tables whose names stand in a query, as words: one too many costs time, no more."""
    said = set(re.findall(r"\w+", sql.lower()))
    return [name for name, table in TABLES.items() if table.kind == "derived" and name in said]


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("profkit sql", "sql") from None
    con = duckdb.connect(":memory:")
    try:
        yield con
    finally:
        con.close()


@contextmanager
def _errors_of_duckdb(timeout_s: float) -> Iterator[None]:
    """DuckDB's errors as one line, without the picture of where in the query it was."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise ProfkitError(f"the query took longer than {timeout_s:g} s: ask for less, or raise --timeout") from None
    except duckdb.Error as error:
        message = re.split(r"\n+LINE \d+:", str(error))[0]
        raise ProfkitError(f"SQL: {text.clip(message, 1_000)}") from None


@contextmanager
def _interrupted_after(con: duckdb.DuckDBPyConnection, timeout_s: float) -> Iterator[None]:
    timer = threading.Timer(timeout_s, con.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _set(con: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    con.execute(f"SET {key} = {value}")


def _checked_memory(memory: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?\s*[kKmMgGtT]i?[bB]", memory):
        raise UsageError(f"--memory takes a size such as 512MB or 8GB, not {memory!r}")
    return memory


def _register(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table, names: pa.Array) -> None:
    """A table as two views: decoded under its name, and as it is in ``raw``. Numbers are not copied."""
    schema = TABLES[name]
    plain = table
    if decoded.has_row_numbers(schema):
        plain = table.add_column(0, "id", pa.array(np.arange(table.num_rows, dtype=np.int64)))
    shown = plain
    for column in schema.columns:
        if decoded.is_word(column):
            at = shown.column_names.index(column.name)
            shown = shown.set_column(at, column.name, decoded.words(column, table.column(column.name), names))
    con.register(f"_raw_{name}", plain)
    con.register(f"_shown_{name}", shown)
    con.execute(f'CREATE VIEW raw."{name}" AS SELECT * FROM "_raw_{name}"')
    con.execute(f'CREATE VIEW "{name}" AS SELECT {", ".join(_shown_columns(schema))} FROM "_shown_{name}"')


def _shown_columns(schema: Table) -> Iterator[str]:
    """The columns of a decoded view, absent as NULL."""
    if decoded.has_row_numbers(schema):
        yield "id"
    for column in schema.columns:
        quoted = f'"{column.name}"'
        if decoded.is_word(column):
            yield quoted
        elif column.name in decoded.GUARDS:
            guard, value = decoded.GUARDS[column.name]
            held = f"\"{guard}\" = '{PAYLOAD_KINDS[value]}'" if guard == "payload_kind" else f'"{guard}"'
            yield f"CASE WHEN {held} THEN {quoted} END AS {quoted}"
        elif column.type == pa.string():
            yield f"nullif({quoted}, '') AS {quoted}"
        elif decoded.may_be_absent(column):
            yield f"nullif({quoted}, -1) AS {quoted}"
        else:
            yield quoted
    if schema.kind == "event":
        yield "start_ns + dur_ns AS end_ns"


def _sql_type(column: Column) -> str:
    return "VARCHAR" if decoded.is_word(column) else _SQL_TYPES[column.type]


def _rows(result: duckdb.DuckDBPyRelation, limit: int) -> Answer:
    """At most ``limit`` rows: one more is asked for, and nothing behind it is computed."""
    table = (result.limit(limit + 1) if limit else result).to_arrow_table()
    return Answer(table.slice(0, limit), True) if limit and table.num_rows > limit else Answer(table, False)
