"""NVTX reports of hand-built traces, number by number."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profkit import stats
from profkit.model import Trace
from profkit.schema import SPAN_KINDS
from profkit.testing import Row, build_trace, call, copy, graph, kernel, launch, span

Rows = list[dict[str, Any]]
Given = list[Row | list[Row]]


def ask(trace: Trace, name: str) -> stats.Answer:
    return stats.answer(trace, stats.choose([name])[0])


def table(answer: stats.Answer) -> Rows:
    """Rows by key, in base units; None where absent."""
    assert answer.listing is not None
    keys = [column.key for column in answer.listing.columns]
    columns = [values.to_pylist() for values in answer.listing.values]
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def report(name: str, *rows: Row | list[Row]) -> Rows:
    return table(ask(build_trace(*rows), name))


def columns(rows: Rows, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in rows]


def moved(trace: Trace, name: str, track: int) -> Trace:
    """The trace with the ranges of this name ending on another lane."""
    names = trace.array("spans", "name")
    end = np.where([trace.name(int(row)) == name for row in names], track, trace.array("spans", "end_track"))
    spans = trace.tables["spans"]
    at = spans.schema.get_field_index("end_track")
    column = spans.schema.field(at)
    tables = dict(trace.tables) | {"spans": spans.set_column(at, column, [end.astype(np.int32)])}
    return replace(trace, tables=tables)


NESTED: Given = [
    span("step", 0, 100),
    span("layer", 10, 40),
    span("layer", 15, 20),
    span("layer", 60, 30),
    span("io", 20, 30, kind="start_end", domain="disk"),
]


def test_ranges_by_style_and_name_with_their_domain() -> None:
    assert columns(report("nvtx_sum", *NESTED), "range", "style", "instances", "total_time_ns", "time_percent") == [
        (":step", "PushPop", 1, 100, pytest.approx(100 * 100 / 220)),
        (":layer", "PushPop", 3, 90, pytest.approx(100 * 90 / 220)),
        ("disk:io", "StartEnd", 1, 30, pytest.approx(100 * 30 / 220)),
    ]
    assert columns(report("nvtx_pushpop_sum", *NESTED), "range", "total_time_ns") == [(":step", 100), (":layer", 90)]
    assert report("nvtx_startend_sum", *NESTED) == [
        {
            "time_percent": 100.0, "total_time_ns": 30, "instances": 1, "avg_ns": 30.0, "med_ns": 30.0,
            "min_ns": 30, "max_ns": 30, "stddev_ns": 0.0, "range": "disk:io",
        },
    ]  # fmt: skip


def test_one_name_in_two_styles_and_two_domains_is_four_rows() -> None:
    ranges: Given = [
        span("a", at, 10, kind=kind, domain=domain)
        for at, (kind, domain) in enumerate(
            (kind, domain) for kind in ("push_pop", "start_end") for domain in ("", "net")
        )
    ]
    assert sorted(columns(report("nvtx_sum", *ranges), "range", "style")) == [
        (":a", "PushPop"),
        (":a", "StartEnd"),
        ("net:a", "PushPop"),
        ("net:a", "StartEnd"),
    ]


def test_marks_operators_and_frames_are_no_ranges_and_annotations_are() -> None:
    kinds = [kind for kind in SPAN_KINDS if kind not in ("push_pop", "start_end")]
    rows: Given = [span(kind, i * 10, 5, kind=kind) for i, kind in enumerate(kinds)]
    assert columns(report("nvtx_sum", *rows), "range", "style") == [(":annotation", "PushPop")]
    answer = ask(build_trace(span("m", 0, 0, kind="mark")), "nvtx_sum")
    assert (answer.listing, answer.reason) == (None, "no NVTX ranges in this capture")
    assert ask(build_trace(span("a", 0, 5)), "nvtx_startend_sum").reason == "no NVTX start/end ranges in this capture"


def test_unclosed_ranges_are_no_part_of_sums_and_end_with_the_last_nvtx_event_elsewhere() -> None:
    rows: Given = [
        span("open", 10, -1),
        span("a", 20, 30),
        span("m", 70, 0, kind="mark"),
        launch("k", at=60, start=200, dur=300, call_dur=5),
        launch("late", at=90, start=600, dur=300, call_dur=5),
    ]
    trace = build_trace(*rows)
    answer = ask(trace, "nvtx_sum")
    assert columns(table(answer), "range", "instances", "total_time_ns") == [(":a", 1, 30)]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 unclosed range left out: not seen to end",)
    answer = ask(trace, "nvtx_pushpop_trace")
    assert columns(table(answer), "name", "end_ns", "level") == [(":open", 70, 0), (":a", 50, 1)]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 unclosed range: counted to the last NVTX event, as nsys does",)
    assert columns(table(ask(trace, "nvtx_gpu_proj_trace")), "name", "num_gpu_ops") == [(":open", 1)]


def test_work_that_another_thread_launches_is_named_not_hidden() -> None:
    rows: Given = [span("backward", 0, 10_000, tid=101)]
    rows += [launch("k", at=at * 1_000, start=at * 1_000 + 500, dur=100, call_dur=50, tid=102) for at in range(1, 9)]
    assert ask(build_trace(*rows), "nvtx_gpu_proj_sum").reason == (
        "1 range without GPU work of its own thread left out; 8 launch calls in no range of its own thread: "
        "a range does not own what another thread launches, as autograd does"
    )
    assert columns(report("nvtx_kern_sum", *rows), "nvtx_range", "tid", "kernel_instances") == [(None, 102, 8)]


def test_push_pop_trace_is_the_tree_of_each_thread() -> None:
    rows = report("nvtx_pushpop_trace", *NESTED, span("step", 12, 5, tid=200))
    assert rows[:3] == [
        {
            "start_ns": 0, "end_ns": 100, "duration_ns": 100, "dur_child_ns": 70, "dur_non_child_ns": 30,
            "name": ":step", "pid": 100, "tid": 100, "level": 0, "num_child": 2, "range_id": 1, "parent_id": None,
            "range_stack": ":1", "name_tree": ":step",
        },
        {
            "start_ns": 10, "end_ns": 50, "duration_ns": 40, "dur_child_ns": 20, "dur_non_child_ns": 20,
            "name": ":layer", "pid": 100, "tid": 100, "level": 1, "num_child": 1, "range_id": 2, "parent_id": 1,
            "range_stack": ":1:2", "name_tree": "--:layer",
        },
        {
            "start_ns": 12, "end_ns": 17, "duration_ns": 5, "dur_child_ns": 0, "dur_non_child_ns": 5,
            "name": ":step", "pid": 100, "tid": 200, "level": 0, "num_child": 0, "range_id": 3, "parent_id": None,
            "range_stack": ":3", "name_tree": ":step",
        },
    ]  # fmt: skip
    assert columns(rows[3:], "range_id", "parent_id", "range_stack", "name_tree") == [
        (4, 2, ":1:2:4", "----:layer"),  # 5 is the start/end range
        (6, 1, ":1:6", "--:layer"),
    ]


def test_ranges_of_one_extent_lie_in_each_other_once() -> None:
    rows = report("nvtx_pushpop_trace", span("a", 0, 10), span("b", 0, 10), span("c", 0, 5))
    # Rows with one start are listed shortest first, as nsys does.
    assert columns(rows, "name", "level", "range_stack") == [(":c", 2, ":1:2:3"), (":a", 0, ":1"), (":b", 1, ":1:2")]


def test_projection_reaches_from_the_first_start_to_the_last_end() -> None:
    rows: Given = [
        span("step", 0, 100),
        span("fill", 10, 30),
        span("host", 50, 20),
        launch("gemm", at=12, start=500, dur=50, call_dur=5),
        launch("gemm", at=20, start=300, dur=50, call_dur=5, stream=8),
        launch("norm", at=80, start=400, dur=400, call_dur=5),
    ]
    assert report("nvtx_gpu_proj_trace", *rows) == [
        {
            "name": ":step", "projected_start_ns": 300, "projected_duration_ns": 500, "orig_start_ns": 0,
            "orig_duration_ns": 100, "style": "PushPop", "pid": 100, "tid": 100, "num_gpu_ops": 3, "level": 0,
            "num_child": 1, "range_id": 1, "parent_id": None, "range_stack": ":1",
        },
        {
            "name": ":fill", "projected_start_ns": 300, "projected_duration_ns": 250, "orig_start_ns": 10,
            "orig_duration_ns": 30, "style": "PushPop", "pid": 100, "tid": 100, "num_gpu_ops": 2, "level": 1,
            "num_child": 0, "range_id": 2, "parent_id": 1, "range_stack": ":1:2",
        },
    ]  # fmt: skip
    answer = ask(build_trace(*rows), "nvtx_gpu_proj_trace")
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 range without GPU work of its own thread left out",)


def test_projection_summary_adds_up_by_name_and_style() -> None:
    rows: Given = [
        span("step", 0, 100),
        span("fill", 10, 20),
        span("fill", 40, 30),
        launch("gemm", at=12, start=500, dur=50, call_dur=5),
        launch("gemm", at=20, start=600, dur=50, call_dur=5),
        launch("norm", at=45, start=700, dur=60, call_dur=5),
    ]
    assert report("nvtx_gpu_proj_sum", *rows) == [
        {
            "range": ":step", "style": "PushPop", "total_proj_time_ns": 260, "total_range_time_ns": 100,
            "range_instances": 1, "proj_avg_ns": 260.0, "proj_med_ns": 260.0, "proj_min_ns": 260, "proj_max_ns": 260,
            "proj_stddev_ns": 0.0, "total_gpu_ops": 3, "avg_gpu_ops": 3.0, "avg_range_level": 0.0,
            "avg_num_child": 2.0,
        },
        {
            "range": ":fill", "style": "PushPop", "total_proj_time_ns": 210, "total_range_time_ns": 50,
            "range_instances": 2, "proj_avg_ns": 105.0, "proj_med_ns": 105.0, "proj_min_ns": 60, "proj_max_ns": 150,
            "proj_stddev_ns": pytest.approx(statistics.stdev([60, 150])), "total_gpu_ops": 3, "avg_gpu_ops": 1.5,
            "avg_range_level": 1.0, "avg_num_child": 0.0,
        },
    ]  # fmt: skip


def test_a_graph_launch_of_many_kernels_is_one_operation() -> None:
    rows: Given = [
        span("replay", 0, 100),
        call(10, 5, "cudaGraphLaunch_v10000", correlation=7),
        *(kernel(200 + 10 * i, 8, f"node {i}", correlation=7, graph_node=i) for i in range(5)),
        copy(300, 20, "d2h", 64, correlation=7),
    ]
    assert columns(report("nvtx_gpu_proj_trace", *rows), "num_gpu_ops", "projected_duration_ns") == [(1, 120)]


def test_graphs_recorded_as_one_piece_are_not_projected_and_that_is_said() -> None:
    rows: Given = [span("a", 0, 50), *launch("k", at=1, start=60, dur=5, call_dur=5), graph(100, 900, correlation=1)]
    answer = ask(build_trace(*rows), "nvtx_gpu_proj_trace")
    assert columns(table(answer), "projected_duration_ns") == [(5,)]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 CUDA graph launch recorded as one piece not projected: nsys does not, either",)


def test_only_a_call_that_lies_inside_whole_belongs_to_a_range() -> None:
    ranges: Given = [
        span("edges", 10, 20),
        span("late", 11, 20),
        span("short", 10, 19),
        span("elsewhere", 0, 90, tid=200),
    ]
    rows = report("nvtx_gpu_proj_trace", *ranges, launch("k", at=10, start=50, dur=5, call_dur=20))
    assert columns(rows, "name") == [(":edges",)]


def test_threads_and_processes_own_their_ranges() -> None:
    ranges: Given = [span("step", 0, 100, tid=tid, pid=pid) for pid, tid in ((100, 100), (100, 101), (200, 100))]
    work: Given = [
        launch("k", at=10, start=1_000, dur=5, call_dur=5, tid=101),
        launch("k", at=10, start=2_000, dur=7, call_dur=5, pid=200),
    ]
    rows = report("nvtx_gpu_proj_trace", *ranges, *work)
    assert columns(rows, "pid", "tid", "projected_start_ns") == [(100, 101, 1_000), (200, 100, 2_000)]
    summed = report("nvtx_gpu_proj_sum", *ranges, *work)
    assert columns(summed, "range_instances", "total_proj_time_ns") == [(2, 12)]
    assert columns(report("nvtx_kern_sum", *ranges, *work), "pid", "tid", "total_time_ns") == [
        (100, 101, 5),
        (200, 100, 7),
    ]


def test_one_correlation_id_in_two_processes_is_two_launches() -> None:
    rows: Given = [
        *(span("step", 0, 100, pid=pid) for pid in (1, 2)),
        *(call(10, 5, correlation=7, pid=pid) for pid in (1, 2)),
        kernel(100, 10, correlation=7, pid=2),
    ]
    assert columns(report("nvtx_gpu_proj_trace", *rows), "pid") == [(2,)]


def test_a_range_that_ends_on_another_thread_has_no_projection() -> None:
    rows: Given = [
        span("async", 0, 100, kind="start_end"),
        span("step", 0, 90),
        span("m", 0, 0, kind="mark", tid=200),
        *launch("k", at=5, start=50, dur=5, call_dur=5),
    ]
    trace = build_trace(*rows)
    assert columns(table(ask(trace, "nvtx_gpu_proj_trace")), "name") == [(":async",), (":step",)]
    other = int(np.flatnonzero(trace.array("tracks", "tid") == 200)[0])
    crossing = moved(trace, "async", other)
    answer = ask(crossing, "nvtx_gpu_proj_trace")
    assert columns(table(answer), "name", "level") == [(":step", 0)]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 range left out: ended on another thread",)
    assert columns(table(ask(crossing, "nvtx_sum")), "range") == [(":async",), (":step",)]


def test_a_range_that_began_before_the_capture_has_no_row_and_its_work_stays_outside() -> None:
    rows: Given = [*launch("k", at=0, start=20, dur=5, call_dur=5), *launch("k", at=50, start=80, dur=7, call_dur=5)]
    listed = report("nvtx_kern_sum", *rows, span("step", 40, 50))
    assert columns(
        listed, "nvtx_range", "style", "pid", "tid", "nvtx_instances", "kernel_instances", "total_time_ns"
    ) == [
        (None, None, 100, 100, 0, 1, 5),
        (":step", "PushPop", 100, 100, 1, 1, 7),
    ]


def test_work_without_a_call_is_in_no_range() -> None:
    rows: Given = [span("step", 0, 90), *launch("k", at=5, start=50, dur=5, call_dur=5), kernel(10, 3, "lost")]
    answer = ask(build_trace(*rows), "nvtx_gpu_proj_trace")
    assert columns(table(answer), "num_gpu_ops") == [(1,)]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 kernel in no range: no launch call was recorded",)
    assert columns(report("nvtx_kern_sum", *rows), "nvtx_range", "pid", "kernel_name") == [
        (None, None, "lost"),
        (":step", 100, "k"),
    ]


def test_a_kernel_counts_in_every_range_around_it_and_twice_in_ranges_of_one_name() -> None:
    rows: Given = [
        span("a", 0, 100),
        span("b", 10, 80),
        span("a", 20, 60),
        launch("gemm", at=30, start=200, dur=10, call_dur=5),
        launch("gemm", at=40, start=300, dur=20, call_dur=5),
        launch("norm", at=90, start=400, dur=7, call_dur=5),
    ]
    keys = ("nvtx_range", "nvtx_instances", "kernel_instances", "total_time_ns", "med_ns", "stddev_ns", "kernel_name")
    assert columns(report("nvtx_kern_sum", *rows), *keys) == [
        (":a", 2, 2, 60, 15.0, pytest.approx(statistics.stdev([10, 10, 20, 20])), "gemm"),
        (":a", 1, 1, 7, 7.0, 0.0, "norm"),
        (":b", 1, 2, 30, 15.0, pytest.approx(statistics.stdev([10, 20])), "gemm"),
    ]


def test_kernels_in_ranges_by_short_and_by_mangled_name() -> None:
    rows: Given = [span("a", 0, 100)]
    for at, name in ((10, "void gemm<int>(int)"), (20, "void gemm<float>(float)")):
        rows += launch(name, at=at, start=at + 200, dur=at, call_dur=5)
    assert columns(report("nvtx_kern_sum:base", *rows), "kernel_name", "total_time_ns") == [("gemm", 30)]
    # No mangled name was recorded: the readable one stands for it.
    assert columns(report("nvtx_kern_sum:mangled", *rows), "kernel_name") == [
        ("void gemm<float>(float)",),
        ("void gemm<int>(int)",),
    ]


@pytest.mark.parametrize("name", ["nvtx_gpu_proj_sum", "nvtx_gpu_proj_trace", "nvtx_kern_sum"])
def test_what_a_projection_lacks_is_said(name: str) -> None:
    everything = [span("a", 0, 9), call(1, 2, correlation=1), kernel(5, 1, correlation=1)]
    for table_, rows in (("spans", everything[1:]), ("calls", everything[::2]), ("kernels", everything[:2])):
        answer = ask(build_trace(*rows, missing={table_: f"no {table_}: not traced"}), name)
        assert (answer.listing, answer.reason) == (None, f"no {table_}: not traced")


def test_ranges_without_any_gpu_work_give_a_reason() -> None:
    rows: Given = [span("a", 0, 9), launch("k", at=50, start=60, dur=5, call_dur=5)]
    assert ask(build_trace(*rows), "nvtx_gpu_proj_sum").reason.split("; ")[0] == (
        "1 range without GPU work of its own thread left out"
    )
