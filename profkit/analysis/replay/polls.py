"""Queries in a row (cudaEventQuery, cudaStreamQuery): a host that waits by asking again and again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.replay.model import Calls
from profkit.analysis.work import Work
from profkit.model import Ints, Trace


def find_polls(trace: Trace, calls: Calls, work: Work, submitted: Ints) -> tuple[tuple[Ints, Ints], Calls]:
    """((the last query of each row of them, the operation that it found done), the calls without the asking).

    However often a host asked: it goes on when the work is done. The queries before the last one, and the host's own
    work between them, take no time of their own in a replay.
    """
    name = trace.array("calls", "name")[calls.row]
    is_query = trace.name_rows(
        lambda name: name.endswith("Query") and ("Event" in name or "Stream" in name), among=name
    )
    query = is_query[name] if len(calls) else np.zeros(0, bool)
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if not query.any() or not len(work):
        return none, calls
    same = np.zeros(len(calls), bool)
    same[1:] = query[1:] & query[:-1] & (calls.track[1:] == calls.track[:-1])
    last = np.flatnonzero(query & ~np.append(same[1:], False))
    run = np.cumsum(query & ~same) - 1
    first = np.flatnonzero(query & ~same)[run[last]]
    long = last > first  # one query alone asks and goes on
    last, first = last[long], first[long]
    op = last_ended(trace, calls, work, last)
    found = (op >= 0) & (work.end[op] > calls.start[first]) & (submitted[op] < calls.start[first])
    last, first, op = last[found], first[found], op[found]
    gap, own = calls.gap.copy(), calls.own.copy()
    asked = np.zeros(len(calls) + 1, np.int64)
    np.add.at(asked, first, 1)
    np.add.at(asked, last, -1)
    asking = np.flatnonzero(np.cumsum(asked)[:-1] > 0)  # from the first query to the one before the last
    own[asking] = 0
    gap[asking + 1] = 0
    return (last, op), replace(calls, gap=gap, own=own)


def last_ended(trace: Trace, calls: Calls, work: Work, at: Ints) -> Ints:
    """The operation of the same process that ended last before each of these calls did, -1 for none."""
    out = np.full(len(at), -1, np.int64)
    process = trace.array("calls", "process")[calls.row[at]]
    for owner in np.unique(process).tolist():
        rows = np.flatnonzero(work.process == owner)
        rows = rows[np.argsort(work.end[rows], kind="stable")]
        mine = np.flatnonzero(process == owner)
        place = np.searchsorted(work.end[rows], calls.end[at[mine]], side="right") - 1
        out[mine] = np.where(place >= 0, rows[np.maximum(place, 0)], -1) if len(rows) else -1
    return out
