"""CUDA events: the operation that stands before each record of an event, and what waited for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.replay.model import Calls
from profkit.analysis.work import Work, submitted_at
from profkit.arrays import pack
from profkit.model import Array, Ints, Trace
from profkit.schema import SYNC_KINDS

_STREAM_WAIT = SYNC_KINDS.index("stream_wait")


@dataclass(frozen=True)
class Records:
    """Rows of ``gpu_events`` and the last operation of their stream submitted before each, -1 for none."""

    op: Ints
    at: Ints
    """When the record was submitted, ns."""

    def before(self, trace: Trace, syncs: Ints) -> Ints:
        """The operation that each of these rows of ``syncs`` waits for through its event; -1 if that is not known."""
        out = np.full(len(syncs), -1, np.int64)
        event = trace.array("syncs", "event")[syncs]
        if not len(self.op) or not len(syncs):
            return out
        record = _matching(trace, syncs, self.at)
        ok = (record >= 0) & (event >= 0)
        out[ok] = self.op[record[ok]]
        return out


def _matching(trace: Trace, syncs: Ints, at: Ints) -> Ints:
    """The latest record of the same event before each wait; by the id of the record where both have one.

    A record made at the instant at which a wait begins is before it.
    """
    exact = trace.array("syncs", "event_sync")[syncs]
    has_ids = bool((exact >= 0).any()) and bool((trace.array("gpu_events", "event_sync") >= 0).any())
    columns = [[trace.array("gpu_events", "process"), trace.array("syncs", "process")[syncs]],
               [trace.array("gpu_events", "event"), trace.array("syncs", "event")[syncs]]]  # fmt: skip
    if has_ids:
        columns.append([trace.array("gpu_events", "event_sync"), exact])
    keys, wanted = pack(columns)
    key, when = pack([[keys, wanted], [at, trace.array("syncs", "start_ns")[syncs]]])
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], when, side="right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (keys[found] == wanted), found, -1)


@dataclass(frozen=True)
class StreamWaits:
    """Stream waits with a known event: the lane that waits, when that was submitted, and what it waits for."""

    track: Array
    at: Ints
    op: Ints


def recorded_events(trace: Trace, calls: Calls, work: Work, submitted: Ints) -> tuple[Records, StreamWaits]:
    """For each row of ``gpu_events`` the operation that it marks the end of, and all stream waits.

    A record behind a stream wait, with no operation between, marks the end of what the stream waited for.
    """
    none = StreamWaits(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    n = trace.rows("gpu_events")
    if not n or not len(work):
        return Records(np.full(n, -1, np.int64), trace.array("gpu_events", "start_ns")), none
    at = submitted_at(trace, "gpu_events")
    track = streams_with_work(trace, work, trace.array("gpu_events", "track"))
    records = Records(_marked(work, submitted, track, at, none), at)
    waits = _stream_waits(trace, work, records)
    records = Records(_marked(work, submitted, track, at, waits), at)
    return records, _stream_waits(trace, work, records)


def _marked(work: Work, submitted: Ints, track: Array, at: Ints, waits: StreamWaits) -> Ints:
    """What each lane has to finish at each time: its last operation, or what it was told to wait for since."""
    out = np.full(len(at), -1, np.int64)
    for stream in np.unique(track).tolist():
        mine = np.flatnonzero(track == stream)
        last, pending = last_work(work, submitted, waits, stream, at[mine])
        later = (pending >= 0) & ((last < 0) | (work.end[pending] > work.end[last]))
        out[mine] = np.where(later, pending, last)
    return out


def last_work(work: Work, submitted: Ints, waits: StreamWaits, stream: int, at: Ints) -> tuple[Ints, Ints]:
    """(last operation that a lane got before each time, what it was told to wait for since); -1 for none."""
    ops = np.flatnonzero(work.track == stream)
    order = np.maximum.accumulate(submitted[ops])
    place = np.searchsorted(order, at, side="left") - 1
    last = np.where(place >= 0, ops[np.maximum(place, 0)], -1) if len(ops) else np.full(len(at), -1, np.int64)
    mine = np.flatnonzero(waits.track == stream)
    if not len(mine):
        return last, np.full(len(at), -1, np.int64)
    mine = mine[np.argsort(waits.at[mine], kind="stable")]
    wait = np.searchsorted(waits.at[mine], at, side="left") - 1
    since = np.where(place >= 0, order[np.maximum(place, 0)], np.iinfo(np.int64).min) if len(ops) else at - at - 1
    newer = (wait >= 0) & (waits.at[mine][np.maximum(wait, 0)] > since)
    return last, np.where(newer, waits.op[mine][np.maximum(wait, 0)], -1)


def _stream_waits(trace: Trace, work: Work, records: Records) -> StreamWaits:
    rows = np.flatnonzero(trace.array("syncs", "kind") == _STREAM_WAIT)
    other = records.before(trace, rows)
    at = submitted_at(trace, "syncs", rows)
    track = streams_with_work(trace, work, trace.array("syncs", "stream_track"))[rows]
    known = other >= 0
    return StreamWaits(track[known], at[known], other[known])


def streams_with_work(trace: Trace, work: Work, tracks: Array) -> Array:
    """The lane that each of these streams has its work on.

    Some exports leave the device or the context out of rows of synchronisations and events: then the stream of the same
    number in the same process that has work is meant, if there is one only.
    """
    used = np.unique(work.track)
    stream, process = trace.array("tracks", "stream"), trace.array("tracks", "process")
    table = np.arange(trace.rows("tracks") + 1)
    table[-1] = -1
    for track in np.setdiff1d(tracks[tracks >= 0], used).tolist():
        same = used[(stream[used] == stream[track]) & (process[used] == process[track])]
        if len(same) == 1 and stream[track] >= 0:
            table[track] = same[0]
    return table[tracks]


def awaited_operations(work: Work, submitted: Ints, waits: StreamWaits) -> tuple[Ints, Ints]:
    """Pairs (operation, operation of another stream that it waits for).

    The waiting one is the first operation of the waiting stream that was submitted after the wait.
    """
    op = np.full(len(waits.at), -1, np.int64)
    for stream in np.unique(waits.track).tolist():
        ops = np.flatnonzero(work.track == stream)
        mine = np.flatnonzero(waits.track == stream)
        place = np.searchsorted(np.maximum.accumulate(submitted[ops]), waits.at[mine], side="left")
        inside = place < len(ops)
        op[mine[inside]] = ops[place[inside]]
    known = (op >= 0) & (op != waits.op)
    return op[known], waits.op[known]
