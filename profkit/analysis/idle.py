"""Why a device did nothing: every idle nanosecond has one cause.

The operation that ends a gap decides, through the thread of its call. Until that call returned, the gap is cut where
the state of the thread changes (:mod:`profkit.analysis.idle_host`); after it had returned the device was late
(:mod:`profkit.analysis.idle_device`). Without a recorded call the cause is unknown. Before the first and after the last
row of a device, and where collection was off, no cause is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.analysis.busy import Runs
from profkit.analysis.idle_device import Held, device_pieces
from profkit.analysis.idle_host import host_pieces
from profkit.analysis.idle_pieces import CODES, Idle, Pieces
from profkit.analysis.intervals import Intervals, StateLine, state_line, union
from profkit.analysis.spans import Ranges
from profkit.analysis.work import Work
from profkit.model import Array, Ints, Trace, Window

_Cut = tuple[Ints, Ints, Ints, Array]
"""(gap, start, end, cause) of pieces."""


def find_idle(trace: Trace, work: Work, runs: Sequence[Runs], ranges: Ranges, window: Window) -> Idle:
    """Idle time of every device of ``runs`` inside the window, with its causes."""
    number = work.row.dtype
    device = np.concatenate([np.zeros(0, np.int32), *(np.full(len(r) - 1, r.device, np.int32) for r in runs if len(r))])
    start = np.concatenate([np.zeros(0, np.int64), *(run.end[:-1] for run in runs)])
    end = np.concatenate([np.zeros(0, np.int64), *(run.start[1:] for run in runs)])
    row = np.concatenate([np.zeros(0, number), *(run.first[1:] for run in runs)]).astype(number, copy=False)
    edges = _edges(runs, window)
    inner = _inner(trace, work, ranges, start, end, row)
    pieces = Pieces(
        np.concatenate((edges.device, device[inner.gap])),
        np.concatenate((edges.start, inner.start)),
        np.concatenate((edges.end, inner.end)),
        np.concatenate((edges.cause, inner.cause)),
        np.concatenate((edges.gap, inner.gap)),
    )
    return Idle(device, start, end, row, pieces)


def _edges(runs: Sequence[Runs], window: Window) -> Pieces:
    """Before the first and after the last row of each device; without a row that lasts, all of it is startup."""
    found = []
    for run in runs:
        first, last = (int(run.start[0]), int(run.end[-1])) if len(run) else (window.end_ns, window.end_ns)
        found += [
            (run.device, window.start_ns, first, CODES["startup"]),
            (run.device, last, window.end_ns, CODES["tail"]),
        ]
    device, start, end, cause = (
        (np.asarray(column, np.int64) for column in zip(*found, strict=True)) if found else (np.zeros(0, np.int64),) * 4
    )
    keep = end > start
    none = np.full(int(keep.sum()), -1, np.int32)
    return Pieces(device[keep].astype(np.int32), start[keep], end[keep], cause[keep].astype(np.int8), none)


def _inner(trace: Trace, work: Work, ranges: Ranges, start: Ints, end: Ints, row: Array) -> Pieces:
    """The pieces of the gaps [start, end) that these rows of Work end; their devices are those of their gaps."""
    call = work.call[row]
    known = call >= 0
    calls = {name: trace.array("calls", name) for name in ("start_ns", "dur_ns", "track")}
    until = start.copy()
    until[known] = np.clip(calls["start_ns"][call[known]] + calls["dur_ns"][call[known]], start[known], end[known])
    nothing = np.zeros(0, np.int64)
    parts: list[_Cut] = [(nothing, nothing, nothing, np.zeros(0, np.int8))]
    by_host = _numbers(known & (until > start))
    thread = calls["track"][call[by_host]] if len(by_host) else call[:0]
    for query, piece_start, piece_end, cause in host_pieces(trace, ranges, thread, start[by_host], until[by_host]):
        parts.append((by_host[query], piece_start, piece_end, cause))
    late = _numbers(known & (until < end))
    held = Held(row[late], until[late], end[late], until[late] > start[late])
    for query, piece_start, piece_end, cause in device_pieces(trace, work, held):
        parts.append((late[query], piece_start, piece_end, cause))
    orphans = _numbers(~known)
    parts.append((orphans, start[orphans], end[orphans], np.full(len(orphans), CODES["unknown"], np.int8)))
    return _in_order(_where_collected(trace, parts))


def _numbers(mask: Array) -> Array:
    """Numbers of gaps that satisfy a mask, in half the space: there are fewer than 2^31."""
    return np.flatnonzero(mask).astype(np.int32)


def _in_order(parts: list[_Cut]) -> Pieces:
    """Parts of gaps as pieces, in order of gap and time; the parts of one gap follow each other already."""
    gap, start, end, cause = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(gap, kind="stable")
    return Pieces(
        np.zeros(0, np.int32), start[order], end[order], cause[order], gap[order].astype(np.int32, copy=False)
    )


def _where_collected(trace: Trace, parts: list[_Cut]) -> list[_Cut]:
    """The parts, with what lies outside of the windows of collection cut out as ``not_collected``."""
    on = union(
        np.asarray([window.start_ns for window in trace.windows], np.int64),
        np.asarray([window.end_ns for window in trace.windows], np.int64),
    )
    if not len(on):
        return parts
    line = state_line([(np.zeros(len(on), np.int8), on.start, on.end)], np.asarray([False, True]))
    return [_cut_off(part, line, on) for part in parts]


def _cut_off(part: _Cut, line: StateLine, on: Intervals) -> _Cut:
    gap, start, end, cause = part
    if not len(start) or (len(on) == 1 and int(start.min()) >= on.start[0] and int(end.max()) <= on.end[0]):
        return part
    piece, start, end, collected = line.cut(start, end)
    return gap[piece], start, end, np.where(collected, cause[piece], np.int8(CODES["not_collected"]))
