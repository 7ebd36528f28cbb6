"""Evidence of findings: rows of calls, of device work and of ranges, the worst ones first."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.work import Work
from profkit.model import Evidence, Ints, Window, evidence
from profkit.schema import DEVICE_TABLES


def of_calls(analysis: Analysis, calls: Ints) -> tuple[Evidence, ...]:
    """These rows of ``calls``; the window is that of the first one."""
    return _rows(analysis, "calls", calls)


def of_spans(analysis: Analysis, spans: Ints) -> tuple[Evidence, ...]:
    """These rows of ``spans``; the window is that of the first one."""
    return _rows(analysis, "spans", spans)


def of_work(analysis: Analysis, rows: Ints) -> tuple[Evidence, ...]:
    """These rows of ``analysis.work``, by the table that they are from; each window is that of its first row."""
    return of_rows(analysis.work, rows)


def of_rows(work: Work, rows: Ints) -> tuple[Evidence, ...]:
    """The same of any work."""
    out = []
    for table, name in enumerate(DEVICE_TABLES):
        mine = rows[work.table[rows] == table]
        if len(mine):
            first = int(mine[0])
            tracks = tuple(np.unique(work.track[mine[:100]]).tolist())
            out.append(
                evidence(name, work.row[mine], tracks=tracks, window=_window(work.start[first], work.end[first]))
            )
    return tuple(out)


def longest_first(length: Ints) -> Ints:
    """Positions by length, longest first, ties in order."""
    return np.argsort(-length, kind="stable")


def _rows(analysis: Analysis, table: str, rows: Ints) -> tuple[Evidence, ...]:
    if not len(rows):
        return ()
    trace, first = analysis.trace, int(rows[0])
    start = int(trace.array(table, "start_ns")[first])
    end = start + int(trace.array(table, "dur_ns")[first])
    tracks = tuple(np.unique(trace.array(table, "track")[rows[:100]]).tolist())
    return (evidence(table, rows, tracks=tracks, window=_window(start, end)),)


def _window(start: int, end: int) -> Window:
    return Window(int(start), max(int(end), int(start) + 1))
