"""Late completion stamps are told from real overlap: dependent launch, graph nodes, rows that were not seen to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.late_ends import drawn_lengths, late_end_remark, late_kernels
from profkit.merge import Part, merge_traces
from profkit.model import Trace
from profkit.testing import Row, build_trace, call, kernel

US = 1_000


def late(trace: Trace) -> list[bool]:
    marked: list[bool] = late_kernels(trace).tolist()
    return marked


def test_a_kernel_that_outlasts_later_ones_of_its_stream() -> None:
    trace = build_trace(kernel(0, 1_600_000 * US), kernel(100 * US, 50 * US), kernel(200 * US, 50 * US))
    assert late(trace) == [True, False, False]
    assert drawn_lengths(trace).tolist() == [100 * US, 50 * US, 50 * US]
    assert trace.array("kernels", "dur_ns").tolist() == [1_600_000 * US, 50 * US, 50 * US]
    assert trace.meta.warnings == (late_end_remark(trace),)


def test_a_kernel_that_outlasts_one_behind_the_next() -> None:
    """The next one ends last of all: what is outlasted by both stands behind it."""
    trace = build_trace(kernel(0, 500 * US), kernel(100 * US, 900 * US), kernel(200 * US, 50 * US))
    assert late(trace) == [True, True, False]
    assert drawn_lengths(trace).tolist() == [100 * US, 100 * US, 50 * US]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([kernel(0, 110 * US), kernel(100 * US, 60 * US)], id="dependent launch ends in order"),
        pytest.param([kernel(0, 500 * US), kernel(100 * US, 50 * US, stream=8)], id="another stream"),
        pytest.param([kernel(0, 500 * US, graph_node=1), kernel(9 * US, 5 * US, graph_node=2)], id="nodes of a graph"),
        pytest.param([kernel(0, -1), kernel(100 * US, 50 * US)], id="not seen to end"),
        pytest.param([kernel(0, 500 * US), kernel(100 * US, -1)], id="the later one was not seen to end"),
        pytest.param([kernel(0, 500 * US), kernel(100 * US, 399 * US)], id="ends within what a clock tells apart"),
    ],
)
def test_other_overlap_is_left_alone(rows: list[Row]) -> None:
    trace = build_trace(rows)
    assert late(trace) == [False, False]
    assert (drawn_lengths(trace) == trace.array("kernels", "dur_ns")).all()
    assert late_end_remark(trace) == ""


def test_kernels_of_one_launch_are_nodes_of_a_graph() -> None:
    """Old traces have no ids of graphs; a call that launches several kernels launched one."""
    rows = [kernel(100 * US, 500 * US, correlation=5), kernel(200 * US, 50 * US, correlation=5)]
    assert late(build_trace(call(0, US, "cudaGraphLaunch", correlation=5), rows)) == [False, False]
    plain = [kernel(100 * US, 500 * US, correlation=5), kernel(200 * US, 50 * US, correlation=6)]
    assert late(build_trace(plain)) == [True, False]


def test_joined_traces_keep_the_mark() -> None:
    parts = [Part(Path(f"{i}.json"), build_trace(kernel(i, 900 * US), kernel(50 * US, US))) for i in (0, 1)]
    trace = merge_traces(parts, "built", "both")
    assert late(trace) == [True, True, False, False]
    assert drawn_lengths(trace).tolist() == [50 * US, 50 * US - 1, US, US]
    assert [warning.endswith("(in all 2 files)") for warning in trace.meta.warnings if "late" in warning] == [True]


def test_as_a_plain_loop_would_find_them() -> None:
    rng = np.random.default_rng(5)
    start, dur = rng.integers(0, 400, 60) * 10 * US, rng.integers(1, 60, 60) * 10 * US
    stream = rng.integers(0, 3, 60)
    trace = build_trace(kernel(int(s), int(d), stream=int(q)) for s, d, q in zip(start, dur, stream, strict=True))
    start, dur, track = (trace.array("kernels", column).tolist() for column in ("start_ns", "dur_ns", "track"))
    ends = [s + d for s, d in zip(start, dur, strict=True)]
    later = [[j for j in range(i + 1, 60) if track[j] == track[i]] for i in range(60)]
    expected = [any(ends[j] < ends[i] for j in later[i]) for i in range(60)]
    assert late(trace) == expected
    assert 5 < sum(expected) < 55
    clipped = [start[later[i][0]] - start[i] if expected[i] else dur[i] for i in range(60)]
    assert drawn_lengths(trace).tolist() == clipped
