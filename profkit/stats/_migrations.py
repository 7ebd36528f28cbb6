"""Unified-memory migrations: what um_sum and um_total_sum list of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import COPY_KINDS

NO_FAULTS = "page faults are not part of a trace: their columns are empty"
_HTOD, _DTOH = COPY_KINDS.index("um_h2d"), COPY_KINDS.index("um_d2h")


@dataclass(frozen=True)
class Migrations:
    """Migrations between host and device."""

    address: Ints
    """Virtual base address, -1 where none was recorded."""
    dur: Ints
    bytes: Ints
    to_device: Mask


def migrations(trace: Trace) -> Migrations:
    kind = trace.array("copies", "kind")
    rows = np.flatnonzero((kind == _HTOD) | (kind == _DTOH))
    address, dur, num_bytes = (trace.array("copies", name)[rows] for name in ("address", "dur_ns", "bytes"))
    return Migrations(address, dur, num_bytes, kind[rows] == _HTOD)


def hexadecimal(address: int) -> str:
    """An address as nsys prints it, "" for -1."""
    return "" if address == -1 else f"0x{address % (1 << 64):X}"


def moved(found: Migrations, codes: Array, groups: int, to_device: bool) -> tuple[Ints, Mask]:
    """(bytes moved in one direction, whether nothing was) for each group."""
    rows = (found.to_device == to_device) & (found.bytes >= 0)
    total = np.zeros(groups, np.int64)
    np.add.at(total, codes[rows], found.bytes[rows])
    return total, np.bincount(codes[rows], minlength=groups) == 0
