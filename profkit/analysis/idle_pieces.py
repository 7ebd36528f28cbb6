"""Idle time as rows of the table ``idle``: each piece with its start, its length and its one cause.

:mod:`profkit.analysis.idle` says how much of each gap a cause takes; here the same states are laid out in time. Where
collection was off for a part of a gap, that part is ``not_collected`` here, wherever it lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profkit.analysis.busy import device_gaps
from profkit.analysis.context import Analysis
from profkit.analysis.idle import _Lift, host_states
from profkit.analysis.intervals import Intervals, union
from profkit.model import Array, Ints
from profkit.schema import TABLES


@dataclass(frozen=True)
class Pieces:
    """Pieces of gaps: ``gap`` is the number of the gap, ``cause`` indexes the causes."""

    gap: Ints
    start: Ints
    end: Ints
    cause: Ints

    def where(self, keep: Array) -> Pieces:
        return Pieces(self.gap[keep], self.start[keep], self.end[keep], self.cause[keep])


def idle_table(analysis: Analysis) -> pa.Table:
    """The derived table ``idle``, by device and time. Lengths of a device add up to its idle time."""
    causes: list[str] = ["python", "launch_latency", "unknown", "not_collected", "startup", "tail"]
    gaps, pieces = analysis.idle, _edges(analysis, causes)
    device = pieces.gap  # of the edges: their gap is the device itself
    ends_at = np.full(len(device), -1, np.int64)
    if len(gaps):
        inner = _without_collection(analysis, _by_cause(analysis, causes), causes)
        device = np.concatenate((device, gaps.device[inner.gap]))
        ends_at = np.concatenate((ends_at, gaps.ends_at[inner.gap]))
        pieces = _joined([pieces, inner])
    order = np.lexsort((pieces.start, device))
    steps = analysis.steps.of_work
    step = np.where(ends_at >= 0, steps[np.maximum(ends_at, 0)], -1) if len(steps) else np.full(len(device), -1)
    # Rows of ``launches`` are of the whole trace, whatever is selected.
    of_whole = analysis._clipped[1]
    launch = np.where(ends_at >= 0, of_whole[np.maximum(ends_at, 0)], -1) if len(of_whole) else ends_at
    words = np.asarray(causes, dtype=object)[pieces.cause]
    columns = [device, pieces.start, pieces.end - pieces.start, words, step, launch]
    schema = TABLES["idle"].schema
    arrays = [
        pa.array(np.asarray(values)[order], field.type if field.name == "cause" else None).cast(field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _edges(analysis: Analysis, causes: list[str]) -> Pieces:
    """Before the first and after the last row of each device."""
    work, parts = analysis.work, []
    for device in np.unique(work.device).tolist() if analysis.window is not None else []:
        assert analysis.window is not None
        mine = (work.device == device) & (work.end > work.start)
        gaps = device_gaps(work, analysis.window, device)
        if mine.any():
            first, last = int(work.start[mine][0]), int(work.end[mine].max())
        else:  # rows without a length: all of the window is start-up
            first, last = analysis.window.end_ns, analysis.window.end_ns
        for name, keep in (("startup", gaps.end <= first), ("tail", (gaps.start >= last) & (gaps.end > first))):
            n = int(keep.sum())
            parts.append(Pieces(np.full(n, device), gaps.start[keep], gaps.end[keep], np.full(n, causes.index(name))))
    return _joined(parts)


def _by_cause(analysis: Analysis, causes: list[str]) -> Pieces:
    """Each gap cut where the state of the thread changes that issued the operation ending it."""
    trace, gaps = analysis.trace, analysis.idle
    call = analysis.work.call[gaps.ends_at]
    known = call >= 0
    call_end = analysis.call_end[np.maximum(call, 0)] if len(analysis.call_end) else np.zeros(len(call), np.int64)
    until = np.where(known, np.clip(call_end, gaps.start, gaps.end), gaps.start)
    track = trace.array("calls", "track")
    thread = track[np.maximum(call, 0)] if len(track) else np.full(len(call), -1)
    lift = _Lift(trace)
    low, high = lift(thread, gaps.start), lift(thread, until)
    parts = []
    for name, state in host_states(trace, analysis.ranges).items():
        causes.append(name)
        gap, start, end = _inside(state, low, np.where(known, high, low))
        shift = gaps.start[gap] - low[gap]
        parts.append(Pieces(gap, start + shift, end + shift, np.full(len(gap), len(causes) - 1)))
    host = _joined(parts)
    number = np.arange(len(gaps))
    # What a delay after the call is called depends on its length: find_idle has decided.
    rest = np.where(gaps.parts["launch_latency"] > 0, causes.index("launch_latency"), causes.index("unknown"))
    after = Pieces(number, until, gaps.end, rest)
    return _joined([host, _between(host, number, gaps.start, until, causes.index("python")), after])


def _inside(state: Intervals, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """(query, start, end) of every part of ``state`` inside the queries [low, high)."""
    first = np.searchsorted(state.end, low, side="right")
    count = np.maximum(np.searchsorted(state.start, high, side="left") - first, 0)
    query = np.repeat(np.arange(len(low)), count)
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + first[query]
    return query, np.maximum(state.start[at], low[query]), np.minimum(state.end[at], high[query])


def _between(taken: Pieces, gap: Ints, start: Ints, end: Ints, cause: int) -> Pieces:
    """What the pieces leave of [start, end) of each gap; they do not overlap within one."""
    order = np.lexsort((taken.start, taken.gap))
    owner, since, until = taken.gap[order], taken.end[order], taken.start[order]
    # Every gap begins with its start and ends with its end; a hole lies between one's end and the next one's start.
    row = np.concatenate((gap, owner))
    hole_start, hole_end = np.concatenate((start, since)), np.concatenate((until, end))
    left = np.lexsort((hole_start, row))
    right = np.lexsort((hole_end, np.concatenate((owner, gap))))
    return Pieces(row[left], hole_start[left], hole_end[right], np.full(len(row), cause))


def _without_collection(analysis: Analysis, pieces: Pieces, causes: list[str]) -> Pieces:
    """Cut out what lies outside of the windows in which collection was on."""
    pieces = pieces.where(pieces.end > pieces.start)
    windows = analysis.trace.windows
    on = union(np.asarray([w.start_ns for w in windows], np.int64), np.asarray([w.end_ns for w in windows], np.int64))
    if not len(on):
        return pieces
    at, start, end = _inside(on, pieces.start, pieces.end)
    inside = Pieces(at, start, end, pieces.cause[at])
    off = _between(inside, np.arange(len(pieces.gap)), pieces.start, pieces.end, causes.index("not_collected"))
    both = _joined([inside, off])
    both = both.where(both.end > both.start)
    return Pieces(pieces.gap[both.gap], both.start, both.end, both.cause)


def _joined(parts: list[Pieces]) -> Pieces:
    none = np.zeros(0, np.int64)
    return Pieces(
        np.concatenate([none, *(p.gap for p in parts)]),
        np.concatenate([none, *(p.start for p in parts)]),
        np.concatenate([none, *(p.end for p in parts)]),
        np.concatenate([none, *(p.cause for p in parts)]),
    )
