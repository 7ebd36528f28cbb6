"""Device work: every kernel, copy and graph launch in one set of arrays, joined to the call that caused it.

A correlation id is unique within one process only, and one graph launch owns many kernels: the join is on (process,
correlation), one to many. Rows without a call stay, unattributed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profkit.arrays import first_match, pack
from profkit.model import Array, Ints, Mask, Trace, Window
from profkit.schema import COPY_KINDS, DEVICE_TABLES, NOT_WHOLE, TABLES

KERNELS, COPIES, GRAPHS = range(3)
_H2H = COPY_KINDS.index("h2h")


@dataclass(frozen=True)
class Work:
    """Device rows in order of start. Host-to-host copies are no device work and are left out.

    ``table`` indexes DEVICE_TABLES, ``row`` the row there; ``call`` is the row of ``calls`` or -1.
    """

    start: Ints
    end: Ints
    device: Array
    process: Array
    track: Array
    table: Array
    row: Ints
    call: Ints

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
    parts: dict[str, list[Array]] = {
        key: [] for key in ("start", "end", "device", "process", "track", "table", "row", "call")
    }
    track_device = trace.array("tracks", "device")
    calls = _call_keys(trace)
    for number, name in enumerate(DEVICE_TABLES):
        rows = np.arange(trace.rows(name))
        if name == "copies":
            rows = rows[trace.array("copies", "kind") != _H2H]
        if not len(rows):
            continue
        start = trace.array(name, "start_ns")[rows]
        track = trace.array(name, "track")[rows]
        process = trace.array(name, "process")[rows]
        parts["start"].append(start)
        parts["end"].append(start + trace.array(name, "dur_ns")[rows])
        parts["device"].append(track_device[track])
        parts["process"].append(process)
        parts["track"].append(track)
        parts["table"].append(np.full(len(rows), number, np.int8))
        parts["row"].append(rows)
        parts["call"].append(_calls_of(calls, process, trace.array(name, "correlation")[rows]))
    if not parts["start"]:
        return Work(*(np.zeros(0, np.int64) for _ in parts))
    work = Work(**{key: np.concatenate(values) for key, values in parts.items()})
    return work if len(parts["start"]) == 1 else work.where(np.argsort(work.start, kind="stable"))


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
    columns = [words, pa.array(work.row), pa.array(work.call), pa.array(queue)]
    return pa.Table.from_arrays(columns, schema=TABLES["launches"].schema)


def _call_keys(trace: Trace) -> tuple[Array, Array]:
    return trace.array("calls", "process"), trace.array("calls", "correlation")


def _calls_of(calls: tuple[Array, Array], process: Array, correlation: Array) -> Ints:
    call_key, key = pack([[calls[0], process], [calls[1], correlation]])
    return np.where((correlation >= 0) & (process >= 0), first_match(call_key, key), -1)


def whole(trace: Trace, table: str) -> Mask:
    """Rows that were seen from start to end."""
    mask: Mask = (trace.array(table, "flags") & NOT_WHOLE) == 0
    return mask
