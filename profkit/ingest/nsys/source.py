"""What the table readers need of an nsys export, whatever holds its tables: SQLite, Parquet or Arrow files.

A reader asks for columns by name and kind and gets arrays of known types. Columns and tables are found by looking,
never by version number: a table may be missing, empty, or have columns that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from profkit.errors import InputError
from profkit.model import Array

NO_INT = -(1 << 63) + 1
"""Stands for NULL where -1 is a value (the lowest integer itself cannot be written as a literal in SQLite)."""


@dataclass(frozen=True)
class Column:
    """A wanted column: the first of ``names`` that the table has; absent and not ``required`` it is left out."""

    names: tuple[str, ...]
    kind: str = "int"
    """int, float, text, or name: an id of StringIds, in place of which some exports have the text itself."""
    required: bool = False
    dtype: type = np.int64
    null: int | float = -1
    """What stands for NULL in an int, name or float column."""


def ints(*names: str, required: bool = False) -> Column:
    return Column(names, "int", required)


def small(*names: str, required: bool = False) -> Column:
    """An integer that is kept as int32; values of unsigned 32 bits wrap, as CUDA's "none" and priorities need."""
    return Column(names, "int", required, np.int32)


def times(*names: str, required: bool = False) -> Column:
    """A time in ns, which may be negative: NULL becomes NO_INT."""
    return Column(names, "int", required, np.int64, NO_INT)


def payload(*names: str) -> Column:
    """An integer for which -1 is a value: NULL becomes NO_INT."""
    return Column(names, "int", False, np.int64, NO_INT)


def floats(*names: str, required: bool = False) -> Column:
    """A float; NULL becomes infinity, which no exporter writes."""
    return Column(names, "float", required, np.float64, np.inf)


def texts(*names: str, required: bool = False) -> Column:
    return Column(names, "text", required)


def name_ids(*names: str, required: bool = False) -> Column:
    """Ids for :func:`string_ids`; -1 for NULL."""
    return Column(names, "name", required)


class DamagedTable(InputError):  # noqa: N818 - read as what happened
    """One table cannot be read; the others may be sound."""

    def __init__(self, table: str, message: str) -> None:
        super().__init__(message)
        self.table = table


class MissingColumn(InputError):  # noqa: N818 - read as what happened
    """A table lacks a column without which its rows mean nothing: it may have another name in a newer schema."""


class Source(Protocol):
    """The tables of one export."""

    path: Path
    format: str
    """nsys-sqlite, nsys-parquet or nsys-arrow."""
    warnings: list[str]
    """What did not fit, and makes a number doubtful."""
    partial: bool
    """Whether rows of a table were lost."""

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of every table."""

    def has(self, table: str) -> bool: ...

    def small_table(self, *names: str) -> list[dict[str, Any]]:
        """All rows of the first of ``names`` that exists, as dictionaries; [] where none does, or where it is damaged.

        For small tables.
        """

    def fetch(self, table: str, wanted: Mapping[str, Column]) -> dict[str, Any] | None:
        """Columns of ``table`` by our name, or None where the table does not exist.

        Integers, names and floats come as numpy arrays with the column's ``null`` for NULL, texts as Arrow binary with
        b"" for NULL. A column that the table lacks is left out. Raises InputError for a required column that is
        missing, DamagedTable for a table that cannot be read.
        """

    def string_table(self) -> tuple[Array, pa.ChunkedArray]:
        """(ids in order, values) of StringIds and of the texts that stood in place of ids."""


def leave_out(source: Source, error: DamagedTable) -> None:
    """Go on without a table about the capture: said once, and the trace is partial."""
    source.partial = True
    warning = f"{error.message}: not read"
    if warning not in source.warnings:
        source.warnings.append(warning)


def find_columns(
    path: Path, table: str, has: Sequence[str], wanted: Mapping[str, Column]
) -> dict[str, tuple[str, Column]]:
    """The table's own name of each wanted column; raises MissingColumn for a required one."""
    found = {}
    for key, column in wanted.items():
        name = next((n for n in column.names if n in has), None)
        if name is not None:
            found[key] = (name, column)
        elif column.required:
            raise MissingColumn(
                f"{path}: {table}.{column.names[0]} is missing; it has {', '.join(has)}; "
                "export the report again with a current nsys"
            )
    return found


def narrow(values: Array, column: Column) -> tuple[Array, int]:
    """(values in the column's type, how many of them do not fit and became absent)."""
    if column.dtype is not np.int32:
        return values.astype(column.dtype, copy=False), 0
    lost = 0
    if len(values) and (int(values.min()) < -(1 << 31) or int(values.max()) >= 1 << 32):
        fits = (values >= -(1 << 31)) & (values < 1 << 32)
        lost = int((~fits).sum())
        values = np.where(fits, values, -1)
    return values.astype(np.uint32).view(np.int32), lost


def decode(raw: bytes) -> str:
    """Text of an export: bytes that are no UTF-8 are replaced, never fatal."""
    return raw.decode("utf-8", "replace")


def decoded(values: pa.Array | pa.ChunkedArray) -> list[str]:
    """Binary values as text, none of them NULL; fast where all are UTF-8."""
    try:
        return list(values.cast(pa.string()).to_numpy(zero_copy_only=False).tolist())
    except pa.ArrowInvalid:
        return [decode(raw) for raw in values.to_pylist()]


def string_ids(source: Source, wanted: Sequence[Array]) -> dict[int, str]:
    """Texts of the ids that events use. Only those: StringIds also holds whole environments of processes."""
    used = np.unique(np.concatenate([np.unique(ids) for ids in wanted])) if wanted else np.zeros(0, np.int64)
    used = used[used != -1]
    if not len(used):
        return {}
    ids, values = source.string_table()
    at = np.searchsorted(ids, used)
    known = at < len(ids)
    known[known] = ids[at[known]] == used[known]
    out = dict(zip(used[known].tolist(), decoded(values.take(pa.array(at[known]))), strict=True))
    out |= {i: f"<unknown #{i}>" for i in used[~known].tolist()}
    return out


def ordered_strings(ids: Array, values: pa.ChunkedArray) -> tuple[Array, pa.ChunkedArray]:
    """The table of strings in order of id, as :func:`string_ids` searches it."""
    if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
        return ids, values
    order = np.argsort(ids, kind="stable")
    return ids[order], values.take(pa.array(order))
