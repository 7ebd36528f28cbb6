"""Rows of the trace, in the order in which a profiler would get them, handed on in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profkit.simulate.ops import GraphRun, Op

BATCH = 20_000
TABLES = (
    "kernels", "copies", "memsets", "graphs", "calls", "syncs", "events", "nodes", "ranges", "os_calls", "sched",
    "overheads",
)  # fmt: skip

Row = tuple[Any, ...]


class Recorder:
    """Collects rows and gives the rows of each table to ``sink(table, rows)`` when there are many, and all at the end.

    kernels, copies, memsets: an Op. graphs: (start, end, op, graph run). calls: (start, end, host, correlation, name).
    syncs: (start, end, host, stream or None, correlation, type, event or -1). events: (stream, correlation, host,
    event). nodes: (start, end, host, node, original or -1). ranges: (start, end, host, name, domain, payload or -1,
    kind, category or ""). os_calls: (start, end, host, name). sched: (time, host, 1 for running). overheads: (start,
    end, host).
    """

    def __init__(self, sink: Callable[[str, list[Any]], None]) -> None:
        self._sink = sink
        self.kernels: list[Op] = []
        self.copies: list[Op] = []
        self.memsets: list[Op] = []
        self.graphs: list[Row] = []
        self.calls: list[Row] = []
        self.syncs: list[Row] = []
        self.events: list[Row] = []
        self.nodes: list[Row] = []
        self.ranges: list[Row] = []
        self.os_calls: list[Row] = []
        self.sched: list[Row] = []
        self.overheads: list[Row] = []

    def kernel(self, op: Op) -> None:
        self.kernels.append(op)
        if len(self.kernels) >= BATCH:
            self.flush()

    def copy(self, op: Op) -> None:
        assert op.copy is not None
        (self.memsets if op.copy.kind < 0 else self.copies).append(op)

    def graph(self, op: Op, graph: GraphRun, end: int) -> None:
        self.graphs.append((graph.start, end, op, graph))

    def flush(self) -> None:
        """Hand on all rows."""
        for table in TABLES:
            rows: list[Any] = getattr(self, table)
            if rows:
                self._sink(table, rows)
                rows.clear()
