"""Answers of ``profkit sql`` as text: a table for a person, CSV, strict JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from profkit import text
from profkit.schema import TABLES
from profkit.show import document, to_json
from profkit.sql import Answer, Described

_WIDEST = 60


def as_table(answer: Answer) -> Iterator[str]:
    """Aligned columns: numbers to the right, long texts cut; NULL is an empty cell."""
    table = answer.table
    right = [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in table.schema.types]
    head = [text.clip(text.printable(name), _WIDEST) for name in table.column_names]
    cells = [head, *([text.clip(text.printable(_word(v)), _WIDEST) for v in row] for row in _rows(table))]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    for row in cells:
        aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        yield "  ".join(aligned).rstrip() + "\n"


def as_csv(answer: Answer) -> Iterator[str]:
    """RFC 4180 with a head; NULL is empty, as is an empty text."""
    for row in (answer.table.column_names, *_rows(answer.table)):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_word(value) for value in row])
        yield line.getvalue()


def as_json(answer: Answer) -> str:
    """Schema profkit.sql/1: names and Arrow types of the columns, rows as lists, whether the limit cut them."""
    table = answer.table
    content = {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "rows": [[_plain(value) for value in row] for row in _rows(table)],
        "cut": answer.cut,
    }
    return to_json(document("sql", content))


def schema_as_table(columns: Sequence[Described]) -> Iterator[str]:
    """Every table and column, one a line."""
    widths = [max(len(w) for w in words) for words in zip(*((c.column, c.type, c.unit) for c in columns), strict=True)]
    last = ""
    for column in columns:
        if column.table != last:
            yield ("\n" if last else "") + f"{column.table}: {TABLES[column.table].doc}\n"
            last = column.table
        cells = (column.column, column.type, column.unit)
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + f"  {column.doc}\n"


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _plain(value: Any) -> Any:
    """What JSON has; sums of integers are decimals without a fraction in DuckDB, and integers here."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and not _fraction(value) else float(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _fraction(value: Decimal) -> bool:
    """Whether a decimal has digits behind the point, zeros included."""
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < 0


def _word(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(_plain(value))


def schema_as_json(columns: Sequence[Described]) -> str:
    """The same as data, in schema profkit.sql/1."""
    return to_json(document("sql", {"schema_columns": list(columns)}))


def schema_as_csv(columns: Sequence[Described]) -> str:
    """The same as CSV: table, column, type, unit, doc."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "column", "type", "unit", "doc"])
    writer.writerows([c.table, c.column, c.type, c.unit, c.doc] for c in columns)
    return out.getvalue()
