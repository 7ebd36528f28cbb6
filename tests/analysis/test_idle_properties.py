"""Idle time of random traces: whatever is in them, its pieces are disjoint, inside their gaps, and add up exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import CODES, EVERY
from profkit.analysis.idle_table import idle_by_stage, idle_by_step, idle_table
from profkit.analysis.intervals import state_line, sum_by, union
from profkit.model import Trace, Window
from profkit.testing import (
    Row,
    build_trace,
    call,
    copy,
    event_record,
    kernel,
    os_call,
    overhead,
    sched,
    span,
    stream_wait,
)

CALLS = (
    "cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMalloc", "cuModuleLoadData",
    "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventQuery",
)  # fmt: skip
RANGES = ("decode", "prefill", "sample", "tokenize", "schedule", "Waiting for GIL", "request#1")

_time, _length, _number = st.integers(0, 400), st.integers(0, 60), st.integers(0, 7)
_one, _two = st.integers(0, 1), st.integers(1, 2)
_stream = {"device": _one, "stream": _two, "pid": _two}
_thread = {"tid": _two, "pid": _two}

_row = st.one_of(
    st.builds(kernel, _time, _length, correlation=_number, **_stream),
    st.builds(copy, _time, _length, st.sampled_from(["h2d", "d2h", "h2h"]), st.just(8), correlation=_number, **_stream),
    st.builds(call, _time, _length, st.sampled_from(CALLS), correlation=_number, **_thread),
    st.builds(os_call, _time, _length, **_thread),
    st.builds(overhead, _time, _length, st.sampled_from(["profiler", "module_loading"]), **_thread),
    st.builds(sched, _time, st.booleans(), **_thread),
    st.builds(span, st.sampled_from(RANGES), _time, _length, **_thread),
    st.builds(event_record, _time, _one, record=_number, correlation=_number, **_stream),
    st.builds(stream_wait, _time, _one, record=_number, correlation=_number, **_stream),
)
_rows = st.lists(_row, min_size=1, max_size=30)
_edges = st.lists(st.integers(0, 460), min_size=2, max_size=4, unique=True).map(sorted)


def _trace(rows: list[Row], edges: list[int]) -> Trace:
    windows = tuple(Window(*edges[i : i + 2]) for i in range(0, len(edges) - 1, 2))
    return build_trace(*rows, windows=windows)


def _busy(trace: Trace, window: Window, device: int) -> set[int]:
    """Every nanosecond of the window in which a device works, one by one."""
    out: set[int] = set()
    for table in ("kernels", "copies"):
        tracks = trace.array("tracks", "device")[trace.array(table, "track")]
        for i in np.flatnonzero(tracks == device).tolist():
            if table == "copies" and trace.array("copies", "kind")[i] == 4:  # host to host
                continue
            start = int(trace.array(table, "start_ns")[i])
            out |= set(range(start, start + int(trace.array(table, "dur_ns")[i])))
    return {at for at in out if window.start_ns <= at < window.end_ns}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_rows, st.one_of(st.just([]), _edges), st.one_of(st.none(), st.tuples(_time, st.integers(1, 200))))
def test_every_idle_nanosecond_has_one_cause(rows: list[Row], edges: list[int], chosen: tuple[int, int] | None) -> None:
    trace = _trace(rows, edges)
    analysis = Analysis(trace, Window(chosen[0], chosen[0] + chosen[1]) if chosen else None)
    idle, window = analysis.idle, analysis.window
    if window is None or not analysis.has_gpu_rows:
        assert len(idle.pieces) == 0
        return
    pieces = idle.pieces
    for device in np.unique(analysis.work.device).tolist():
        mine = np.flatnonzero(pieces.device == device)
        seen = [at for i in mine for at in range(pieces.start[i], pieces.end[i])]
        assert len(seen) == len(set(seen))
        assert set(seen) == set(range(window.start_ns, window.end_ns)) - _busy(trace, window, device)
        assert sum(idle.by_cause(device).values()) == len(seen)
    assert (pieces.end > pieces.start).all()
    assert (np.diff(pieces.gap) >= 0).all()
    inner = pieces.gap >= 0
    gap = pieces.gap[inner]
    assert (pieces.start[inner] >= idle.start[gap]).all()
    assert (pieces.end[inner] <= idle.end[gap]).all()
    assert (pieces.device[inner] == idle.device[gap]).all()
    assert np.isin(pieces.cause[~inner], [CODES["startup"], CODES["tail"]]).all()
    assert (idle.part(*EVERY) == idle.length).all()
    _adds_up(analysis)


def _adds_up(analysis: Analysis) -> None:
    """Steps, stages, gaps and the table are sums of the same pieces."""
    idle = analysis.idle
    totals = idle.by_cause()
    assert {cause: int(values.sum()) for cause, values in idle_by_step(analysis).items()} == totals
    by_stage = idle_by_stage(analysis).values()
    assert {cause: sum(part.get(cause, 0) for part in by_stage) for cause in EVERY} == totals
    inside = {cause: ns for cause, ns in totals.items() if cause not in ("startup", "tail")}
    assert {cause: int(idle.part(cause).sum()) for cause in inside} == inside
    assert {k: v for k, v in idle.where(np.arange(len(idle))).by_cause().items() if k in inside} == inside
    for gap in range(len(idle)):
        of_gap = idle.where(np.asarray([gap])).by_cause()
        assert sum(of_gap.values()) == idle.length[gap]
        assert of_gap[EVERY[idle.main_cause()[gap]]] == max(of_gap.values())
    table = idle_table(analysis)
    start, dur, device = (table.column(name).to_numpy() for name in ("start_ns", "dur_ns", "device"))
    assert dur.sum() == sum(totals.values())
    assert (np.diff(start)[np.diff(device) == 0] >= 0).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_rows)
def test_the_order_of_the_rows_changes_nothing(rows: list[Row]) -> None:
    # Rows that differ only in their lane or kind are put in the order in which they come.
    distinct = {(row.table, int(row.values.get("start_ns", row.values.get("time_ns", 0)))): row for row in rows}
    rows = list(distinct.values())
    forward, backward = Analysis(build_trace(*rows)).idle, Analysis(build_trace(*rows[::-1])).idle
    assert forward.by_cause() == backward.by_cause()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_rows, st.integers(1, 3))
def test_answering_in_parts_changes_nothing(rows: list[Row], size: int) -> None:
    trace = build_trace(*rows)
    whole = Analysis(trace).idle.pieces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profkit.analysis.idle.CHUNK_GAPS", size)
        parts = Analysis(trace).idle.pieces
    for name in ("device", "start", "end", "cause", "gap"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()


def test_sums_are_exact_beyond_what_floats_hold() -> None:
    values = np.asarray([(1 << 60) + 1, 3, (1 << 60) - 1, -7, 1 << 53], np.int64)
    assert sum_by(np.asarray([0, 1, 0, 1, 3]), values, 4).tolist() == [1 << 61, -4, 0, 1 << 53]
    assert sum_by(np.zeros(0, np.int64), values[:0], 2).tolist() == [0, 0]


def test_a_state_line_is_cut_by_queries_of_any_order() -> None:
    layers = [
        (np.asarray([0, 0]), np.asarray([10, 40]), np.asarray([20, 60])),
        (np.asarray([1]), np.asarray([15]), np.asarray([40])),
    ]
    line = state_line(layers, np.asarray([0, 1, 2, 3]))
    assert (line.at[1:].tolist(), line.code.tolist()) == ([10, 15, 20, 40, 60], [0, 1, 3, 2, 1, 0])
    query, start, end, code = line.cut(np.asarray([18, 0, 70, 30]), np.asarray([45, 12, 80, 30]))
    assert query.tolist() == [0, 0, 0, 1, 1, 2]
    assert start.tolist() == [18, 20, 40, 0, 10, 70]
    assert end.tolist() == [20, 40, 45, 10, 12, 80]
    assert code.tolist() == [3, 2, 1, 0, 1, 0]


def test_runs_are_the_union_and_say_which_row_begins_them() -> None:
    rows = [
        kernel(0, 10),
        kernel(5, 10, stream=8),
        kernel(15, 5),
        kernel(30, 0),
        kernel(40, 5),
        kernel(40, 9, stream=8),
    ]
    analysis = Analysis(build_trace(*rows, kernel(2, 3, device=1)))
    merged = union(analysis.work.start[analysis.work.device == 0], analysis.work.end[analysis.work.device == 0])
    run = analysis.runs[0]
    assert (run.start.tolist(), run.end.tolist()) == (merged.start.tolist(), merged.end.tolist()) == ([0, 40], [20, 49])
    assert analysis.work.start[run.first].tolist() == [0, 40]
