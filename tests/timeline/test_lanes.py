"""Which lanes a trace has, and what stands on them."""

import numpy as np

from profkit.analysis.context import Analysis
from profkit.model import Trace, Window
from profkit.testing import build_trace, call, copy, graph, kernel, launch, os_call, span
from profkit.timeline.lanes import (
    call_lanes,
    idle_lanes,
    merged,
    range_lanes,
    request_lanes,
    stream_lanes,
    whole_window,
)


def _words(lane: object) -> list[str]:
    return [lane.categories[code] for code in lane.category.tolist()]  # type: ignore[attr-defined]


def test_streams_by_device_most_work_first_and_host_copies_on_none() -> None:
    trace = build_trace(
        kernel(0, 10, "flash_fwd", stream=7),
        kernel(0, 90, "nvjet_gemm", stream=9),
        copy(20, 5, "h2d", 64, stream=7),
        copy(20, 500, "h2h", 64, stream=7),
        graph(40, 5, stream=7),
        kernel(3, 4, "rms_norm", device=1),
    )
    lanes = stream_lanes(Analysis(trace))
    assert [(lane.device, lane.label, len(lane)) for lane in lanes] == [
        (0, "stream 9", 1),
        (0, "stream 7", 3),
        (1, "stream 7", 1),
    ]
    assert _words(lanes[1]) == ["attention", "copy_h2d", "graph"]
    assert trace.name(int(lanes[1].name[0])) == "flash_fwd"
    assert lanes[1].name.tolist()[1:] == [-1, -1]


def test_streams_of_two_processes_on_one_device_are_told_apart() -> None:
    lanes = stream_lanes(Analysis(build_trace(kernel(0, 9, pid=100), kernel(0, 5, pid=101))))
    assert [lane.label for lane in lanes] == ["stream 7, pid 100", "stream 7, pid 101"]
    together = merged(lanes, "both")
    assert together.start.tolist() == [0, 0]
    assert sorted(together.end.tolist()) == [5, 9]


def test_a_driver_call_inside_a_runtime_call_is_not_drawn_twice() -> None:
    trace = build_trace(
        call(0, 10, "cudaLaunchKernel"),
        call(2, 5, "cuLaunchKernel", api="driver"),
        call(12, 3, "cudaStreamSynchronize"),
    )
    (lane,) = call_lanes(Analysis(trace))
    assert lane.start.tolist() == [0, 12]
    assert _words(lane) == ["call_launch", "call_sync"]


def _ranges() -> Trace:
    return build_trace(
        span("request#1", 0, 100),
        span("request#2", 50, 100),
        span("decode", 10, 60),
        span("sample", 50, 10),
        span("aten::mm", 20, 5, kind="op"),
        span("helper", 30, 5),
    )


def test_requests_overlap_on_a_lane_of_their_own_and_stages_nest() -> None:
    trace = _ranges()
    (requests,) = request_lanes(trace)
    assert (requests.label, requests.start.tolist()) == ("requests", [0, 50])
    (flame,) = range_lanes(trace)
    assert [trace.name(row) for row in flame.name.tolist()] == ["decode", "sample"]
    assert flame.row.tolist() == [0, 1]
    (close,) = range_lanes(trace, operators=True)
    assert [trace.name(row) for row in close.name.tolist()] == ["decode", "aten::mm", "helper", "sample"]
    assert close.row.tolist() == [0, 1, 1, 1]


def test_without_stages_all_ranges_are_the_flame_and_without_ranges_the_operators() -> None:
    (flame,) = range_lanes(build_trace(span("outer", 0, 10), span("inner", 2, 3), span("aten::mm", 3, 1, kind="op")))
    assert _words(flame) == ["range", "range"]
    (flame,) = range_lanes(build_trace(span("aten::mm", 3, 1, kind="op")))
    assert _words(flame) == ["op"]


def test_idle_gaps_have_the_cause_that_takes_most() -> None:
    trace = build_trace(
        launch("gemm", at=0, start=10_000, dur=10_000, call_dur=5_000),
        span("sample", 20_000, 900_000),
        launch("gemm", at=990_000, start=1_000_000, dur=10_000, call_dur=5_000),
    )
    analysis = Analysis(trace)
    (lane,) = idle_lanes(analysis)
    assert (lane.start.tolist(), lane.end.tolist()) == ([20_000], [1_000_000])
    assert _words(lane) == ["idle_stage_sample"]
    assert analysis.idle.part("stage_sample")[lane.name[0]] == 900_000


def test_the_whole_window_is_the_gpu_s_or_else_the_host_s() -> None:
    assert whole_window(Analysis(build_trace(kernel(10, 5), call(0, 2)))) == Window(10, 15)
    assert whole_window(Analysis(build_trace(os_call(5, 10), span("x", 7, 20)))) == Window(5, 27)
    assert whole_window(Analysis(build_trace())) is None
    assert whole_window(Analysis(build_trace(span("mark", 7, 0, kind="mark")))) is None


def test_lanes_within_a_window_keep_what_reaches_into_it() -> None:
    (lane,) = stream_lanes(Analysis(build_trace(kernel(0, 10), kernel(20, 10), kernel(40, 10))))
    assert lane.within(Window(5, 40)).start.tolist() == [0, 20]
    assert lane.within(Window(10, 20)).start.tolist() == []
    assert lane.where(np.asarray([2])).end.tolist() == [50]
