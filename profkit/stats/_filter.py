"""The part of a trace that ``--filter-time`` and ``--filter-nvtx`` leave, as a trace of its own.

Rows are kept or dropped whole, never cut: a filtered report counts the full length of what it lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from profkit.errors import UsageError
from profkit.model import EVERY_PROCESS, Array, Mask, Trace
from profkit.schema import DEVICE_TABLES, EVENT_TABLES
from profkit.stats._ranges import PUSH_POP, Ranges, find_ranges

_UNITS = {"": 1, "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|)")
_INDEX = re.compile(r"(?s)(.+)/(\d+)")
_ANY_DOMAIN = "*"


@dataclass(frozen=True)
class TimeFilter:
    """Keep what lies between two times, in trace time; None is no limit. An open edge also keeps what crosses it."""

    start_ns: int | None
    end_ns: int | None
    open_start: bool = False
    open_end: bool = False

    def keeps(self, start: Array, end: Array) -> Mask:
        """Which of the rows [start, end] stay."""
        keep = np.ones(len(start), bool)
        if self.start_ns is not None:
            keep &= (end if self.open_start else start) >= self.start_ns
        if self.end_ns is not None:
            keep &= (start if self.open_end else end) <= self.end_ns
        return keep


def parse_time_filter(words: str) -> TimeFilter:
    """``START/END`` with units (ns if none), either may be missing; a colon outside of an edge opens it.

    Raises UsageError for anything else.
    """
    start, slash, end = words.strip().partition("/")
    if not slash or "/" in end:
        raise UsageError(f"no time filter: {words!r}; write START/END, as in 1.2s/1350ms, :1.2s/1350ms: or 1.2s/")
    found = TimeFilter(_ns(start.removeprefix(":")), _ns(end.removesuffix(":")), start[:1] == ":", end[-1:] == ":")
    if found.start_ns is not None and found.end_ns is not None and found.end_ns < found.start_ns:
        raise UsageError(f"the time filter {words} ends before it starts")
    return found


def _ns(words: str) -> int | None:
    if not words.strip():
        return None
    match = _TIME.fullmatch(words.strip())
    if match is None:
        raise UsageError(f"no time: {words!r}; write a number and a unit (ns, us, ms, s), as in 1350ms")
    return int(Decimal(match[1]) * _UNITS[match[2]])


def filter_time(trace: Trace, wanted: TimeFilter) -> Trace:
    """The events that the filter keeps, each by its own time: a kernel by its execution, a call by itself."""
    return _kept(trace, {table: wanted.keeps(*_times(trace, table)) for table in EVENT_TABLES})


def filter_nvtx(trace: Trace, words: str) -> Trace:
    """The events that overlap one range, ``RANGE[@DOMAIN][/INDEX]``, and belong to it as nsys sees it.

    Host rows are those of its thread (of its process for a start/end range), device rows those of its process. INDEX
    counts the ranges of that name from 0 in order of their start. Raises UsageError where there is no such range.
    """
    ranges = find_ranges(trace)
    row = _find(ranges, words)
    inside = TimeFilter(int(ranges.start[row]), int(ranges.end[row]), True, True)
    track = int(ranges.track[row])
    process = np.append(trace.array("tracks", "process"), -1)
    masks = {}
    for table in EVENT_TABLES:
        lane = trace.array(table, "track")
        whole_process = table in DEVICE_TABLES or ranges.style[row] != PUSH_POP
        mine = process[lane] == process[track] if whole_process else lane == track
        masks[table] = mine & inside.keeps(*_times(trace, table))
    return _kept(trace, masks)


def _find(ranges: Ranges, words: str) -> int:
    """Position of the range that the words name; the whole text is tried as a name first."""
    indexed = _INDEX.fullmatch(words)
    for text, index in ((words, 0), (indexed[1], int(indexed[2])) if indexed else (words, 0)):
        name, at, domain = text.rpartition("@")
        for label in (f":{text}", f"{domain}:{name}" if at else ""):
            rows = _named(ranges, label)
            if len(rows) > index:
                return int(rows[index])
            if len(rows):
                raise UsageError(f"there are {len(rows)} ranges {text!r}, counted from 0: no number {index}")
        if at and domain == _ANY_DOMAIN:
            matches = [i for i, label in enumerate(ranges.names) if label.partition(":")[2] == name]
            rows = np.flatnonzero(np.isin(ranges.name, matches))
            if len(rows) > index:
                return int(rows[index])
    elsewhere = [label.removesuffix(f":{words}") for label in ranges.names if label.endswith(f":{words}")]
    hint = f"; in domain {elsewhere[0]} there is: {words}@{elsewhere[0]}" if elsewhere else ""
    raise UsageError(f"no NVTX range {words!r} in this trace{hint}")


def _named(ranges: Ranges, label: str) -> Array:
    if label not in ranges.names:
        return np.zeros(0, np.int64)
    return np.flatnonzero(ranges.name == ranges.names.index(label))


def _times(trace: Trace, table: str) -> tuple[Array, Array]:
    start = trace.array(table, "start_ns")
    return start, start + trace.array(table, "dur_ns")


def _kept(trace: Trace, masks: dict[str, Mask]) -> Trace:
    """The trace with these rows of its event tables; what lost all of its rows says why it has none.

    Columns that name rows of an event table (parent, span, kernel) still mean the rows of the whole trace.
    """
    tables, missing = dict(trace.tables), dict(trace.missing)
    for table, mask in masks.items():
        tables[table] = trace.tables[table].filter(pa.array(mask)).combine_chunks()
        if len(mask) and not mask.any():
            missing[table] = {EVERY_PROCESS: f"no rows of {table} pass the filter"}
    return replace(trace, tables=tables, missing=missing)
