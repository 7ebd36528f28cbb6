"""What several fixes look for: calls inside steps, usual lengths, host work of a kind."""

from __future__ import annotations

import numpy as np

from profkit.analysis import waits
from profkit.analysis.calls import COPY, GRAPH_LAUNCH, LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import union
from profkit.analysis.replay.device import USUAL_LAUNCH_NS
from profkit.analysis.replay.model import LAUNCH as LAUNCH_EDGE
from profkit.analysis.replay.model import WAIT, Model
from profkit.analysis.replay.waits import SUBMIT_NS
from profkit.analysis.spans import innermost_timeline
from profkit.analysis.work import COPIES
from profkit.model import Array, Ints, Mask
from profkit.schema import COPY_KINDS, STAGES

H2D, D2H, D2D = (COPY_KINDS.index(kind) for kind in ("h2d", "d2h", "d2d"))
MEMSET = COPY_KINDS.index("memset")
LARGE_BYTES = 64_000
"""Up to so much a pageable upload is staged into the command itself: pinned memory makes it no faster."""


def call_names(analysis: Analysis, model: Model) -> Array:
    """Row of ``names`` of each call of the model."""
    return analysis.trace.array("calls", "name")[model.calls.row]


def named(analysis: Analysis, model: Model, *parts: str, without: tuple[str, ...] = ()) -> Ints:
    """Calls whose base name holds one of these texts, and none of ``without``."""
    return np.flatnonzero(_fits(analysis, call_names(analysis, model), parts, without))


def copied_by(analysis: Analysis, model: Model, ops: Ints, *parts: str, without: tuple[str, ...] = ()) -> Mask:
    """Which operations were submitted by calls of such a name."""
    return _fits(analysis, analysis.trace.array("calls", "name")[model.calls.row[model.call[ops]]], parts, without)


def _fits(analysis: Analysis, names: Array, parts: tuple[str, ...], without: tuple[str, ...]) -> Mask:
    if not len(names):
        return np.zeros(0, bool)
    fits = analysis.trace.name_rows(
        lambda name: any(part in name for part in parts) and not any(part in name for part in without), among=names
    )
    mask: Mask = fits[names]
    return mask


def step_of_calls(analysis: Analysis, model: Model) -> Ints:
    """Step of each call: of the device work it submitted, else the one whose range holds its start; -1 for none.

    Steps that no range marks (kernel sequences) reach on the host from their first launch to the next step's.
    """
    process = analysis.trace.array("calls", "process")[model.calls.row]
    out = analysis.step_of_time(model.calls.start, process)
    steps = analysis.steps
    if not len(steps) or analysis.selected is not None:
        return out
    unmarked = np.flatnonzero(steps.host_start < 0)
    if len(unmarked):
        begin = _first_calls(analysis, model)
        for owner in np.unique(steps.process[unmarked]).tolist():
            mine = unmarked[(steps.process[unmarked] == owner) & (begin[unmarked] < _NEVER)]
            calls = np.flatnonzero((process == owner) & (out < 0))
            place = np.searchsorted(begin[mine], model.calls.start[calls], side="right") - 1
            out[calls] = np.where(place >= 0, mine[np.maximum(place, 0)], -1) if len(mine) else -1
    has = np.flatnonzero(model.call >= 0)
    of = steps.of_work[model.row[has]]
    out[model.call[has][of >= 0]] = of[of >= 0]
    return out


_NEVER = np.iinfo(np.int64).max


def _first_calls(analysis: Analysis, model: Model) -> Ints:
    """When the first call of each step began that submitted work of it."""
    begin = np.full(len(analysis.steps) + 1, _NEVER)
    # Rows of the model are of the whole trace, those of steps of what is selected.
    of_work = np.full(len(analysis.whole_work), -1, np.int64)
    of_work[analysis.whole_row(np.arange(len(analysis.work)))] = analysis.steps.of_work
    has = np.flatnonzero(model.call >= 0)
    np.minimum.at(begin, of_work[model.row[has]], model.calls.start[model.call[has]])
    return begin[:-1]


def steady_calls(analysis: Analysis, model: Model, calls: Ints) -> Ints:
    """Those of the calls in steps, or between two of them, behind the last warm-up step.

    None without steps: nothing tells steady state from start-up there.
    """
    steps = analysis.steps
    counted = steps.counted
    if not counted.any():
        return calls[:0]
    begin = np.where(steps.host_start >= 0, steps.host_start, _first_calls(analysis, model))
    first = int(begin[counted].min())
    last = int(max(steps.host_end.max(), begin[begin < _NEVER].max(initial=-1)))
    start = model.calls.start[calls]
    return calls[(start >= first) & (start < last)]


def copies(analysis: Analysis, model: Model) -> tuple[Ints, Ints, Ints]:
    """(operations that are copies with a call, their kind, their bytes)."""
    ops = np.flatnonzero((model.work.table == COPIES) & (model.call >= 0))
    rows = model.work.row[ops]
    trace = analysis.trace
    return ops, trace.array("copies", "kind")[rows], np.maximum(trace.array("copies", "bytes")[rows], 0)


def is_pageable(analysis: Analysis, model: Model, ops: Ints) -> Mask:
    """Which of these copies have pageable memory on their host side."""
    return waits.is_pageable(analysis.trace, model.work.row[ops])


def waiting_calls(model: Model) -> Mask:
    """Which calls wait for the device by one constraint at least."""
    out = np.zeros(len(model.calls), bool)
    out[model.edges.dst[model.edges.kind == WAIT] // 2] = True
    return out


def usual_submit(model: Model, kind: int = COPY) -> int:
    """What a call of this kind takes that waits for nothing, ns: the median of this trace, of launches, or 3 us."""
    free = ~waiting_calls(model)
    lengths = model.calls.own[free & (model.calls.kind == kind)]
    if len(lengths):
        return int(np.median(lengths))
    # Of a call that waits, what comes before its work starts, less what work takes to start.
    edges = model.edges
    inside = edges.bound & (edges.kind == LAUNCH_EDGE) & (edges.src % 2 == 0) & (edges.src < model.first_op)
    inside[inside] = model.calls.kind[edges.src[inside] // 2] == kind
    if inside.any() and (submit := int(np.median(edges.weight[inside])) - usual_start(model)) > 0:
        return submit
    launches = model.calls.own[free & (model.calls.kind == LAUNCH)]
    return int(np.median(launches)) if len(launches) else SUBMIT_NS


def usual_start(model: Model) -> int:
    """From the return of a call that waits for nothing to the start of its work on an idle stream, ns."""
    edges = model.edges
    after = np.flatnonzero((edges.kind == LAUNCH_EDGE) & (edges.src % 2 == 1) & (edges.src < model.first_op))
    alone = after[model.calls.kind[edges.src[after] // 2] != GRAPH_LAUNCH]  # a graph takes longer to begin
    after = alone if len(alone) else after
    return int(np.median(edges.usual[after])) if len(after) else USUAL_LAUNCH_NS


def in_ranges(analysis: Analysis, model: Model, stages: tuple[str, ...]) -> Ints:
    """How much of the host work before each call lies in innermost ranges of these stages, ns."""
    out = np.zeros(len(model.calls), np.int64)
    timeline = innermost_timeline(analysis.ranges)
    codes = [STAGES.index(stage) for stage in stages]
    mine = np.isin(analysis.ranges.stage[timeline.owner], codes) if len(timeline.owner) else np.zeros(0, bool)
    for track in np.unique(timeline.track[mine]).tolist():
        rows = mine & (timeline.track == track)
        covered = union(timeline.start[rows], timeline.end[rows])
        calls = np.flatnonzero((model.calls.track == track) & ~model.calls.fixed)
        until = model.calls.start[calls]
        out[calls] = covered.covered(until - model.calls.gap[calls], until)
    return out
