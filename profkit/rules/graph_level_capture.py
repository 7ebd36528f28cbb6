"""PK501 graph-level capture hides kernels.

What it finds
    CUDA graph launches that were recorded as one piece each, as nsys does by default: the kernels inside have no rows.

Why it costs time
    It costs no run time. It costs the answer: no kernel of the graph can be named, timed or compared, and a tool that
    does not count graph rows calls the GPU idle.

How the cost is computed
    No price. The facts say how much of the busy time is inside such graphs, as a union per device.

What to do
    Record again with --cuda-graph-trace=node (profkit trace does so by default).

When it is wrong
    Node-level tracing costs some overhead for each kernel; for the length of a whole replay the graph level is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.work import GRAPHS
from profkit.model import Finding, Trace, Window, evidence
from profkit.rules import Rule, needs_gpu_rows
from profkit.testing import build_trace, graph, kernel


def check(analysis: Analysis) -> Iterator[Finding]:
    work = analysis.work
    rows = np.flatnonzero(work.table == GRAPHS)
    if not len(rows):
        return
    graph_ns = sum(device.graph_ns for device in analysis.devices)
    busy_ns = sum(device.busy_ns for device in analysis.devices)
    kernels = int((work.table == 0).sum())
    share = text.percent(graph_ns / busy_ns if busy_ns else None)
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:graphs:",
        severity="info",
        message=(
            f"Kernels inside {text.count(len(rows), 'CUDA graph launch', 'CUDA graph launches')} were not recorded: "
            f"{text.ns(graph_ns)} of {text.ns(busy_ns)} busy time ({share}) "
            f"is inside graphs captured as one piece; only {text.count(kernels, 'kernel')} outside of them "
            f"{'is' if kernels == 1 else 'are'} visible"
        ),
        cause="the capture was made at graph level (nsys's default)",
        advice=RULE.advice,
        facts={"graph_launches": len(rows), "graph_ns": graph_ns, "busy_ns": busy_ns, "visible_kernels": kernels},
        evidence=(
            evidence("graphs", work.row[rows], window=Window(int(work.start[rows[0]]), int(work.end[rows].max()))),
        ),
    )


def fires() -> Trace:
    """Ten graph launches of 9 ms."""
    return build_trace(*(graph(i * 10_000_000, 9_000_000) for i in range(10)))


def quiet() -> Trace:
    """Kernels that are nodes of a graph, each with its row."""
    return build_trace(*(kernel(i * 10_000, 9_000, graph_node=i + 1) for i in range(10)))


RULE = Rule(
    code="PK501",
    title="Graph-level capture hides kernels",
    unmet=needs_gpu_rows,
    check=check,
    advice="Record again with --cuda-graph-trace=node (profkit trace does so by default).",
    fires=fires,
    quiet=quiet,
    is_shown=True,
)
