"""Parquet: a folder with one file a table, names and codes as text in dictionaries, absent values as null."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from profkit.analysis.context import Analysis
from profkit.export import Exporter
from profkit.export._tables import write_tables


def write(analysis: Analysis, target: Path) -> None:
    """Write what is selected of a trace, zstd-compressed."""
    write_tables(analysis, target, "parquet", ".parquet", _write_table)


def _write_table(path: Path, schema: pa.Schema, pieces: Iterator[pa.Table]) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        for piece in pieces:
            writer.write_table(piece)


EXPORTER = Exporter(name="parquet", what="a folder with one Parquet file a table", is_folder=True, write=write)
