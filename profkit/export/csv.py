"""CSV: a folder with one file a table (RFC 4180, UTF-8), names and codes as text, absent values as empty cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from profkit.analysis.context import Analysis
from profkit.export import Exporter
from profkit.export._tables import write_tables


def write(analysis: Analysis, target: Path) -> None:
    """Write what is selected of a trace. Texts are quoted where they must be; lines end with a line feed."""
    write_tables(analysis, target, "csv", ".csv", _write_table)


def _write_table(path: Path, schema: pa.Schema, pieces: Iterator[pa.Table]) -> None:
    from pyarrow import csv

    plain = pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])
    with csv.CSVWriter(str(path), plain, write_options=csv.WriteOptions(quoting_style="needed")) as writer:
        for piece in pieces:
            writer.write_table(piece.cast(plain))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


EXPORTER = Exporter(name="csv", what="a folder with one CSV file a table", is_folder=True, write=write)
