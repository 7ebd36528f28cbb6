"""Kernels launched one by one: each run of launches without a wait or a copy between them replayed as one graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from profkit import text
from profkit.analysis.calls import COPY, GRAPH_LAUNCH, LAUNCH, MEMSET, OTHER
from profkit.analysis.constants import constants
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import D2D, copies, in_ranges, step_of_calls
from profkit.analysis.fixes._find import MEMSET as MEMSET_COPY
from profkit.analysis.idle_pieces import CPU_STAGES
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import LAUNCH as LAUNCH_EDGE
from profkit.analysis.replay.model import STREAM, Model
from profkit.model import Ints, Mask

FEWEST = 8
"""Shorter runs of launches gain nothing from a graph of their own."""
STALL_NS = 1_000_000


@dataclass(frozen=True)
class Runs:
    """Runs of launches: their first calls, all later ones, and how many launches each has."""

    first: Ints
    later: Ints
    size: Ints


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return of_runs(analysis, model, find_runs(analysis, model, np.ones(len(model.calls), bool)))


def find_runs(analysis: Analysis, model: Model, keep: Mask) -> Runs:
    """Calls of a thread and a step that launch kernels one behind the other, with no wait and no host copy between."""
    calls = model.calls
    part = np.isin(calls.kind, (LAUNCH, MEMSET, OTHER))
    ops, kind, _ = copies(analysis, model)
    on_device = ops[np.isin(kind, (D2D, MEMSET_COPY))]
    part[model.call[on_device]] |= np.isin(calls.kind[model.call[on_device]], (COPY, MEMSET))
    step = step_of_calls(analysis, model)
    if (step >= 0).any():
        part &= step >= 0
    part &= keep
    joined = np.zeros(len(calls), bool)
    joined[1:] = part[1:] & part[:-1] & (calls.track[1:] == calls.track[:-1]) & (step[1:] == step[:-1])
    number = np.cumsum(part & ~joined) - 1
    launches = np.flatnonzero(part & (calls.kind == LAUNCH))
    size = np.bincount(number[launches], minlength=int(number[-1]) + 1 if len(number) else 0)
    launches = launches[size[number[launches]] >= FEWEST]
    is_first = np.ones(len(launches), bool)
    is_first[1:] = number[launches][1:] != number[launches][:-1]
    first = launches[is_first]
    # From the first launch of a run to its last one everything belongs to the graph, event records too.
    inside = np.flatnonzero(part & (size[number] >= FEWEST)) if len(size) else launches
    start = np.zeros(len(size), np.int64)
    start[number[first]] = first
    end = start.copy()
    end[number[launches]] = launches
    later = inside[(inside > start[number[inside]]) & (inside <= end[number[inside]])] if len(inside) else inside
    return Runs(first, later, size[number[first]] if len(first) else first)


def of_runs(analysis: Analysis, model: Model, runs: Runs) -> Found | None:
    """These runs, each as one graph launch."""
    if not len(runs.first):
        return None
    base, node, source = _launch_cost(model)
    calls = model.calls
    startup, gap, of_gap = _graph_lags(model)
    stays = in_ranges(analysis, model, CPU_STAGES)[runs.later]
    stays = np.where(calls.gap[runs.later] > STALL_NS, calls.gap[runs.later], stays)
    return Found(
        count=len(runs.first) + len(runs.later),
        free=partial(_as_graph, runs=runs, own=np.zeros(len(runs.first), np.int64), stays=stays, startup=-1, gap=gap),
        fixed=partial(_as_graph, runs=runs, own=base + node * runs.size, stays=stays, startup=startup, gap=gap),
        assumed=(
            f"one graph launch takes the host {text.ns(base)} and {text.ns(node)} a node ({source})",
            "host work between the launches is not done when a graph is replayed",
            f"kernels of a graph follow each other {text.ns(gap)} apart ({of_gap})",
        ),
        facts={"graph_launches": len(runs.first), "graph_launch_base_ns": base, "graph_launch_node_ns": node},
        calls=np.union1d(runs.first, runs.later),
    )


def _as_one(model: Model, *, runs: Runs, own: Ints, stays: Ints) -> Model:
    model = edits.with_own(edits.without_waits(model, runs.first), runs.first, own)
    stays = np.minimum(model.calls.gap[runs.later], stays)
    return edits.with_gap(edits.without_calls(model, runs.later), runs.later, stays)


def _as_graph(model: Model, *, runs: Runs, own: Ints, stays: Ints, startup: int, gap: int) -> Model:
    """As one, with the lags of a graph's kernels where the trace has graphs to measure them on."""
    model = _as_one(model, runs=runs, own=own, stays=stays)
    model = edits.with_start_lag(model, np.flatnonzero(np.isin(model.call, runs.first)), LAUNCH_EDGE, startup)
    return edits.with_start_lag(model, np.flatnonzero(np.isin(model.call, runs.later)), STREAM, gap)


def _graph_lags(model: Model) -> tuple[int, int, str]:
    """(from a graph launch's return to its first node, -1 if not known; from node to node; where that is from), ns."""
    is_graph = np.zeros(len(model.work), bool)
    has = model.call >= 0
    is_graph[has] = model.calls.kind[model.call[has]] == GRAPH_LAUNCH
    edges = model.edges
    op = np.maximum(edges.dst - model.first_op, 0) // 2
    from_end = (edges.dst >= model.first_op) & (edges.src % 2 == 1) & (edges.src != model.origin)
    of_graph = from_end & edges.bound & is_graph[op]
    # From node to node of one launch: what follows a graph that was recorded as one piece is no node of it.
    before = np.clip(edges.src - model.first_op, 0, 2 * len(model.work) - 1) // 2
    inside = (edges.kind == STREAM) & (model.call[before] == model.call[np.minimum(op, len(model.work) - 1)])
    starts, gaps = edges.weight[of_graph & (edges.kind == LAUNCH_EDGE)], edges.weight[of_graph & inside]
    startup = int(np.median(starts)) if len(starts) else -1
    if len(gaps):
        return startup, int(np.median(gaps)), f"median of {len(gaps):,} nodes of this trace"
    usual = edges.usual[from_end & (edges.kind == STREAM)]
    share = float(constants()["graph_launch"]["node_gap_share"])
    gap = int(np.median(usual) * share) if len(usual) else 0
    return startup, gap, f"{share:g} of the gap between kernels of a stream, an estimate"


def _launch_cost(model: Model) -> tuple[int, int, str]:
    """(base, a node more, source) of a graph launch on the host, ns: as this trace's own ones, else as published."""
    own = model.calls.own[model.calls.kind == GRAPH_LAUNCH]
    if len(own):
        return int(np.median(own)), 0, f"median of {len(own):,} graph launches of this trace"
    figures = constants()["graph_launch"]
    return int(figures["base_ns"]), int(figures["node_ns"]), str(figures["source"])


FIX = Fix("cuda-graphs", "PK201", "Replay runs of launches as CUDA graphs", find)
