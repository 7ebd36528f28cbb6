"""The host side of a model: outermost calls of each thread, and the work of the host between them."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.model import Calls
from profkit.model import Window


def outermost_calls(analysis: Analysis, part: Window | None = None) -> Calls:
    """Calls that no other call of their thread holds (runtime calls hold driver calls); those that begin in ``part``.

    Calls of a thread that overlap without nesting are taken as one, from the first start to the last end.
    """
    trace = analysis.trace
    every = np.arange(trace.rows("calls"))
    if part is not None:
        start = trace.array("calls", "start_ns")
        every = np.flatnonzero((start >= part.start_ns) & (start < part.end_ns))
    track = trace.array("calls", "track")[every]
    order = every[np.argsort(track, kind="stable")]  # calls are in order of start already
    track = trace.array("calls", "track")[order]
    start = trace.array("calls", "start_ns")[order]
    end = start + trace.array("calls", "dur_ns")[order]
    new_thread = np.ones(len(order), bool)
    new_thread[1:] = track[1:] != track[:-1]
    outermost = new_thread.copy()
    if len(order):
        low, width = int(start.min()), int(end.max()) - int(start.min()) + 1
        lift = np.cumsum(new_thread) * width
        reach = np.maximum.accumulate(end - low + lift)
        outermost[1:] |= (start - low + lift)[1:] >= reach[:-1]
    at = np.flatnonzero(outermost)
    of = np.full(trace.rows("calls"), -1, np.int64)
    of[order] = np.cumsum(outermost) - 1
    last = np.maximum.reduceat(end, at) if len(at) else end
    fixed = new_thread[at]
    gap = np.zeros(len(at), np.int64)
    gap[1:] = np.where(fixed[1:], 0, start[at][1:] - last[:-1])
    return Calls(
        row=order[at],
        track=track[at],
        kind=analysis.call_kind[order[at]],
        start=start[at],
        end=last,
        gap=gap,
        own=last - start[at],
        fixed=fixed,
        of=of,
    )
