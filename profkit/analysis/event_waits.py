"""What a stream was made to wait for, and until when.

An event is a record of ``gpu_events``; what it stands for is the last operation of its stream that was submitted before
it. Where records or waits are not in the capture and a stream-wait call stands between two operations of a stream, the
operation of another stream of the process that ended right before the second began is taken to be what it waited for.
The legacy default stream and the blocking streams of its context wait for each other without an event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.calls import event_waits
from profkit.analysis.intervals import NEVER
from profkit.analysis.work import Work, submitted_at
from profkit.arrays import distinct, first_match, pack
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import STREAM_KINDS, SYNC_KINDS

_UNKNOWN = NEVER + 1
"""Something was waited for, and this capture does not hold its record."""
_STREAM_WAIT = SYNC_KINDS.index("stream_wait")
_BLOCKING, _LEGACY = STREAM_KINDS.index("default"), STREAM_KINDS.index("null")


class AwaitedEvents:
    """What other streams made operations wait for; see :meth:`held_until`.

    ``limit`` is the longest time from the end of an operation to the start of what waited for it, ns.
    """

    def __init__(self, trace: Trace, work: Work, limit: int) -> None:
        self._trace, self._work, self._limit = trace, work, limit
        self._streams = Streams(trace, work)
        waits = _recorded_waits(trace)
        self._waiting, self._ended = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._wait_calls = np.zeros(0, np.int64)
        if len(waits):
            ends = _ends_of_events(trace, self._streams, waits)
            self._waiting, self._ended = _by_operation(self._streams, waits, ends)
        elif trace.rows("calls"):
            self._wait_calls = np.flatnonzero(event_waits(trace))
        self._legacy = _legacy_pairs(trace, distinct(work.track))

    def held_until(self, row: Array, began: Ints) -> Ints:
        """Until when these rows of Work were held by an operation of another stream, NEVER where none did.

        All of them have a call; ``began`` is when each of them began. Where the end of the other operation was the last
        thing that was waited for, the row was held until it began: what the device took from the one to the other is
        part of the wait.
        """
        ended = np.maximum(self._by_events(row, began), self._by_legacy_stream(row))
        held = np.flatnonzero(ended > NEVER)
        row, last = row[held], ended[held]
        call = self._work.call[row]
        submitted = self._trace.array("calls", "start_ns")[call]
        returned = submitted + self._trace.array("calls", "dur_ns")[call]
        own = self._streams.end_before(self._work.track[row], submitted)
        was_last = (last >= returned) & (last >= own) & (began[held] - last <= self._limit)
        ended[held] = np.where(was_last, began[held], last)
        return ended

    def _by_events(self, row: Array, began: Ints) -> Ints:
        """End of the operation that an event made each row wait for."""
        out = np.full(len(row), NEVER, np.int64)
        if len(self._waiting):
            at = np.searchsorted(self._waiting, row)
            hit = np.flatnonzero(np.append(self._waiting, -1)[at] == row)
            out[hit] = self._ended[at[hit]]
            guess = hit[out[hit] == _UNKNOWN]
        elif len(self._wait_calls):
            guess = np.flatnonzero(_behind_a_wait(self._trace, self._work, self._streams, self._wait_calls, row))
        else:
            return out
        if len(guess):
            out[guess] = _ended_right_before(self._work, row[guess], began[guess], self._limit)
        return out

    def _by_legacy_stream(self, row: Array) -> Ints:
        """End of the last operation of the legacy default stream before each row of a blocking one, and vice versa."""
        out = np.full(len(row), NEVER, np.int64)
        for track, other in self._legacy:
            mine = np.flatnonzero(self._work.track[row] == track)
            submitted = self._trace.array("calls", "start_ns")[self._work.call[row[mine]]]
            before = self._streams.end_before(np.full(len(mine), other), submitted)
            out[mine] = np.maximum(out[mine], before)
        return out


def _legacy_pairs(trace: Trace, tracks: Ints) -> list[tuple[int, int]]:
    """(stream, stream that it waits for) where one of them is the legacy default stream of their context."""
    kind = trace.array("tracks", "stream_kind")
    where = {name: trace.array("tracks", name) for name in ("process", "device", "context")}
    pairs = []
    for legacy in tracks[kind[tracks] == _LEGACY].tolist():
        same = np.all([column[tracks] == column[legacy] for column in where.values()], axis=0)
        for other in tracks[same & (kind[tracks] == _BLOCKING)].tolist():
            pairs += [(legacy, other), (other, legacy)]
    return pairs


class Streams:
    """Operations of each stream in the order in which they were submitted, looked up when first asked for."""

    def __init__(self, trace: Trace, work: Work) -> None:
        self._trace, self._work = trace, work
        self._of: dict[int, tuple[Array, Ints, Ints]] = {}

    def submitted(self, track: int) -> tuple[Array, Ints, Ints]:
        """(rows of Work, start of their calls, last end of each and those before it) of a stream."""
        if track not in self._of:
            rows = np.flatnonzero((self._work.track == track) & (self._work.call >= 0)).astype(self._work.row.dtype)
            time = self._trace.array("calls", "start_ns")[self._work.call[rows]]
            order = np.argsort(time, kind="stable")
            rows = rows[order]
            self._of[track] = rows, time[order], np.maximum.accumulate(self._work.end[rows])
        return self._of[track]

    def end_before(self, track: Array, time: Ints) -> Ints:
        """End of what was submitted to each stream before a time, NEVER if that is nothing."""
        out = np.full(len(track), NEVER, np.int64)
        for stream in np.unique(track).tolist():
            _, submitted, reach = self.submitted(stream)
            mine = np.flatnonzero(track == stream)
            at = np.searchsorted(submitted, time[mine], side="left") - 1
            out[mine[at >= 0]] = reach[at[at >= 0]]
        return out

    def next_operation(self, track: Array, time: Ints) -> Ints:
        """Row of Work that is submitted next to each stream at a time, -1 for none."""
        out = np.full(len(track), -1, np.int64)
        for stream in np.unique(track).tolist():
            rows, submitted, _ = self.submitted(stream)
            mine = track == stream
            out[mine] = np.append(rows, -1)[np.searchsorted(submitted, time[mine], side="left")]
        return out


@dataclass(frozen=True)
class _Waits:
    """Waits of streams for events, in order of time. ``issued`` is the start of the call that made the stream wait."""

    stream: Array
    process: Array
    event: Ints
    event_sync: Ints
    issued: Ints

    def __len__(self) -> int:
        return len(self.stream)


def _recorded_waits(trace: Trace) -> _Waits:
    rows = np.flatnonzero((trace.array("syncs", "kind") == _STREAM_WAIT) & (trace.array("syncs", "stream_track") >= 0))
    take = {name: trace.array("syncs", name)[rows] for name in ("stream_track", "process", "event", "event_sync")}
    issued = submitted_at(trace, "syncs", rows)
    return _Waits(take["stream_track"], take["process"], take["event"], take["event_sync"], issued)


def _ends_of_events(trace: Trace, streams: Streams, waits: _Waits) -> Ints:
    """When each awaited event came to pass: NEVER where it stands for nothing, else _UNKNOWN without its record."""
    out = np.full(len(waits), _UNKNOWN, np.int64)
    if not trace.rows("gpu_events"):
        return out
    event = {name: trace.array("gpu_events", name) for name in ("process", "event", "event_sync", "start_ns", "track")}
    recorded = submitted_at(trace, "gpu_events")
    record = _records_of(event, recorded, waits)
    known = np.flatnonzero(record >= 0)
    record = record[known]
    out[known] = streams.end_before(event["track"][record], recorded[record])
    on_device = trace.array("gpu_events", "device_time")[record]
    out[known[on_device]] = event["start_ns"][record[on_device]]
    return out


def _records_of(event: dict[str, Array], recorded: Ints, waits: _Waits) -> Ints:
    """Row of gpu_events that each wait is for: by the record's id, else the event's last record before the wait."""
    if not len(waits):
        return np.zeros(0, np.int64)
    keys, asked = pack(
        [[event["process"], waits.process], [event["event"], waits.event], [event["event_sync"], waits.event_sync]]
    )
    exact = np.where(waits.event_sync >= 0, first_match(keys, asked), -1)
    columns = [[event["process"], waits.process], [event["event"], waits.event]]
    same, wanted = pack(columns)
    keys, asked = pack([*columns, [recorded, waits.issued]])
    order = np.argsort(keys, kind="stable")
    last = order[np.maximum(np.searchsorted(keys[order], asked, side="right") - 1, 0)]
    before = (same[last] == wanted) & (recorded[last] <= waits.issued) & (waits.event_sync < 0)
    return np.where(exact >= 0, exact, np.where(before, last, -1))


def _by_operation(streams: Streams, waits: _Waits, ends: Ints) -> tuple[Ints, Ints]:
    """(rows of Work that a wait stands before, in order; when the last of their events came to pass).

    A wait holds whatever is submitted to its stream after it: the next operation first.
    """
    row = streams.next_operation(waits.stream, waits.issued)
    has = row >= 0
    found, which = np.unique(row[has], return_inverse=True)
    last = np.full(len(found), NEVER, np.int64)
    np.maximum.at(last, which, ends[has])
    return found, last


def _behind_a_wait(trace: Trace, work: Work, streams: Streams, waits: Ints, row: Array) -> Mask:
    """Rows between whose call and that of the operation before them on their stream their thread made a stream wait.

    ``waits`` are the calls that make a stream wait.
    """
    out = np.zeros(len(row), bool)
    call_start, thread = trace.array("calls", "start_ns"), trace.array("calls", "track")
    issued = call_start[work.call[row]]
    before = np.full(len(row), NEVER, np.int64)
    for stream in np.unique(work.track[row]).tolist():
        _, submitted, _ = streams.submitted(stream)
        mine = work.track[row] == stream
        before[mine] = np.append(NEVER, submitted)[np.searchsorted(submitted, issued[mine], side="left")]
    for track in np.unique(thread[waits]).tolist():
        times = call_start[waits[thread[waits] == track]]
        mine = np.flatnonzero(thread[work.call[row]] == track)
        out[mine] = np.searchsorted(times, issued[mine]) > np.searchsorted(times, before[mine])
    return out


def _ended_right_before(work: Work, row: Array, start: Ints, limit: int) -> Ints:
    """The last end of an operation of another stream of the process before each start, if it was near."""
    out = np.full(len(row), NEVER, np.int64)
    process, track = work.process[row], work.track[row]
    for one in np.unique(process).tolist():
        of_process = np.flatnonzero(work.process == one)
        of_process = of_process[np.argsort(work.end[of_process], kind="stable")]
        ends, tracks = work.end[of_process], work.track[of_process]
        # Where the last one is of the same stream, the one before the row of its kind that it stands in.
        new = np.append(True, tracks[1:] != tracks[:-1])
        before = np.flatnonzero(new)[np.cumsum(new) - 1] - 1
        asked = np.flatnonzero(process == one)
        at = np.searchsorted(ends, start[asked], side="right") - 1
        at = np.where((at >= 0) & (tracks[np.maximum(at, 0)] == track[asked]), before[np.maximum(at, 0)], at)
        out[asked] = np.where(at >= 0, ends[np.maximum(at, 0)], NEVER)
    return np.where(start - out <= limit, out, NEVER)
