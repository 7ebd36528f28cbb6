"""Random traces with odd rows: an unchanged replay is the record, and no time lies before what it waits for."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.replay import Model, Times, build_model, edits, how_far, replay
from profkit.analysis.replay.model import ENGINE
from profkit.model import Ints
from profkit.testing import Row, build_trace, call, copy, event_record, graph, kernel, span, stream_wait, sync
from profkit.whatif import what_if

SUBMITS = (
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cudaMemcpyAsync",
    "cudaMemcpy",
    "cudaMemsetAsync",
    "cuModuleLoad",
)
WAITS = (
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventQuery", "cudaMalloc",
    "cudaFree", "cudaStreamWaitEvent", "cudaEventRecord",
)  # fmt: skip
MEMORY = ("pageable", "pinned", "device", "unknown")
SEEDS = range(300)


def random_rows(seed: int) -> list[Row]:
    """Up to 40 rows of two processes, four threads and eight streams, at a scale of 1, 1,000 or 20,000 ns.

    Times are equal, calls overlap, work begins before its call, correlation ids occur several times or nowhere else.
    """
    rng = np.random.default_rng(seed)
    scale = (1, 1_000, 20_000)[seed % 3]
    return [_row(rng, scale) for _ in range(int(rng.integers(1, 40)))]


def _row(rng: np.random.Generator, scale: int) -> Row:
    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    start, dur = int(rng.integers(60)) * scale, int(rng.integers(12)) * scale
    number = int(rng.integers(12)) if rng.random() < 0.9 else -1
    stream = {"pid": one(1, 2), "device": one(0, 1), "stream": one(1, 2)}
    thread = {"pid": one(1, 2), "tid": one(1, 2)}
    event = {"event": one(0, 1), "record": one(-1, 0, 1)}
    kind = rng.random()
    if kind < 0.28:
        return kernel(start, dur, one("gemm", "ncclAllReduce", "k"), correlation=number, **stream)
    if kind < 0.42:
        way = (one("h2d", "d2h", "d2d", "memset"), one(8, 1 << 20), one(*MEMORY), one(*MEMORY))
        return copy(start, dur, *way, correlation=number, **stream)
    if kind < 0.46:
        return graph(start, dur, correlation=number, **stream)
    if kind < 0.70:
        return call(start, dur, one(*SUBMITS), correlation=number, **thread)
    if kind < 0.86:
        return call(start, dur, one(*WAITS), correlation=100 + number, **thread)
    if kind < 0.90:
        return event_record(start, correlation=100 + number, **event, **stream)
    if kind < 0.94:
        return stream_wait(start, correlation=100 + number, **event, **stream)
    if kind < 0.97:
        return span(one("decode", "prefill", "sample", "schedule", "tokenize"), start, 3 * dur, **thread)
    row = sync(start, dur, one("event", "stream", "context"), correlation=100 + number, **thread)
    lane = (stream["pid"], stream["device"], stream["stream"])
    return one(
        row, replace(row, lane=lane, values={**row.values, "event": event["event"], "event_sync": event["record"]})
    )


@cache
def models() -> list[tuple[int, Model]]:
    return [(seed, build_model(Analysis(build_trace(*random_rows(seed))))) for seed in SEEDS]


def check_constraints(model: Model, times: Times) -> None:
    """Nothing is earlier than its constraints allow; copies of one engine do not overlap."""
    points = model.as_points(times)
    edges = model.edges.where(model.edges.kind != ENGINE)
    assert (points[edges.dst] >= points[edges.src] + edges.weight).all()
    assert (times.call_end >= times.call_start + model.calls.own).all()
    follows = np.flatnonzero(~model.calls.fixed)
    assert (times.call_start[follows] >= times.call_end[follows - 1] + model.calls.gap[follows]).all()
    assert (times.end >= times.start + model.dur).all()
    if not model.shared_engine:  # then the stream's own order keeps the engine's
        return
    held = np.isin(
        model.first_op + 2 * np.arange(len(model.work)), model.edges.dst
    )  # others stay, whoever uses the engine
    for engine in np.unique(model.engine[model.engine >= 0]).tolist():
        mine = np.flatnonzero(model.engine == engine)
        mine = mine[np.lexsort((times.end[mine], times.start[mine]))]
        assert ((times.start[mine][1:] >= times.end[mine][:-1]) | ~held[mine][1:]).all()


def test_an_unchanged_replay_is_the_record() -> None:
    shared, differ = 0, []
    for seed, model in models():
        assert (model.edges.weight >= 0).all(), seed
        assert (model.calls.gap >= 0).all(), seed
        assert (model.calls.own >= 0).all(), seed
        times = replay(model)
        shared += model.shared_engine
        if (times.start != model.work.start).any() or (times.end != model.work.end).any():
            assert model.shared_engine, seed
            differ.append(seed)
        check_constraints(model, times)
    # Where copies of several streams meet, their order is found, not taken from the record.
    assert shared > 20
    assert len(differ) <= 1, differ


def _shorter(rng: np.random.Generator, values: Ints) -> Ints:
    return np.where(rng.random(len(values)) < 0.5, values, (values * rng.random(len(values))).astype(np.int64))


def test_what_only_gets_shorter_makes_nothing_later() -> None:
    for seed, model in models():
        rng = np.random.default_rng(seed)
        before = replay(model)
        changed = edits.with_length(model, np.arange(len(model.work)), _shorter(rng, model.dur))
        calls = np.arange(len(model.calls))
        changed = edits.with_own(changed, calls, _shorter(rng, model.calls.own))
        changed = edits.with_gap(changed, calls, _shorter(rng, model.calls.gap))
        after = replay(changed)
        check_constraints(changed, after)
        if not model.shared_engine:  # what comes first on an engine may hold up what matters more
            assert (after.end <= before.end).all(), seed
            assert (after.call_end <= before.call_end).all(), seed


def test_what_gets_longer_is_held_by_its_constraints_too() -> None:
    for seed, model in models():
        rng = np.random.default_rng(seed)
        ops, calls = np.arange(len(model.work)), np.arange(len(model.calls))
        changed = edits.with_length(model, ops, model.dur + rng.integers(0, 100_000, len(ops)))
        changed = edits.with_own(changed, calls, model.calls.own + rng.integers(0, 100_000, len(calls)))
        times = replay(changed)
        check_constraints(changed, times)
        if not model.shared_engine:
            assert (times.end >= replay(model).end).all(), seed


@pytest.mark.parametrize(
    "edit", [edits.without_waits, edits.without_calls, edits.without_ops, edits.on_own_stream], ids=lambda e: e.__name__
)
def test_edits_leave_a_model_that_can_be_replayed(edit: Any) -> None:
    of_ops = edit in (edits.without_ops, edits.on_own_stream)
    for seed, model in models():
        rng = np.random.default_rng(seed)
        n = len(model.work) if of_ops else len(model.calls)
        if not n:
            continue
        chosen = np.flatnonzero(rng.random(n) < 0.4)
        changed = edit(model, chosen)
        check_constraints(changed, replay(changed))
        assert how_far(changed).window_ns == how_far(model).window_ns


def test_any_trace_has_an_answer() -> None:
    """Every fix by itself, then all of them together, on traces that make no sense."""
    for seed in SEEDS[::5]:
        trace = build_trace(*random_rows(seed))
        alone = what_if(trace)
        assert not [fix for fix in alone.fixes if fix.known and not alone.trust.holds], seed
        together = what_if(trace, [fix.fix for fix in alone.fixes])
        assert [fix.fix for fix in together.fixes] == [fix.fix for fix in alone.fixes], seed
        assert (together.predicted is None) == (not alone.trust.holds or not alone.fixes or bool(alone.why_not)), seed
