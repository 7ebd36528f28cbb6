"""Decimal microseconds, as the profiler writes them, to integer nanoseconds: by their digits, never as floats.

A float64 of an absolute time in microseconds has steps of 0.25 us: 100 ns between two kernels would be lost.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from profkit.model import Ints

ABSENT = -(1 << 62)
"""Stands for a time that is not there or is no number."""

_DECIMAL = pa.decimal128(38, 3)
_OPTIONS = csv.ConvertOptions(column_types={"t": _DECIMAL})
_READ = csv.ReadOptions(column_names=["t"], use_threads=False, block_size=1 << 24)
_PARSE = csv.ParseOptions(ignore_empty_lines=False)


def to_ns(raws: Sequence[msgspec.Raw]) -> Ints:
    """Nanoseconds of decimal microseconds, numbers or quoted numbers; beyond ns rounded half up; else ABSENT."""
    if not raws:
        return np.zeros(0, np.int64)
    text = b"\n".join(raws) + b"\n"
    if (exact := _three_digits(text, len(raws))) is not None:
        return exact
    try:
        column = csv.read_csv(io.BytesIO(text), _READ, _PARSE, _OPTIONS).column("t")
    except pa.ArrowInvalid:  # more digits than three, an exponent, a word
        return np.fromiter((_one(bytes(raw)) for raw in raws), np.int64, len(raws))
    parts = [_low_words(chunk) for chunk in column.chunks]
    values = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(values) != len(raws):
        return np.fromiter((_one(bytes(raw)) for raw in raws), np.int64, len(raws))
    return values


def _three_digits(text: bytes, n: int) -> Ints | None:
    """Nanoseconds where each line has a point and three digits behind it: the profiler's own form; else None."""
    content = np.frombuffer(text, np.uint8)
    dots, ends = np.flatnonzero(content == ord(".")), np.flatnonzero(content == ord("\n"))
    if len(dots) != n or len(ends) != n or not (ends - dots == 4).all():
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    others = int((content - np.uint8(ord("0")) > 9).sum())
    if others != 2 * n or not ((dots > starts) & (dots - starts < 16)).all():
        return None
    return np.fromstring(text.replace(b".", b"").decode("ascii"), np.int64, sep="\n")


def _low_words(chunk: pa.Array) -> Ints:
    """The unscaled values of a decimal array of scale 3: microseconds with three digits are nanoseconds."""
    words = np.frombuffer(chunk.buffers()[1], np.int64)[2 * chunk.offset : 2 * (chunk.offset + len(chunk))]
    low, high = words[::2], words[1::2]
    fits = (high == low >> 63) & (np.abs(low) < -ABSENT)
    return np.where(fits & ~chunk.is_null().to_numpy(zero_copy_only=False), low, ABSENT)


def _one(raw: bytes) -> int:
    try:
        value = Decimal(raw.decode("ascii", "replace").strip().strip('"'))
        value = (value * 1000).to_integral_value(ROUND_HALF_UP)
        return int(value) if abs(value) < (1 << 62) else ABSENT
    except (ArithmeticError, ValueError):
        return ABSENT
