"""Rows of an event table with sound times: start, length and flags, whatever the source wrote for "no end"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from profkit.ingest.nsys.source import Column, Source, times
from profkit.schema import FLAG_OPEN_END, FLAG_REPAIRED

TIMES = {"start": times("start", required=True), "end": times("end", required=True)}
POINT = {"start": times("start", "timestamp", required=True)}

LATEST_NS = 1 << 62
"""Far beyond any clock (as UTC: the year 2116): such a time is damage, and would overflow in sums."""


def event_rows(source: Source, table: str, wanted: Mapping[str, Column]) -> dict[str, Any] | None:
    """Columns of ``table`` with ``start``, ``dur`` (-1: not seen to end) and ``flags`` in place of start and end.

    Rows without a start, or with a time that no clock shows, are left out and said. A row that ends before it starts
    keeps its start and has no length. None where the table is missing or holds no row.
    """
    rows = source.fetch(table, wanted)
    if rows is None or not len(rows["start"]):
        return None
    start, end = rows["start"], rows.setdefault("end", rows["start"])
    if int(start.min()) <= -LATEST_NS or max(int(start.max()), int(end.max())) >= LATEST_NS:
        sound = (start > -LATEST_NS) & (start < LATEST_NS) & (end < LATEST_NS)
        rows = keep_rows(rows, sound)
        source.warnings.append(f"{table}: {int((~sound).sum())} rows without a possible time were left out")
    start, end = rows["start"], rows.pop("end")
    # NULL in current exports; those that know no NULL write 0, and so do graph rows of a capture that was cut.
    is_open = (end <= -LATEST_NS) | ((end == 0) & (start > 0))
    dur = np.subtract(end, start, out=end if end is not start else None)
    dur[is_open] = -1
    flags = np.zeros(len(start), np.int32)
    backwards = (dur < 0) & ~is_open
    if backwards.any():
        source.warnings.append(
            f"{table}: {int(backwards.sum())} rows end before they start (a clock that jumped): kept without a length"
        )
        dur[backwards] = 0
        flags[backwards] = FLAG_REPAIRED | FLAG_OPEN_END
    rows |= {"dur": dur, "flags": flags}
    return rows if len(start) else None


def keep_rows(rows: Mapping[str, Any], keep: Any) -> dict[str, Any]:
    """The rows of every column that ``keep``, a mask, holds."""
    at = pa.array(np.flatnonzero(keep))
    return {
        key: values.take(at) if isinstance(values, pa.Array | pa.ChunkedArray) else values[keep]
        for key, values in rows.items()
    }


def time_columns(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that every event table of a Trace has."""
    return {"start_ns": rows["start"], "dur_ns": rows["dur"], "flags": rows["flags"]}


def absent(rows: Mapping[str, Any], value: int = -1) -> Any:
    """A column of ``value`` as long as the rows."""
    return np.full(len(rows["start"]), value, np.int64)
