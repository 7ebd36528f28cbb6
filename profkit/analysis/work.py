"""Device work: every kernel, copy and graph launch in one set of arrays, joined to the call that caused it.

A correlation id is unique within one process only, and one graph launch owns many kernels: the join is on (process,
correlation), one to many. Rows without a call stay, unattributed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profkit.arrays import first_match, index_type, pack
from profkit.model import Array, Ints, Mask, Trace, Window
from profkit.schema import COPY_KINDS, DEVICE_TABLES, NOT_WHOLE, TABLES

KERNELS, COPIES, GRAPHS = range(3)
_H2H = COPY_KINDS.index("h2h")


@dataclass(frozen=True)
class Work:
    """Device rows in order of start. Host-to-host copies are no device work and are left out.

    ``table`` indexes DEVICE_TABLES, ``row`` the row there; ``call`` is the row of ``calls`` or -1. Both are int32 where
    that numbers all rows.
    """

    start: Ints
    end: Ints
    device: Array
    process: Array
    track: Array
    table: Array
    row: Array
    call: Array

    def __len__(self) -> int:
        return len(self.start)

    def where(self, keep: Mask | Ints) -> Work:
        return Work(
            self.start[keep],
            self.end[keep],
            self.device[keep],
            self.process[keep],
            self.track[keep],
            self.table[keep],
            self.row[keep],
            self.call[keep],
        )

    @property
    def window(self) -> Window | None:
        """First start to last end over all devices; None without rows."""
        return Window(int(self.start[0]), int(self.end.max())) if len(self) else None


def device_work(trace: Trace) -> Work:
    """All device rows of a trace, in order of start."""
    kept = {name: _device_rows(trace, name) for name in DEVICE_TABLES}
    kept = {name: (rows, count) for name, (rows, count) in kept.items() if count}
    n = sum(count for _, count in kept.values())
    number = index_type(n, trace.rows("calls"), *(trace.rows(name) for name in DEVICE_TABLES))
    place = _places([trace.array(name, "start_ns")[rows] for name, (rows, _) in kept.items()])
    work = Work(
        start=np.empty(n, np.int64),
        end=np.empty(n, np.int64),
        device=np.empty(n, np.int32),
        process=np.empty(n, np.int32),
        track=np.empty(n, np.int32),
        table=np.empty(n, np.int8),
        row=np.empty(n, number),
        call=np.empty(n, number),
    )
    # Column by column into its place: with 10 million rows a second copy of them all would be felt.
    done = 0
    for name, (rows, count) in kept.items():
        at = place[done : done + count] if place is not None else slice(None)
        done += count
        start, track, process = (trace.array(name, column)[rows] for column in ("start_ns", "track", "process"))
        work.start[at] = start
        work.end[at] = start + trace.array(name, "dur_ns")[rows]
        work.track[at] = track
        work.device[at] = trace.array("tracks", "device")[track]
        work.process[at] = process
        work.table[at] = DEVICE_TABLES.index(name)
        work.row[at] = np.arange(count, dtype=number) if isinstance(rows, slice) else rows
        work.call[at] = correlated(trace, "calls", process, trace.array(name, "correlation")[rows])
    return work


def _device_rows(trace: Trace, table: str) -> tuple[Ints | slice, int]:
    """(rows of a table that are work of a device, how many)."""
    is_work = trace.array(table, "kind") != _H2H if table == "copies" else None
    if is_work is None or is_work.all():
        return slice(None), trace.rows(table)
    rows = np.flatnonzero(is_work)
    return rows, len(rows)


def _places(starts: list[Ints]) -> Ints | None:
    """Where each row of the tables goes in the order of all starts; None for one table, which is in order."""
    if len(starts) < 2:
        return None
    order = np.argsort(np.concatenate(starts), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def clip_work(work: Work, window: Window) -> tuple[Work, Ints]:
    """(the part of the work inside a window, its positions in the whole); rows that reach over an edge are cut."""
    start, end = np.maximum(work.start, window.start_ns), np.minimum(work.end, window.end_ns)
    keep = np.flatnonzero((end > start) | ((work.start == work.end) & (start == end)))
    cut = work.where(keep)
    clipped = Work(start[keep], end[keep], cut.device, cut.process, cut.track, cut.table, cut.row, cut.call)
    return clipped, keep


def launches_table(trace: Trace, work: Work) -> pa.Table:
    """The derived table ``launches``."""
    call_end = trace.array("calls", "start_ns") + trace.array("calls", "dur_ns")
    queue = np.where(work.call >= 0, work.start - (call_end[work.call] if len(call_end) else 0), 0)
    words = pa.DictionaryArray.from_arrays(pa.array(work.table), pa.array(DEVICE_TABLES)).cast(pa.string())
    columns = [words, *(pa.array(column.astype(np.int64)) for column in (work.row, work.call, queue))]
    return pa.Table.from_arrays(columns, schema=TABLES["launches"].schema)


def correlated(trace: Trace, table: str, process: Array, correlation: Array) -> Ints:
    """The first row of ``table`` for each (process, correlation), -1 where none was recorded."""
    keys, wanted = pack([[trace.array(table, "process"), process], [trace.array(table, "correlation"), correlation]])
    found = first_match(keys, wanted)
    found[(correlation < 0) | (process < 0)] = -1
    return found


def submitted_at(trace: Trace, table: str, rows: Ints | slice = slice(None)) -> Ints:
    """Start of the call of each of these rows, ns; their own start where the call was not recorded."""
    process, correlation, own = (trace.array(table, name)[rows] for name in ("process", "correlation", "start_ns"))
    if not trace.rows("calls"):
        return own
    call = correlated(trace, "calls", process, correlation)
    return np.where(call >= 0, trace.array("calls", "start_ns")[call], own)


def whole(trace: Trace, table: str) -> Mask:
    """Rows that were seen from start to end."""
    mask: Mask = (trace.array(table, "flags") & NOT_WHOLE) == 0
    return mask
