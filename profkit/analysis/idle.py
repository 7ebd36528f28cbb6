"""Why a device did nothing: every idle nanosecond has one cause.

The operation that ends a gap decides, through the thread of its call. Until that call returned, the gap is cut where
the state of the thread changes (:mod:`profkit.analysis.idle_host`); after it had returned the device was late
(:mod:`profkit.analysis.idle_device`). Without a recorded call the cause is unknown. Before the first and after the last
row of a device, and where collection was off, no cause is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from profkit.analysis.busy import Runs
from profkit.analysis.idle_device import DeviceDelays, Gaps
from profkit.analysis.idle_host import HostStates
from profkit.analysis.idle_pieces import CODES, Idle, Pieces
from profkit.analysis.intervals import Intervals, StateLine, state_line, union
from profkit.analysis.spans import Ranges
from profkit.analysis.work import Work
from profkit.arrays import chunks
from profkit.model import Array, Ints, Trace, Window

CHUNK_GAPS = 1 << 19
"""So many gaps are explained at a time: what that takes stays small beside the trace."""

_Cut = tuple[Array, Ints, Ints, Array]
"""(gap, start, end, cause) of pieces."""


def find_idle(trace: Trace, work: Work, runs: Sequence[Runs], ranges: Ranges, window: Window) -> Idle:
    """Idle time of every device of ``runs`` inside the window, with its causes."""
    device = _joined([np.full(max(len(run) - 1, 0), run.owner, np.int16) for run in runs], np.int16)
    start = _joined([run.end[:-1] for run in runs], np.int64)
    end = _joined([run.start[1:] for run in runs], np.int64)
    row = _joined([run.first[1:] for run in runs], work.row.dtype)
    edges = _edges(runs, window)
    parts = [(edges.gap, edges.start, edges.end, edges.cause), *_inner(trace, work, ranges, start, end, row)]
    # Column by column: a second copy of them all would be felt.
    columns = list(map(list, zip(*parts, strict=True)))
    del parts
    gap, piece_start, piece_end, cause = (np.concatenate(columns.pop(0)) for _ in range(4))
    of_piece = np.concatenate((edges.device, device[gap[len(edges) :]]))
    return Idle(device, start, end, row, Pieces(of_piece, piece_start, piece_end, cause, gap))


def _joined(parts: list[Array], dtype: npt.DTypeLike) -> Array:
    """One after the other; a single one as it is, without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def _edges(runs: Sequence[Runs], window: Window) -> Pieces:
    """Before the first and after the last row of each device; without a row that lasts, all of it is startup."""
    found = []
    for run in runs:
        first, last = (int(run.start[0]), int(run.end[-1])) if len(run) else (window.end_ns, window.end_ns)
        found += [
            (run.owner, window.start_ns, first, CODES["startup"]),
            (run.owner, last, window.end_ns, CODES["tail"]),
        ]
    device, start, end, cause = (
        (np.asarray(column, np.int64) for column in zip(*found, strict=True)) if found else (np.zeros(0, np.int64),) * 4
    )
    keep = end > start
    none = np.full(int(keep.sum()), -1, np.int32)
    return Pieces(device[keep].astype(np.int16), start[keep], end[keep], cause[keep].astype(np.int8), none)


def _inner(trace: Trace, work: Work, ranges: Ranges, start: Ints, end: Ints, row: Array) -> Iterator[_Cut]:
    """The pieces of the gaps [start, end) that these rows of Work end, in order, some gaps at a time."""
    gaps = Gaps(start, end, row, _returned(trace, work, start, end, row))
    thread = trace.array("calls", "track")
    host, device, collection = HostStates(trace, ranges), DeviceDelays(trace, work, gaps), _collection(trace)
    for first in range(0, len(row), CHUNK_GAPS):
        number = np.arange(first, min(first + CHUNK_GAPS, len(row)), dtype=np.int32)
        until, call = gaps.until[number], work.call[row[number]]
        by_host = number[until > start[number]]
        query, host_start, host_end, cause = host.pieces(
            thread[call[by_host - first]], start[by_host], gaps.until[by_host]
        )
        orphans = number[call < 0]
        unknown = np.full(len(orphans), CODES["unknown"], np.int8)
        found: list[_Cut] = [
            (by_host[query], host_start, host_end, cause),
            device.pieces(number[(call >= 0) & (until < end[number])]),
            (orphans, start[orphans], end[orphans], unknown),
        ]
        yield _cut_off(_in_order(found), collection)


def _returned(trace: Trace, work: Work, start: Ints, end: Ints, row: Array) -> Ints:
    """When the call returned that submitted what ends each gap, inside the gap; its start without a call."""
    out = start.copy()
    call_start, call_dur = trace.array("calls", "start_ns"), trace.array("calls", "dur_ns")
    for at in chunks(len(row)):
        call = work.call[row[at]]
        known = np.flatnonzero(call >= 0)
        call = call[known]
        returned = call_start[call] + call_dur[call]
        out[at][known] = np.clip(returned, start[at][known], end[at][known])
    return out


def _in_order(parts: list[_Cut]) -> _Cut:
    """Parts of gaps in order of gap and time; those of one gap follow each other already."""
    gap, start, end, cause = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(gap, kind="stable")
    return gap[order], start[order], end[order], cause[order]


def _collection(trace: Trace) -> tuple[Intervals, StateLine]:
    """When collection was on."""
    on = union(
        np.asarray([window.start_ns for window in trace.windows], np.int64),
        np.asarray([window.end_ns for window in trace.windows], np.int64),
    )
    return on, state_line([(np.zeros(len(on), np.int8), on.start, on.end)], np.asarray([False, True]))


def _cut_off(part: _Cut, collection: tuple[Intervals, StateLine]) -> _Cut:
    """The part, with what lies outside of the windows of collection cut out as ``not_collected``."""
    gap, start, end, cause = part
    on, line = collection
    if not len(start) or not len(on):
        return part
    if len(on) == 1 and int(start.min()) >= on.start[0] and int(end.max()) <= on.end[0]:
        return part
    piece, start, end, collected = line.cut(start, end)
    return gap[piece], start, end, np.where(collected, cause[piece], np.int8(CODES["not_collected"]))
