"""Listings as text: a table for people, CSV and TSV, strict JSON. Written piece by piece, at most BATCH_ROWS in memory.

Cells are made for distinct values where a value is not a plain integer, so that cost follows the distinct texts and not
the rows. Half a unit of the last digit is rounded away from zero, on the number as binary floating point holds it: that
is how nsys rounds (86953.25 is 86953.3; 841.15, which no double holds, is 841.1).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profkit.stats import Answer, Column, Listing

BATCH_ROWS = 65_536
MAX_RULE = 100
"""Dashes under a heading, at most: a name may have thousands of characters."""
EXACT_IN_JSON = 1 << 53
"""Larger integers are texts in JSON: most of its readers keep numbers as doubles."""

_DIGITS = Context(prec=60)
_BREAKS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ONE_LINE = {code: chr(code).encode("unicode_escape").decode("ascii") for code in _BREAKS}


@dataclass(frozen=True)
class _Style:
    """How a format writes a text, a number that is no plain integer, and an absent value."""

    text: Callable[[str], str]
    number: Callable[[Column, float], str]
    absent: Callable[[Column], str]
    base_units: bool = False
    """Integers as they are, in base units, instead of divided and rounded."""


def rounded(column: Column, value: float) -> str:
    """A value in the printed unit with the column's digits."""
    exact = Decimal(value / column.divisor)
    return str(exact.quantize(Decimal(1).scaleb(-column.decimals), ROUND_HALF_UP, _DIGITS))


def one_line(text: str) -> str:
    """A text without line breaks and control characters: they are written as escapes, so that a row stays a row."""
    return text.translate(_ONE_LINE)


def as_table(title: str, listing: Listing) -> Iterator[str]:
    """The title, aligned columns, and a blank line at the end."""
    style = _Style(one_line, rounded, lambda column: "")
    arrays = _prepared(listing, style)
    last = len(arrays) - 1
    widths = [_width(column, values) for column, values in zip(listing.columns, arrays, strict=True)]
    is_text = [_is_text(values) for values in arrays]

    def padded(index: int, cell: str) -> str:
        if index == last:
            return cell
        return cell.ljust(widths[index]) if is_text[index] else cell.rjust(widths[index])

    yield f" ** {title}:\n\n"
    yield " " + "  ".join(padded(i, column.title) for i, column in enumerate(listing.columns)) + "\n"
    yield " " + "  ".join("-" * min(width, MAX_RULE) if i == last else "-" * width for i, width in enumerate(widths))
    yield "\n"
    for cells in _batches(listing, arrays, style):
        lines = [
            values if i == last else (pc.utf8_rpad if is_text[i] else pc.utf8_lpad)(values, widths[i])
            for i, values in enumerate(cells)
        ]
        lines[0] = pc.binary_join_element_wise(" ", lines[0], "")
        yield from _lines(lines, "  ")
    yield "\n"


def as_delimited(listing: Listing, delimiter: str) -> Iterator[str]:
    """A heading and one line a row; a text is quoted only where it must be."""
    style = _Style(lambda text: _field(one_line(text), delimiter), rounded, lambda column: column.absent)
    arrays = _prepared(listing, style)
    yield delimiter.join(_field(column.title, delimiter) for column in listing.columns) + "\n"
    for cells in _batches(listing, arrays, style):
        yield from _lines(cells, delimiter)


def as_json(answers: Iterable[Answer], version: str) -> Iterator[str]:
    """One JSON document of all reports that have data: numbers in base units and not rounded, names whole."""
    yield f'{{"schema": "profkit.stats/1", "profkit_version": {json.dumps(version)}, "reports": ['
    separator = "\n"
    for answer in answers:
        if answer.listing is None:
            continue
        head = {"report": answer.name, "title": answer.report.title, "remarks": list(answer.listing.remarks)}
        yield f'{separator}{json.dumps(head)[:-1]}, "rows": ['
        yield from _json_rows(answer.listing)
        yield "\n]}"
        separator = ",\n"
    yield "\n]}\n"


def _json_rows(listing: Listing) -> Iterator[str]:
    style = _Style(json.dumps, lambda column, value: repr(value), lambda column: "null", base_units=True)
    arrays = _prepared(listing, style)
    keys = [json.dumps(column.key) + ": " for column in listing.columns]
    separator = "\n"
    for cells in _batches(listing, arrays, style):
        fields = [pc.binary_join_element_wise(key, values, "") for key, values in zip(keys, cells, strict=True)]
        rows = pc.binary_join_element_wise(*fields, ", ")
        yield separator + ",\n".join(f"{{{row}}}" for row in rows.to_pylist())
        separator = ",\n"


def _prepared(listing: Listing, style: _Style) -> list[Any]:
    """Columns with their distinct texts already written as cells."""
    return [
        pa.DictionaryArray.from_arrays(values.indices, _strings(style.text(t) for t in values.dictionary.to_pylist()))
        if pa.types.is_dictionary(values.type)
        else values
        for values in listing.values
    ]


def _batches(listing: Listing, arrays: list[Any], style: _Style) -> Iterator[list[Any]]:
    """Cells of up to BATCH_ROWS rows at a time, one Arrow string array a column."""
    for low in range(0, listing.rows, BATCH_ROWS):
        yield [
            _cells(column, values.slice(low, BATCH_ROWS), style)
            for column, values in zip(listing.columns, arrays, strict=True)
        ]


def _is_text(values: Any) -> bool:
    return bool(pa.types.is_dictionary(values.type) or pa.types.is_large_string(values.type))


def _cells(column: Column, values: Any, style: _Style) -> Any:
    if pa.types.is_dictionary(values.type):
        cells = values.dictionary.take(values.indices)
    elif pa.types.is_large_string(values.type):
        cells = _strings(None if text is None else style.text(text) for text in values.to_pylist())
    elif pa.types.is_integer(values.type) and (style.base_units or not column.decimals):
        cells = _json_integers(values) if style.base_units else values.cast(pa.string())
    else:
        distinct = values.dictionary_encode()
        cells = _strings(style.number(column, v) for v in distinct.dictionary.to_pylist()).take(distinct.indices)
    return pc.fill_null(cells, style.absent(column))


def _json_integers(values: Any) -> Any:
    cells = values.cast(pa.string())
    if not pc.any(pc.greater(values, EXACT_IN_JSON)).as_py():
        return cells
    return pc.if_else(pc.greater(values, EXACT_IN_JSON), pc.binary_join_element_wise('"', cells, '"', ""), cells)


def _strings(texts: Iterable[str | None]) -> Any:
    return pa.array(list(texts), pa.string())


def _lines(columns: list[Any], separator: str) -> Iterator[str]:
    yield "\n".join(pc.binary_join_element_wise(*columns, separator).to_pylist()) + "\n"


def _field(text: str, delimiter: str) -> str:
    """A text as a field of a delimited line."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow([text])
    return out.getvalue() if text else ""


def _width(column: Column, values: Any) -> int:
    """Characters of the widest cell: the largest number is the longest, for none is negative."""
    if _is_text(values):
        distinct = values.dictionary if pa.types.is_dictionary(values.type) else values
        cell = pc.max(pc.utf8_length(distinct)).as_py() or 0
    else:
        largest = pc.max(values).as_py()
        plain = pa.types.is_integer(values.type) and not column.decimals
        cell = 0 if largest is None else len(str(largest) if plain else rounded(column, largest))
    return max(cell, len(column.title))
