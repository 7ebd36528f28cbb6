"""The trace as it would have been recorded: every row at the time that a replay gives it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.replay.model import Model, Times
from profkit.builder import with_times
from profkit.model import Array, Ints, Trace, Window
from profkit.schema import DEVICE_TABLES


def retimed(trace: Trace, model: Model, times: Times) -> Trace:
    """A trace with the times of a replay of all of it.

    Calls inside of others keep their place in them. What stands between two calls of a thread (ranges, operating system
    calls) is stretched or shrunk with the time between them; threads without calls stay as they are.
    """
    columns: dict[str, dict[str, Ints]] = {"calls": _calls(trace, model, times)}
    for number, name in enumerate(DEVICE_TABLES):
        start, dur = trace.array(name, "start_ns").copy(), trace.array(name, "dur_ns").copy()
        mine = model.work.table == number
        start[model.work.row[mine]] = times.start[mine]
        dur[model.work.row[mine]] = (times.end - times.start)[mine]
        columns[name] = {"start_ns": start, "dur_ns": dur}
    move = Threads(model, times)
    for name, track in (("spans", "track"), ("os_calls", "track"), ("overheads", "track"), ("syncs", "thread_track")):
        lane = trace.array(name, track)
        start = trace.array(name, "start_ns")
        end = start + trace.array(name, "dur_ns")
        ends_on = trace.array(name, "end_track") if name == "spans" else lane
        moved = move(lane, start)
        columns[name] = {"start_ns": moved, "dur_ns": np.maximum(move(ends_on, end) - moved, 0)}
    for name in ("samples", "sched"):
        columns[name] = {"time_ns": move(trace.array(name, "track"), trace.array(name, "time_ns"))}
    return _with_window(with_times(trace, columns))


def _calls(trace: Trace, model: Model, times: Times) -> dict[str, Ints]:
    start, dur = trace.array("calls", "start_ns").copy(), trace.array("calls", "dur_ns").copy()
    of = model.calls.of
    known = np.flatnonzero(of >= 0)
    outer = of[known]
    low, high = times.call_start[outer], times.call_end[outer]
    end = start + dur
    new = np.minimum(low + start[known] - model.calls.start[outer], high)
    last = np.minimum(low + end[known] - model.calls.start[outer], high)
    start[known] = new
    dur[known] = last - new
    own = model.calls.row
    start[own], dur[own] = times.call_start, times.call_end - times.call_start
    return {"start_ns": start, "dur_ns": dur}


class Threads:
    """Where each instant of each thread moves to."""

    def __init__(self, model: Model, times: Times) -> None:
        calls = model.calls
        self.points: dict[int, tuple[Ints, Ints]] = {}
        for track in np.unique(calls.track).tolist():
            mine = slice(*np.searchsorted(calls.track, (track, track + 1)))
            was = np.column_stack((calls.start[mine], calls.end[mine])).ravel()
            now = np.column_stack((times.call_start[mine], times.call_end[mine])).ravel()
            self.points[track] = (was, now)

    def __call__(self, track: Array, time: Ints) -> Ints:
        out = time.copy()
        for lane in np.unique(track).tolist():
            if lane in self.points:
                mine = np.flatnonzero(track == lane)
                out[mine] = _moved(time[mine], *self.points[lane])
        return out


def _moved(time: Ints, was: Ints, now: Ints) -> Ints:
    """Between two points in proportion, before the first and after the last one as these moved; exact in integers."""
    at = np.clip(np.searchsorted(was, time, side="right") - 1, 0, len(was) - 1)
    after = np.minimum(at + 1, len(was) - 1)
    length, room = was[after] - was[at], now[after] - now[at]
    into = time - was[at]
    inside = (into > 0) & (length > 0) & (time < was[-1])
    part = np.where(inside, _scaled(into, room, np.maximum(length, 1)), into)
    return now[at] + part


def _scaled(value: Ints, numerator: Ints, denominator: Ints) -> Ints:
    """value * numerator // denominator without overflow: products of two lengths of an hour exceed 64 bits."""
    same = numerator == denominator
    whole = np.rint(value.astype(np.float64) * numerator / denominator).astype(np.int64)
    return np.where(same, value, np.minimum(whole, numerator))


def _with_window(trace: Trace) -> Trace:
    """Collection was on for as long as there are events; several windows are kept as they are."""
    extent = trace.extent
    if len(trace.windows) != 1 or extent is None:
        return trace
    return replace(trace, windows=(Window(extent.start_ns, extent.end_ns),))
