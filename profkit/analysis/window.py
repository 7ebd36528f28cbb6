"""The part of a trace that a user names: ``1.2s:1350ms``, ``step:12``, ``step:10-20``, ``range:NAME``."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np

from profkit.analysis.spans import stage_ranges
from profkit.analysis.steps import find_steps
from profkit.analysis.work import device_work
from profkit.errors import UsageError
from profkit.model import Trace, Window
from profkit.stages import parse_name
from profkit.text import moment

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(rf"^(\d+(?:\.\d+)?)({'|'.join(_UNITS)})$")
_STEPS = re.compile(r"^step:(\d+)(?:-(\d+))?$")


def parse_window(trace: Trace, words: str) -> Window:
    """The window that ``words`` name, in trace time. Raises UsageError for what is no window or holds nothing.

    ``START:END`` may leave out either; ``step:`` counts the steps of the first process (of ranks, the lowest) from 0,
    by their periods where they have GPU work; ``range:`` takes the first range of that name, with or without a stage's
    prefix and payload.
    """
    if words.startswith("step:"):
        return _of_steps(trace, words)
    if words.startswith("range:"):
        return _of_range(trace, words.removeprefix("range:"))
    start, colon, end = words.partition(":")
    if not colon or not (start or end):
        raise UsageError(f"no window: {words!r}; say 1.2s:1350ms, 1.2s:, step:12, step:10-20 or range:NAME")
    extent = trace.extent or Window(0, 0)
    low, high = extent.start_ns, extent.end_ns
    window = Window(_ns(start) if start else low, _ns(end) if end else high)
    if window.dur_ns <= 0:
        raise UsageError(f"the window {words} is empty: its end is not after its start")
    if window.end_ns <= low or window.start_ns >= high:
        raise UsageError(f"the window {words} lies outside of the capture, {moment(low)} to {moment(high)}")
    return window


def _ns(words: str) -> int:
    match = _TIME.match(words.strip())
    if match is None:
        raise UsageError(f"no time: {words!r}; write a number and a unit ({', '.join(_UNITS)}), as in 1350ms")
    return min(int(Decimal(match[1]) * _UNITS[match[2]]), 1 << 62)


def _of_steps(trace: Trace, words: str) -> Window:
    match = _STEPS.match(words)
    if match is None:
        raise UsageError(f"no steps: {words!r}; say step:12 or step:10-20")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"no steps: {words!r} ends before it begins")
    steps = find_steps(trace, stage_ranges(trace), device_work(trace))
    of_first = steps.process == steps.process[steps.lead][:1]
    mine = np.flatnonzero(of_first & (steps.index >= first) & (steps.index <= last))
    if len(mine) != last - first + 1:
        count = int(of_first.sum())
        raise UsageError(f"no such steps: the first process has {count}, counted from 0")
    # A step's time is its period: from the end of the previous one's GPU work to the end of its own.
    own_start = np.where(steps.gpu_start[mine] >= 0, steps.gpu_start[mine], steps.host_start[mine])
    end = np.where(steps.gpu_end[mine] >= 0, steps.gpu_end[mine], steps.host_end[mine])
    start = np.where(steps.period[mine] >= 0, end - steps.period[mine], own_start)
    return Window(int(np.minimum(start, own_start).min()), int(end.max()))


def _of_range(trace: Trace, name: str) -> Window:
    wanted = trace.name_rows(lambda text: text == name or _stage_name(text) == name, "text")
    names = trace.array("spans", "name")
    rows = np.flatnonzero((names >= 0) & (wanted[np.maximum(names, 0)] if wanted.any() else False))
    if not len(rows):
        raise UsageError(f"no range is called {name!r} in this trace")
    start = int(trace.array("spans", "start_ns")[rows[0]])
    return Window(start, start + int(trace.array("spans", "dur_ns")[rows[0]]))


def _stage_name(text: str) -> str:
    found = parse_name(text)
    return found.name if found is not None else ""
