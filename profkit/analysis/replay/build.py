"""From a trace to the model that replays it."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.arrivals import find_arrivals
from profkit.analysis.replay.device import start_edges
from profkit.analysis.replay.engines import copy_engines, shares
from profkit.analysis.replay.events import awaited_operations, recorded_events
from profkit.analysis.replay.handoffs import find_handoffs
from profkit.analysis.replay.host import outermost_calls
from profkit.analysis.replay.model import Edges, Model
from profkit.analysis.replay.peers import peer_edges
from profkit.analysis.replay.waits import wait_edges
from profkit.analysis.work import Work
from profkit.model import Ints, Window


def build_model(analysis: Analysis, part: Window | None = None) -> Model:
    """The whole trace as a model, or what was called in ``part`` of it.

    Operations that were submitted before the part and ran on into it are fixed.
    """
    trace = analysis.trace
    calls = outermost_calls(analysis, part)
    work, call, row = _work(analysis, calls.of, part)
    submitted = np.where(call >= 0, calls.start[np.maximum(call, 0)], work.start) if len(calls) else work.start
    records, stream_waits = recorded_events(trace, calls, work, submitted)
    calls, waits = wait_edges(trace, calls, work, call, submitted, records, stream_waits)
    calls, turns = find_handoffs(trace, calls)
    calls, arrivals = find_arrivals(analysis, calls, 2 * (len(calls) + len(work)))
    engine = copy_engines(trace, work)
    awaited = awaited_operations(work, submitted, stream_waits)
    starts = start_edges(trace, calls, work, call, awaited, engine)
    peers, dur = peer_edges(trace, calls, work)
    fixed = np.zeros(len(work), bool) if part is None else (call < 0) & (work.call >= 0)
    return Model(
        calls=calls,
        work=work,
        call=call,
        dur=dur,
        fixed=fixed,
        edges=Edges.join([starts, waits, turns, arrivals, peers]),
        row=row,
        engine=engine,
        shared_engine=shares(work, engine),
    )


def _work(analysis: Analysis, of: Ints, part: Window | None) -> tuple[Work, Ints, Ints]:
    """(device work, position of the outermost call of each row, its position in all of the work)."""
    work = analysis.whole_work
    call = np.where(work.call >= 0, of[np.maximum(work.call, 0)], -1) if len(of) else np.full(len(work), -1)
    if part is None:
        return work, call, np.arange(len(work))
    unjoined = (work.call < 0) & (work.start >= part.start_ns) & (work.start < part.end_ns)
    starts = analysis.trace.array("calls", "start_ns")
    early = (work.end > part.start_ns) & (work.start < part.end_ns) & (work.call >= 0)
    early &= (starts[np.maximum(work.call, 0)] < part.start_ns) if len(starts) else False
    keep = np.flatnonzero((call >= 0) | unjoined | early)
    return work.where(keep), call[keep], keep
