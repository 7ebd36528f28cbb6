"""Columns to lines of JSON, without a Python object a row: Arrow joins the pieces of all rows at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.model import Array, Ints

Piece: TypeAlias = str | pa.Array
"""A part of a line: the same for all rows, or one text a row."""

_DIGITS = pa.array([f".{number:03d}" for number in range(1000)], pa.string())


def lines(pieces: Iterable[Piece], rows: int) -> memoryview | bytes:
    """The bytes of all rows, one after the other; each row is its pieces in order."""
    parts = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    if not rows:
        return b""
    joined = pc.binary_join_element_wise(*parts, "")
    if isinstance(joined, pa.StringScalar):
        return str(joined).encode() * rows
    offsets = np.frombuffer(joined.buffers()[1], np.int32)
    return memoryview(joined.buffers()[2])[offsets[joined.offset] : offsets[joined.offset + rows]]


def microseconds(ns: Ints) -> pa.Array:
    """Times as decimal microseconds with three digits: every nanosecond, and no float on the way."""
    size = np.abs(ns)
    sign = pc.if_else(pa.array(ns < 0), "-", "")
    whole = pa.array(size // 1000).cast(pa.string())
    return pc.binary_join_element_wise(sign, whole, _DIGITS.take(pa.array(size % 1000)), "")


def numbers(values: Array) -> pa.Array:
    """Integers as digits."""
    return pa.array(values).cast(pa.string())


def known(key: str, values: Array, absent: int = -1) -> pa.Array:
    """``,"key":value`` where there is a value, nothing where it is absent."""
    text = pc.binary_join_element_wise(f',"{key}":', numbers(values), "")
    return pc.if_else(pa.array(values == absent), "", text)


def quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON strings, in ASCII: whatever they hold is data."""
    encoded = texts.dictionary_encode()
    words = pa.array([json.dumps(word) for word in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)
