"""Columns that batches are written into, in their final type and place: no second copy, no memory left in between."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from profkit.ingest.nsys.source import Column, narrow
from profkit.model import Array

ARROW = {"int": pa.int64(), "name": pa.int64(), "float": pa.float64(), "text": pa.binary()}
_FIRST_ROWS = 65_536


class OtherType(Exception):  # noqa: N818 - control flow, never shown
    """A column holds a value of another type than its first rows had."""


class Buffer:
    """The rows of one part of a table. ``arrays`` give it room from outside; without them it grows as it needs to."""

    def __init__(self, columns: Mapping[str, Column], arrays: Mapping[str, Array] | None = None) -> None:
        self._columns = columns
        self._may_grow = arrays is None
        self._arrays = dict(arrays) if arrays is not None else _room(columns, _FIRST_ROWS)
        self._texts: dict[str, list[pa.Array]] = {key: [] for key, column in columns.items() if column.kind == "text"}
        self._room = min((len(array) for array in self._arrays.values()), default=0)
        self.rows = 0
        self.lost: dict[str, int] = dict.fromkeys(columns, 0)
        """Values of each column that did not fit its type and became absent."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Copy a batch in. Raises OtherType for a column that came as another type."""
        end = self.rows + batch.num_rows
        if self._may_grow and end > self._room:
            self._grow(end)
        for key, column in self._columns.items():
            values = batch.column(batch.schema.get_field_index(key))
            if batch.num_rows and values.type != ARROW[column.kind]:
                raise OtherType
            if column.kind == "text":
                self._texts[key].append(values)
            else:
                part, lost = narrow(values.to_numpy(zero_copy_only=False), column)
                self._arrays[key][self.rows : end] = part
                self.lost[key] += lost
        self.rows = end

    def array(self, key: str) -> Array:
        """The rows so far of an int, name or float column."""
        return self._arrays[key][: self.rows]

    def texts(self, key: str) -> list[pa.Array]:
        return self._texts[key]

    def _grow(self, rows: int) -> None:
        self._room = max(rows, 2 * self._room)
        for key, array in self._arrays.items():
            self._arrays[key] = np.empty(self._room, array.dtype)
            self._arrays[key][: self.rows] = array[: self.rows]


def make_buffers(columns: Mapping[str, Column], most_rows: Sequence[int]) -> tuple[dict[str, Array], list[Buffer]]:
    """(whole columns, one buffer a part that lies in them) for parts of at most so many rows each."""
    whole = _room(columns, sum(most_rows))
    edges = np.cumsum([0, *most_rows]).tolist()
    views = [{key: array[low:high] for key, array in whole.items()} for low, high in itertools.pairwise(edges)]
    return whole, [Buffer(columns, view) for view in views]


def gathered(columns: Mapping[str, Column], whole: Mapping[str, Array], buffers: Sequence[Buffer]) -> dict[str, Any]:
    """The columns of all parts, one behind the other: as they lie where every part is full."""
    full = sum(buffer.rows for buffer in buffers) == len(next(iter(whole.values()), ()))
    out: dict[str, Any] = {}
    for key, column in columns.items():
        if column.kind == "text":
            out[key] = pa.chunked_array([part for buffer in buffers for part in buffer.texts(key)], pa.binary())
        elif full and key in whole:
            out[key] = whole[key]
        else:
            out[key] = np.concatenate([buffer.array(key) for buffer in buffers])
    return out


def _room(columns: Mapping[str, Column], rows: int) -> dict[str, Array]:
    """Memory that is not written to takes no place yet."""
    return {key: np.empty(rows, column.dtype) for key, column in columns.items() if column.kind != "text"}
