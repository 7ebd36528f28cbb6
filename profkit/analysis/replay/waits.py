"""Which calls wait for the device, read from when they ended: never from their names alone.

A call that waits ends when work that was submitted before it has ended, plus a wake-up; what it takes by itself is then
what calls of its name take that wait for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profkit.analysis.calls import ALLOCATOR, COPY, LAUNCH, MEMSET, SYNC
from profkit.analysis.replay.events import Records, StreamWaits, last_work, streams_with_work
from profkit.analysis.replay.launch_queue import full_queues
from profkit.analysis.replay.model import POLL, QUEUE, WAIT, Calls, Edges
from profkit.analysis.replay.polls import find_polls, last_ended
from profkit.analysis.work import COPIES, Work, correlated
from profkit.arrays import key_of, previous_in
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import MEMORY_KINDS, SYNC_KINDS

SUBMIT_NS = 3_000
"""What a call takes by itself where no call of its name is seen that waits for nothing: the order of a submission."""
WAKE_NS = 4_000
"""From the end of device work to the return of a synchronisation, where a trace has none that waited."""
STAGED_BYTES = 64 * 1024
"""Up to so many bytes of pageable memory are copied into the command itself, whatever the stream does."""
NEAR_NS = 20_000
"""A synchronisation that returns within this behind the end of some work may have waited for it."""
SKEW_NS = 10_000
"""Clocks of host and device agree to this: a synchronisation can return some microseconds before the work's end."""
MOST_AWAITED = 16
"""Where calls wait for many streams: so many of the operations that each waits for are kept, those that ended last."""
_FEW_PAIRS = 1 << 20

_PAGEABLE = MEMORY_KINDS.index("pageable")
_EVENT, _STREAM, _CONTEXT = (SYNC_KINDS.index(kind) for kind in ("event", "stream", "context"))
_IMPLICIT = ("cudaFree", "cuMemFree", "cudaMallocHost", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister",
             "cudaFreeHost", "cuMemHostAlloc", "cuMemAllocHost", "cuMemHostRegister", "cuMemFreeHost")  # fmt: skip


@dataclass(frozen=True)
class _Pairs:
    """Calls and the operations that they may wait for: each call ends no sooner than point ``end`` of the operation."""

    call: Ints
    op: Ints
    at_start: Mask
    """Counted from the start of the operation, since the call returned before its end: a staged copy, skewed clocks."""


class _LatestPairs:
    """Pairs of a call and an operation that it waits for; of each call those that ended last, where they are many.

    A call that waits for the whole device waits for the last operation of every stream: with thousands of streams that
    is more than a memory holds, and what ended long before the others decides nothing.
    """

    def __init__(self, work: Work, calls: int) -> None:
        self._end, self._calls = work.end, calls
        self._enough = np.full(calls, -1)
        """Of calls that have as many as they need: the end of the earliest of these."""
        self._parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        self._rows = 0

    def add(self, call: Ints, op: Ints) -> None:
        late = self._end[op] > self._enough[call] if len(op) else np.zeros(0, bool)
        call, op = call[late], op[late]
        self._parts.append((call, op))
        self._rows += len(call)
        if self._rows > 2 * MOST_AWAITED * self._calls + _FEW_PAIRS:
            call, op = self.all()
            order = np.lexsort((-self._end[op], call))
            call, op = call[order], op[order]
            place = np.arange(len(call)) - np.searchsorted(call, call)
            self._parts = [(call[place < MOST_AWAITED], op[place < MOST_AWAITED])]
            self._rows = len(self._parts[0][0])
            last = place == MOST_AWAITED - 1
            self._enough[call[last]] = self._end[op[last]]

    def all(self) -> tuple[Ints, Ints]:
        """(calls, operations)."""
        return np.concatenate([part[0] for part in self._parts]), np.concatenate([part[1] for part in self._parts])


def wait_edges(
    trace: Trace, calls: Calls, work: Work, call: Ints, submitted: Ints, records: Records, stream_waits: StreamWaits
) -> tuple[Calls, Edges]:
    """(the calls with what each takes by itself, the constraints on the ends of those that wait)."""
    pairs = [
        _synchronisations(trace, calls, work, submitted, records, stream_waits),
        _blocking_copies(trace, calls, work, call),
        _implicit(trace, calls, work, submitted),
    ]
    call_of = np.concatenate([p.call for p in pairs])
    op = np.concatenate([p.op for p in pairs])
    at_start = np.concatenate([p.at_start for p in pairs])
    since = np.where(at_start, work.start[op], work.end[op]) if len(work) else op
    src = 2 * len(calls) + 2 * op + ~at_start
    kind = np.full(len(op), WAIT, np.int8)
    queue = full_queues(calls, work, call)
    polls, calls = find_polls(trace, calls, work, submitted)
    call_of = np.concatenate((call_of, queue[0], polls[0]))
    src = np.concatenate((src, queue[1], 2 * len(calls) + 2 * polls[1] + 1))
    since = np.concatenate((since, queue[2], work.end[polls[1]]))
    kind = np.concatenate((kind, np.full(len(queue[0]), QUEUE, np.int8), np.full(len(polls[0]), POLL, np.int8)))
    return _with_own(trace, calls, call_of, src, since, kind)


def _with_own(trace: Trace, calls: Calls, call_of: Ints, src: Ints, since: Ints, kind: Array) -> tuple[Calls, Edges]:
    """What calls take by themselves, once those are known that were held up; constraints with their lags."""
    latest = np.full(len(calls), -(1 << 60))
    np.maximum.at(latest, call_of, since)
    held = latest > calls.start
    held[call_of[kind == POLL]] = True  # the work was done before the last query began, but after the first one
    name = trace.array("calls", "name")[calls.row]
    alone = _alone(name, calls, held, trace.rows("names"))
    # What is left after the wait cannot be more than the call took.
    own = np.where(held, np.minimum(alone[name], calls.end - calls.start), calls.own)
    binds = held[call_of] & (since == latest[call_of])
    lag = calls.end[call_of] - since
    usual = _usual_wake(name, calls, lag, binds, held, call_of, trace.rows("names"))
    weight = np.where(binds, lag, np.minimum(lag, usual))
    return replace(calls, own=own), Edges(src, 2 * call_of + 1, weight, kind, binds, usual)


def _usual_wake(name: Array, calls: Calls, lag: Ints, binds: Mask, held: Mask, call_of: Ints, names: int) -> Ints:
    """From the end of what a call waited for to its return, ns: the median of its name; without one, of all
    synchronisations. Calls that do more than wait (cudaFree) go on for long after it, and say nothing of others."""
    syncs = binds & (calls.kind[call_of] == SYNC) if len(calls) else binds
    table = np.full(names + 1, int(np.median(lag[syncs])) if syncs.any() else WAKE_NS, np.int64)
    of = name[call_of]
    for row in np.unique(of[binds]).tolist():
        table[row] = int(np.median(lag[binds & (of == row)]))
    # Calls that are no mere waits (cudaFree, a staged copy) do their own work after the wait.
    works = (calls.kind[call_of] != SYNC) & ~held[call_of] if len(calls) else binds
    return np.where(works, (calls.end - calls.start)[call_of], table[of]) if len(calls) else table[of]


def _alone(name: Array, calls: Calls, held: Mask, names: int) -> Ints:
    """What calls of each name take that wait for nothing, ns: their median; without such calls that of all submissions.

    A synchronisation that waits for work which was not recorded looks as if it waited for nothing: there the shortest
    call of the name.
    """
    length = calls.end - calls.start
    submits = ~held & np.isin(calls.kind, (LAUNCH, COPY, MEMSET))
    out = np.full(names + 1, int(np.median(length[submits])) if submits.any() else SUBMIT_NS, np.int64)
    for row in np.unique(name[held]).tolist():
        mine = name == row
        free = length[mine & ~held]
        if len(free):
            out[row] = int(np.median(free))
        if (calls.kind[mine] == SYNC).any():
            out[row] = min(int(length[mine].min()), SUBMIT_NS)
    return out


def _synchronisations(
    trace: Trace, calls: Calls, work: Work, submitted: Ints, records: Records, stream_waits: StreamWaits
) -> _Pairs:
    """What every stream that a synchronisation covers had to finish as it began: its last operation, and what it was
    told to wait for since."""
    sync = np.flatnonzero(calls.kind == SYNC)
    kind, stream, event_op = _targets(trace, calls, work, sync, records)
    process = trace.array("calls", "process")[calls.row[sync]]
    pairs = _LatestPairs(work, len(sync))
    for track in np.unique(work.track).tolist():
        ops = np.flatnonzero(work.track == track)
        may = (process == work.process[ops[0]]) & (kind != _EVENT)
        may &= (kind != _STREAM) | (stream == track) | (stream < 0)
        mine = np.flatnonzero(may)
        place = _last_before(submitted[ops], calls.start[sync[mine]])
        found = ops[np.maximum(place, 0)]
        # By the device's clock the last operation may begin after the call has returned: the one before it then.
        skewed = (place > 0) & (work.start[found] >= calls.end[sync[mine]])
        skewed &= work.end[found] <= calls.end[sync[mine]] + SKEW_NS
        found = np.where(skewed, ops[np.maximum(place - 1, 0)], found)
        ok = (place >= 0) & _is_done(calls, work, sync[mine], found)
        pairs.add(mine[ok], found[ok])
        _, pending = last_work(work, submitted, stream_waits, track, calls.start[sync[mine]])
        ok = (pending >= 0) & _is_done(calls, work, sync[mine], np.maximum(pending, 0))
        pairs.add(mine[ok], pending[ok])
    call_at, op = pairs.all()
    loose = (kind[call_at] == _STREAM) & (stream[call_at] < 0)
    keep = ~loose | _is_latest(call_at, work.end[op] if len(op) else op, len(sync))
    call_at, op = call_at[keep], op[keep]
    known = np.flatnonzero((kind == _EVENT) & (event_op >= 0))
    known = known[_is_done(calls, work, sync[known], event_op[known])] if len(known) else known
    unknown = np.flatnonzero((kind == _EVENT) & (event_op < 0))
    guessed, guess = _ended_inside(trace, calls, work, sync[unknown], submitted)
    at = np.concatenate((sync[call_at], sync[known], guessed))
    op = np.concatenate((op, event_op[known], guess))
    more = _beyond(trace, calls, work, sync, (at, op), submitted)
    at, op = np.concatenate((at, more[0])), np.concatenate((op, more[1]))
    return _Pairs(at, op, work.end[op] > calls.end[at] if len(at) else np.zeros(0, bool))


def _beyond(
    trace: Trace, calls: Calls, work: Work, sync: Ints, known: tuple[Ints, Ints], submitted: Ints
) -> tuple[Ints, Ints]:
    """Synchronisations that returned long after all that they are known to wait for, right behind other work of their
    process: how a wait for the legacy default stream looks, which waits for every blocking stream."""
    latest = np.full(len(calls), -(1 << 60))
    np.maximum.at(latest, known[0], work.end[known[1]])
    late = sync[(latest[sync] > calls.start[sync]) & (calls.end[sync] - latest[sync] > NEAR_NS)]
    op = last_ended(trace, calls, work, late)
    safe = np.maximum(op, 0)
    near = (op >= 0) & (submitted[safe] < calls.start[late]) if len(work) else op >= 0
    near &= (work.end[safe] > latest[late]) & (calls.end[late] - work.end[safe] <= NEAR_NS) if len(work) else near
    return late[near], op[near]


def _is_done(calls: Calls, work: Work, at: Ints, op: Ints) -> Mask:
    """Whether each operation had ended when the call returned, as far as two clocks can say."""
    mask: Mask = (work.end[op] <= calls.end[at] + SKEW_NS) & (work.start[op] < calls.end[at])
    return mask


def _is_latest(group: Ints, value: Ints, groups: int) -> Mask:
    """Rows that hold the largest value of their group."""
    top = np.full(groups, -(1 << 60))
    np.maximum.at(top, group, value)
    mask: Mask = value == top[group]
    return mask


def _last_before(times: Ints, at: Ints) -> Ints:
    """Position of the last of ``times`` (made monotone) before each ``at``, -1 for none."""
    return np.searchsorted(np.maximum.accumulate(times), at, side="left") - 1


def _targets(trace: Trace, calls: Calls, work: Work, sync: Ints, records: Records) -> tuple[Array, Array, Ints]:
    """(kind, track of the stream or -1, operation before the event or -1) of each synchronisation."""
    names = trace.array("calls", "name")[calls.row[sync]]
    table = np.full(trace.rows("names") + 1, _CONTEXT, np.int8)
    for row in np.unique(names).tolist():
        base = trace.name(int(row), "base")
        table[row] = _EVENT if "Event" in base else _STREAM if "Stream" in base else _CONTEXT
    kind = table[names].astype(np.int64)
    stream = np.full(len(sync), -1, np.int64)
    event_op = stream.copy()
    if not trace.rows("syncs") or not len(sync):
        return kind, stream, event_op
    process, correlation = (trace.array("calls", column)[calls.row[sync]] for column in ("process", "correlation"))
    row = correlated(trace, "syncs", process, correlation)
    hit = row >= 0
    track = streams_with_work(trace, work, trace.array("syncs", "stream_track"))[np.maximum(row, 0)]
    is_stream = hit & (kind == _STREAM)
    stream[is_stream] = track[is_stream]
    event_op[hit] = records.before(trace, row[hit])
    return kind, stream, event_op


def _ended_inside(trace: Trace, calls: Calls, work: Work, at: Ints, submitted: Ints) -> tuple[Ints, Ints]:
    """(calls, the operation of their process that ended last inside each): what a wait without a name was for."""
    op = last_ended(trace, calls, work, at)
    safe = np.maximum(op, 0)
    ok = (op >= 0) & (work.end[safe] > calls.start[at]) & (submitted[safe] < calls.start[at]) if len(work) else op >= 0
    return at[ok], op[ok]


def _blocking_copies(trace: Trace, calls: Calls, work: Work, call: Ints) -> _Pairs:
    """Copies whose call returned no sooner than they were done, and pageable uploads that were staged in the call.

    Before it stages a large pageable upload, the driver waits for the stream: for the operation before the copy.
    """
    op = np.flatnonzero((call >= 0) & (work.table == COPIES))
    of = call[op]
    ok = (calls.kind[of] == COPY) | (calls.kind[of] == MEMSET) if len(calls) else np.zeros(0, bool)
    op, of = op[ok], of[ok]
    if not len(op):
        return _Pairs(op, op, np.zeros(0, bool))
    rows = work.row[op]
    pageable = trace.array("copies", "src_kind")[rows] == _PAGEABLE
    done = _is_done(calls, work, of, op)
    done &= ~_ever_early(trace, calls, of, rows, done)
    staged = ~done & pageable & (work.start[op] < calls.end[of])
    before = previous_in(work.track)[op]
    large = ~done & ~staged & pageable & (trace.array("copies", "bytes")[rows] > STAGED_BYTES) & (before >= 0)
    large &= work.end[np.maximum(before, 0)] <= calls.end[of]
    keep = done | staged
    at = np.concatenate((of[keep], of[large]))
    waited = np.concatenate((op[keep], before[large]))
    return _Pairs(at, waited, work.end[waited] > calls.end[at])


def _ever_early(trace: Trace, calls: Calls, of: Ints, rows: Ints, done: Mask) -> Mask:
    """Copies of a kind (call, direction, memory) that once returned before it was done: that kind does not wait.

    A copy of a few bytes on an idle GPU can be done by chance before its asynchronous call has returned.
    """
    kind = key_of(
        trace.array("calls", "name")[calls.row[of]],
        *(trace.array("copies", name)[rows] for name in ("kind", "src_kind", "dst_kind")),
    )
    mask: Mask = np.isin(kind, kind[~done])
    return mask


def _implicit(trace: Trace, calls: Calls, work: Work, submitted: Ints) -> _Pairs:
    """Allocator calls that drain the device: for the last operation of each stream submitted before them.

    Left out are calls of a name that once returned while such an operation still ran: that name does not drain here.
    """
    name = trace.array("calls", "name")[calls.row]
    by_name = trace.name_rows(lambda name: name.startswith(_IMPLICIT) and "Async" not in name, among=name)
    at = np.flatnonzero((calls.kind == ALLOCATOR) & by_name[name])
    process = trace.array("calls", "process")[calls.row[at]]
    pairs, never = _LatestPairs(work, len(at)), np.zeros(trace.rows("names") + 1, bool)
    for track in np.unique(work.track).tolist() if len(at) else []:
        ops = np.flatnonzero(work.track == track)
        mine = np.flatnonzero(process == work.process[ops[0]])
        place = _last_before(submitted[ops], calls.start[at[mine]])
        mine, op = mine[place >= 0], ops[place[place >= 0]]
        returned = calls.end[at[mine]]
        never[name[at[mine[work.end[op] > returned + SKEW_NS]]]] = True
        pairs.add(mine[work.end[op] <= returned], op[work.end[op] <= returned])
    mine, op = pairs.all()
    drains = ~never[name[at[mine]]]
    return _Pairs(at[mine[drains]], op[drains], np.zeros(int(drains.sum()), bool))
