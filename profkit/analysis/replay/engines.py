"""Copy engines: a device has one for each direction, and copies of all streams wait for each other on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.replay.model import ENGINE, Edges, Model, Times
from profkit.analysis.work import COPIES, Work
from profkit.model import Ints, Trace
from profkit.schema import COPY_KINDS

_H2D, _D2H = COPY_KINDS.index("h2d"), COPY_KINDS.index("d2h")


def copy_engines(trace: Trace, work: Work) -> Ints:
    """The engine of each operation, -1 for none, and for engines on which two recorded copies overlap."""
    out = np.full(len(work), -1, np.int64)
    rows = np.flatnonzero(work.table == COPIES)
    kind = trace.array("copies", "kind")[work.row[rows]] if len(rows) else rows
    for number, direction in enumerate((_H2D, _D2H)):
        mine = rows[kind == direction]
        out[mine] = 2 * work.device[mine].astype(np.int64) + number
    for engine in np.unique(out[out >= 0]).tolist():
        mine = np.flatnonzero(out == engine)
        if (work.start[mine][1:] < np.maximum.accumulate(work.end[mine])[:-1]).any():
            out[mine] = -1
    return out


def shares(work: Work, engine: Ints) -> bool:
    """Whether copies of more than one stream meet on an engine."""
    used = engine >= 0
    pairs = np.unique(np.stack((engine[used], work.track[used].astype(np.int64))), axis=1)
    return bool(len(np.unique(pairs[0])) < pairs.shape[1])


def without_engines(model: Model) -> Model:
    """The same with engines that serve any number of copies at once."""
    return replace(model, edges=model.edges.where(model.edges.kind != ENGINE))


def in_order_of(model: Model, times: Times) -> Model:
    """Engines that serve their copies in the order of their starts in ``times``.

    Two copies that follow each other as recorded keep the lag between them. A copy that nothing else holds (its call
    was not recorded) stays where it was.
    """
    recorded = model.edges.where(model.edges.kind == ENGINE)
    free = without_engines(model)
    held = np.zeros(model.points, bool)
    held[free.edges.dst] = held[recorded.dst] = True
    used = np.flatnonzero(model.engine >= 0)
    order = used[np.lexsort((times.start[used], model.engine[used]))]
    same = (model.engine[order][1:] == model.engine[order][:-1]) & held[model.first_op :: 2][order[1:]]
    before, after = order[:-1][same], order[1:][same]
    n = len(before)
    src = model.first_op + 2 * before + 1
    source, lag = np.full(len(model.work), -1, np.int64), np.zeros(len(model.work), np.int64)
    op = (recorded.dst - model.first_op) // 2
    source[op], lag[op] = recorded.src, recorded.weight
    edges = Edges(
        src=src,
        dst=model.first_op + 2 * after,
        weight=np.where(source[after] == src, lag[after], 0),
        kind=np.full(n, ENGINE, np.int8),
        bound=np.zeros(n, bool),
        usual=np.zeros(n, np.int64),
    )
    return replace(model, edges=Edges.join([free.edges, edges]))
