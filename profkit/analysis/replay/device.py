"""The device side of a model: what the start of each operation had to wait for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.replay.lags import typical
from profkit.analysis.replay.model import ENGINE, EVENT, INFERRED, LAUNCH, STREAM, Calls, Edges
from profkit.analysis.work import COPIES, GRAPHS, Work
from profkit.arrays import previous_in
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import COPY_KINDS, MEMORY_KINDS

USUAL_LAUNCH_NS = 4_000
"""Launch to start on an idle stream, where a trace holds no such launch."""
USUAL_GAP_NS = 1_000
"""End to start of two kernels of one stream, both submitted long before, where a trace holds no such pair."""
NEAR_NS = 20_000
"""An operation that begins within this behind the end of another one may have waited for it."""

_MEMSET = COPY_KINDS.index("memset")
_PAGEABLE = MEMORY_KINDS.index("pageable")
_SORTS = 6
_STAGED = 5


@dataclass(frozen=True)
class _Family:
    """One kind of constraint, for the operations ``op``: from point ``src`` at ``since``, with its usual lag."""

    kind: int
    op: Ints
    src: Ints
    since: Ints
    usual: Ints


def start_edges(trace: Trace, calls: Calls, work: Work, call: Ints, awaited: tuple[Ints, Ints], engine: Ints) -> Edges:
    """Constraints on the start of every operation.

    ``awaited`` are pairs (operation, operation of another stream whose event it waited for). The constraint that was
    met last holds its recorded lag, every other one its usual lag, or less where the record allows no more.
    """
    sort = kind_of_work(trace, calls, work, call)
    copies = _engine(work, engine)
    # What waits for another stream says nothing of the usual lags behind a call or in a stream.
    alone = np.ones(len(work), bool)
    alone[awaited[0]] = alone[copies.op] = False
    launch = _launch(calls, work, call, sort, alone)
    stream = _stream(work, sort, launch, alone)
    families = [launch, stream, _event(work, awaited, stream), copies]
    met = _latest(work, families)
    families.append(_inferred(work, work.start - met, met))
    met = _latest(work, families)
    return Edges.join([_edges(calls, work, family, met) for family in families if len(family.op)])


_LONG_AGO = -(1 << 60)


def kind_of_work(trace: Trace, calls: Calls, work: Work, call: Ints) -> Array:
    """0 kernel, 1 copy, 2 memset, 3 graph in one piece, 4 kernel or copy of a graph, 5 (_STAGED) a pageable copy.

    Their lags differ: a pageable copy begins when the host has staged its first piece.
    """
    sort = np.zeros(len(work), np.int8)
    sort[work.table == GRAPHS] = 3
    copies = np.flatnonzero(work.table == COPIES)
    rows = work.row[copies]
    if len(copies):
        pageable = trace.array("copies", "src_kind")[rows] == _PAGEABLE
        pageable &= (call[copies] >= 0) & (work.start[copies] < calls.end[call[copies]] if len(calls) else False)
        is_memset = trace.array("copies", "kind")[rows] == _MEMSET
        sort[copies] = np.where(is_memset, 2, np.where(pageable, _STAGED, 1))
    for number, name in ((0, "kernels"), (1, "copies")):
        at = np.flatnonzero(work.table == number)
        if len(at):
            sort[at[trace.array(name, "graph_node")[work.row[at]] >= 0]] = 4
    return sort


def _launch(calls: Calls, work: Work, call: Ints, sort: Array, alone: Mask) -> _Family:
    """Submitted by its call: counted from the call's return, or from its start where the device was faster."""
    op = np.flatnonzero(call >= 0)
    of = call[op]
    returned = calls.end[of] <= work.start[op] if len(calls) else np.zeros(0, bool)
    since = np.where(returned, calls.end[of], calls.start[of]) if len(calls) else of
    sane = since <= work.start[op]
    op, of, returned, since = op[sane], of[sane], returned[sane], since[sane]
    before = previous_in(work.track)[op]
    idle = (before < 0) | (work.end[np.maximum(before, 0)] <= calls.start[of] if len(calls) else False)
    group = sort[op].astype(np.int64) * 2 + returned
    lags = typical(work.start[op] - since, group, idle & alone[op], 2 * _SORTS, USUAL_LAUNCH_NS)
    return _Family(LAUNCH, op, 2 * of + returned, since, lags[group])


def _stream(work: Work, sort: Array, launch: _Family, alone: Mask) -> _Family:
    """Behind the operation before it in its stream; one that began before that ended is counted from its start."""
    before = previous_in(work.track)
    op = np.flatnonzero(before >= 0)
    p = before[op]
    overlaps = work.end[p] > work.start[op]
    since = np.where(overlaps, work.start[p], work.end[p])
    # Launched far ahead: then the gap behind the one before is the stream's own.
    ready = np.full(len(work), _LONG_AGO)
    ready[launch.op] = launch.since + launch.usual
    ahead = ~overlaps & alone[op] & (ready[op] > _LONG_AGO) & (ready[op] + USUAL_LAUNCH_NS <= work.end[p])
    lags = typical(work.start[op] - since, sort[op], ahead, _SORTS, USUAL_GAP_NS)
    usual = np.where(overlaps, work.start[op] - since, lags[sort[op]])
    return _Family(STREAM, op, 2 * p + ~overlaps, since, usual)


def _event(work: Work, awaited: tuple[Ints, Ints], stream: _Family) -> _Family:
    op, other = awaited
    fits = work.end[other] <= work.start[op]
    op, other = op[fits], other[fits]
    usual = np.full(len(op), int(np.median(stream.usual)) if len(stream.op) else USUAL_GAP_NS)
    return _Family(EVENT, op, 2 * other + 1, work.end[other], usual)


def _engine(work: Work, engine: Ints) -> _Family:
    """Copies of one engine follow each other: those that begin soon behind the end of one of another stream."""
    rows = np.flatnonzero(engine >= 0)
    before = previous_in(engine[rows])
    at = np.flatnonzero(before >= 0)
    op, p = rows[at], rows[before[at]]
    others = (work.track[p] != work.track[op]) & (work.end[p] <= work.start[op])
    others &= work.start[op] - work.end[p] <= NEAR_NS
    op, p = op[others], p[others]
    return _Family(ENGINE, op, 2 * p + 1, work.end[p], np.zeros(len(op), np.int64))


def _inferred(work: Work, unexplained: Ints, met: Ints) -> _Family:
    """Starts that no recorded constraint explains, right behind the end of another operation of the device.

    That is how a full device, the legacy default stream and events that were not recorded look.
    """
    op = np.flatnonzero((unexplained > 2 * USUAL_GAP_NS) & (met > _LONG_AGO))
    found = np.full(len(op), -1, np.int64)
    for device in np.unique(work.device[op]).tolist():
        rows = np.flatnonzero((work.device == device) & (work.end > work.start))
        rows = rows[np.argsort(work.end[rows], kind="stable")]
        mine = np.flatnonzero(work.device[op] == device)
        at = np.searchsorted(work.end[rows], work.start[op[mine]], side="right") - 1
        found[mine] = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else -1
    safe = np.maximum(found, 0)
    late = work.start[op] - work.end[safe] if len(op) else op
    keep = (found >= 0) & (late <= unexplained[op] // 2) & (late <= NEAR_NS) & (work.end[safe] > met[op])
    op, found = op[keep], found[keep]
    return _Family(INFERRED, op, 2 * found + 1, work.end[found], np.full(len(op), USUAL_GAP_NS))


def _latest(work: Work, families: list[_Family]) -> Ints:
    """When the constraints allow each operation to start, with their usual lags."""
    met = np.full(len(work), _LONG_AGO)
    for family in families:
        np.maximum.at(met, family.op, np.minimum(family.since + family.usual, work.start[family.op]))
    return met


def _edges(calls: Calls, work: Work, family: _Family, met: Ints) -> Edges:
    op, lag = family.op, work.start[family.op] - family.since
    binds: Mask = np.minimum(family.since + family.usual, work.start[op]) == met[op]
    offset = 0 if family.kind == LAUNCH else 2 * len(calls)
    return Edges(
        src=family.src + offset,
        dst=2 * len(calls) + 2 * op,
        weight=np.where(binds, lag, np.minimum(lag, family.usual)),
        kind=np.full(len(op), family.kind, np.int8),
        bound=binds,
        usual=family.usual,
    )
