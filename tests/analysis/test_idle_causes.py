"""One cause for every idle nanosecond: hand-computed traces, one for each cause and each kind of border."""

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import EVERY
from profkit.analysis.idle_table import idle_by_stage, idle_by_step
from profkit.analysis.summary import summarize
from profkit.model import Window
from profkit.testing import (
    Row,
    build_trace,
    call,
    copy,
    kernel,
    launch,
    os_call,
    overhead,
    sched,
    span,
)

Piece = tuple[int, int, str]


def _pieces(*rows: Row | list[Row], device: int = 0, windows: tuple[Window, ...] = ()) -> list[Piece]:
    """(start, end, cause) of the idle time of a device between its first and its last row, in order of time."""
    idle = Analysis(build_trace(*rows, windows=windows)).idle
    pieces = idle.pieces
    columns = zip(pieces.device, pieces.gap, pieces.start, pieces.end, pieces.cause, strict=True)
    found = [(int(start), int(end), EVERY[cause]) for d, gap, start, end, cause in columns if d == device and gap >= 0]
    return sorted(found)


def _between(*rows: Row | list[Row]) -> list[Piece]:
    """Pieces of the gap [100, 300) of device 0, which a launch call at [280, 300) of thread 100 ends."""
    return _pieces(
        launch("a", at=0, start=10, dur=90, call_dur=5), *rows, launch("b", at=280, start=300, dur=10, call_dur=20)
    )


def test_nothing_recorded_is_the_hosts_own_code() -> None:
    assert _between() == [(100, 280, "python"), (280, 300, "launch_call")]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaLaunchKernel", "launch_call"),
        ("cudaGraphLaunch", "launch_call"),
        ("cudaEventRecord", "launch_call"),
        ("cudaStreamWaitEvent", "launch_call"),
        ("cudaMemcpyAsync", "copy_call"),
        ("cudaMemsetAsync", "copy_call"),
        ("cudaStreamSynchronize", "sync"),
        ("cudaEventSynchronize", "sync"),
        ("cudaDeviceSynchronize", "sync"),
        ("cudaMalloc", "allocator"),
        ("cudaFree", "allocator"),
        ("cudaHostAlloc", "allocator"),
        ("cuModuleLoadData", "module_load"),
        ("cudaGraphInstantiate", "module_load"),
        ("cuLinkComplete", "module_load"),
        ("cudaEventQuery", "python"),
        ("cudaStreamCreate", "python"),
    ],
)
def test_calls_by_what_they_do(name: str, cause: str) -> None:
    pieces = _between(call(120, 40, name))
    if cause == "python":
        assert pieces == [(100, 280, "python"), (280, 300, "launch_call")]
    else:
        assert pieces[:3] == [(100, 120, "python"), (120, 160, cause), (160, 280, "python")]


@pytest.mark.parametrize("stage", ["schedule", "tokenize", "sample", "detokenize"])
def test_cpu_stages_are_causes_of_their_own(stage: str) -> None:
    pieces = _between(span("decode", 90, 200), span(stage, 130, 40))
    assert pieces[:3] == [(100, 130, "python"), (130, 170, f"stage_{stage}"), (170, 280, "python")]


def test_other_stages_are_python() -> None:
    assert _between(span("h2d", 130, 40))[0] == (100, 280, "python")


def test_a_stage_inside_a_cpu_stage_is_not_that_stage() -> None:
    pieces = _between(span("sample", 110, 100), span("kv_update", 130, 20))
    assert pieces[:4] == [
        (100, 110, "python"),
        (110, 130, "stage_sample"),
        (130, 150, "python"),
        (150, 210, "stage_sample"),
    ]


def test_an_operating_system_call_wins_over_the_stage_around_it() -> None:
    pieces = _between(span("sample", 120, 100), os_call(150, 20, "futex"))
    assert pieces[1:4] == [(120, 150, "stage_sample"), (150, 170, "os_wait"), (170, 220, "stage_sample")]


def test_an_operating_system_call_inside_a_synchronisation_is_the_synchronisation() -> None:
    pieces = _between(call(120, 100, "cudaStreamSynchronize"), os_call(140, 90, "poll"))
    assert pieces[1:4] == [(120, 220, "sync"), (220, 230, "os_wait"), (230, 280, "python")]


def test_bookkeeping_of_the_profiler_is_no_operating_system_call() -> None:
    row = os_call(140, 90, "pthread_create")
    assert _between(Row(row.table, row.lane, row.name, {**row.values, "event_class": 82}))[0] == (100, 280, "python")


def test_off_the_cpu() -> None:
    pieces = _between(sched(90, True), sched(130, False), sched(190, True), sched(290, False))
    # Taken off again at 290 and never put back as far as is known: nothing is said about that.
    assert pieces == [(100, 130, "python"), (130, 190, "off_cpu"), (190, 280, "python"), (280, 300, "launch_call")]


def test_off_the_cpu_in_a_wait_is_the_wait() -> None:
    off = [sched(110, False), sched(270, True)]
    waits = [call(120, 20, "cudaDeviceSynchronize"), os_call(150, 30, "nanosleep"), call(190, 10, "cudaMemcpy")]
    assert _between(*off, *waits) == [
        (100, 110, "python"),
        (110, 120, "off_cpu"),
        (120, 140, "sync"),
        (140, 150, "off_cpu"),
        (150, 180, "os_wait"),
        (180, 190, "off_cpu"),
        (190, 200, "copy_call"),
        (200, 270, "off_cpu"),
        (270, 280, "python"),
        (280, 300, "launch_call"),
    ]


def test_off_the_cpu_in_a_launch_call_is_off_the_cpu() -> None:
    pieces = _between(sched(285, False), sched(295, True))
    assert pieces[1:] == [(280, 285, "launch_call"), (285, 295, "off_cpu"), (295, 300, "launch_call")]


@pytest.mark.parametrize(
    ("name", "domain"), [("Waiting for GIL", ""), ("wait", "Python GIL"), ("GIL: acquiring", "python")]
)
def test_waiting_for_the_gil(name: str, domain: str) -> None:
    pieces = _between(
        span(name, 120, 60, domain=domain), os_call(125, 50, "futex"), sched(126, False), sched(174, True)
    )
    assert pieces[:3] == [(100, 120, "python"), (120, 180, "gil"), (180, 280, "python")]


@pytest.mark.parametrize("name", ["Holding GIL", "waiting for Gilbert", "wait"])
def test_other_ranges_are_no_wait_for_the_gil(name: str) -> None:
    assert _between(span(name, 120, 60))[0] == (100, 280, "python")


def test_overhead_of_the_profiler_also_inside_a_call() -> None:
    pieces = _between(call(120, 60, "cudaStreamSynchronize"), overhead(130, 10, "buffer_flush"), overhead(200, 10))
    assert pieces[1:7] == [
        (120, 130, "sync"),
        (130, 140, "profiler"),
        (140, 180, "sync"),
        (180, 200, "python"),
        (200, 210, "profiler"),
        (210, 280, "python"),
    ]


@pytest.mark.parametrize("kind", ["driver_jit", "module_loading", "lazy_function_loading"])
def test_loading_that_the_driver_reports_inside_a_launch(kind: str) -> None:
    pieces = _between(overhead(285, 10, kind))
    assert pieces[1:] == [(280, 285, "launch_call"), (285, 295, "module_load"), (295, 300, "launch_call")]


def test_a_full_launch_queue_is_the_launch_call() -> None:
    assert _between(overhead(285, 10, "command_buffer_full"))[1:] == [(280, 300, "launch_call")]


def test_a_call_inside_a_call_is_part_of_it() -> None:
    rows = [call(120, 60, "cudaMemcpyAsync"), call(125, 50, "cuStreamSynchronize", api="driver")]
    assert _between(*rows)[1] == (120, 180, "copy_call")


def test_a_module_that_is_loaded_inside_a_launch_is_module_loading() -> None:
    rows = [call(120, 60, "cudaLaunchKernel"), call(130, 30, "cuModuleLoadData", api="driver")]
    rows.append(call(140, 5, "cuMemAlloc", api="driver"))
    assert _between(*rows)[1:4] == [(120, 130, "launch_call"), (130, 160, "module_load"), (160, 180, "launch_call")]


def test_a_call_of_no_known_kind_shows_what_is_inside_it() -> None:
    rows = [call(120, 60, "cublasCreate_v2"), call(130, 30, "cudaMalloc")]
    assert _between(*rows)[:3] == [(100, 130, "python"), (130, 160, "allocator"), (160, 280, "python")]


def test_a_call_that_straddles_the_start_of_the_gap() -> None:
    pieces = _between(call(50, 80, "cudaStreamSynchronize"))
    assert pieces[:2] == [(100, 130, "sync"), (130, 280, "python")]


def test_a_call_that_straddles_its_end() -> None:
    # The copy starts inside its call, which returns when the copy is done.
    pieces = _pieces(
        launch("a", at=0, start=10, dur=90, call_dur=5),
        call(150, 100, "cudaMemcpy", correlation=7),
        copy(200, 40, "h2d", 100, correlation=7),
    )
    assert pieces == [(100, 150, "python"), (150, 200, "copy_call")]


def test_a_call_that_begins_after_its_own_work() -> None:
    # Clocks that are not aligned: as far as is known the thread had not called yet.
    pieces = _pieces(kernel(0, 100), launch("b", at=220, start=200, dur=50))
    assert pieces == [(100, 200, "python")]


def test_another_thread_decides_nothing() -> None:
    rows = [call(100, 150, "cudaStreamSynchronize", tid=200), os_call(100, 150, "poll", tid=200)]
    assert _between(*rows) == [(100, 280, "python"), (280, 300, "launch_call")]


def test_each_gap_asks_the_thread_of_its_own_call() -> None:
    pieces = _pieces(
        kernel(0, 100),
        call(120, 30, "cudaMalloc", tid=1),
        call(120, 60, "cudaMalloc", tid=2),
        launch("b", at=190, start=200, dur=100, call_dur=10, tid=1),
        call(310, 30, "cudaFree", tid=1),
        call(320, 60, "cudaStreamSynchronize", tid=2),
        launch("c", at=390, start=400, dur=100, call_dur=10, tid=2),
    )
    assert pieces == [
        (100, 120, "python"),
        (120, 150, "allocator"),
        (150, 190, "python"),
        (190, 200, "launch_call"),
        (300, 320, "python"),
        (320, 380, "sync"),
        (380, 390, "python"),
        (390, 400, "launch_call"),
    ]


def test_one_thread_may_keep_two_devices_waiting() -> None:
    rows = [kernel(0, 100), kernel(0, 150, device=1), call(110, 70, "cudaDeviceSynchronize")]
    rows += launch("b", at=190, start=200, dur=10, call_dur=10)
    rows += launch("c", at=200, start=210, dur=10, call_dur=10, device=1)
    assert _pieces(*rows) == [(100, 110, "python"), (110, 180, "sync"), (180, 190, "python"), (190, 200, "launch_call")]
    assert _pieces(*rows, device=1) == [(150, 180, "sync"), (180, 190, "python"), (190, 210, "launch_call")]


def test_time_outside_of_collection_is_cut_out_where_it_lies() -> None:
    rows = [
        kernel(0, 100),
        call(150, 200, "cudaStreamSynchronize"),
        launch("b", at=380, start=400, dur=10, call_dur=20),
    ]
    windows = (Window(0, 200), Window(300, 410))
    assert _pieces(*rows, windows=windows) == [
        (100, 150, "python"),
        (150, 200, "sync"),
        (200, 300, "not_collected"),
        (300, 350, "sync"),
        (350, 380, "python"),
        (380, 400, "launch_call"),
    ]


def test_a_selected_window_cuts_the_gaps_and_their_edges() -> None:
    rows = [launch("a", at=0, start=10, dur=90, call_dur=5), call(150, 50, "cudaMalloc")]
    rows.append(launch("b", at=280, start=300, dur=100, call_dur=20))
    idle = Analysis(build_trace(*rows), Window(50, 350)).idle
    assert {cause: ns for cause, ns in idle.by_cause().items() if ns} == {
        "python": 130, "allocator": 50, "launch_call": 20,
    }  # fmt: skip
    # In this window there is nothing before the gap: the device has not begun.
    idle = Analysis(build_trace(*rows), Window(160, 350)).idle
    assert {cause: ns for cause, ns in idle.by_cause().items() if ns} == {"startup": 140}


def test_startup_and_tail_are_apart() -> None:
    trace = build_trace(kernel(0, 100), kernel(40, 10, device=1), kernel(70, 5, device=1))
    idle = Analysis(trace).idle
    assert {cause: ns for cause, ns in idle.by_cause(1).items() if ns} == {"startup": 40, "unknown": 20, "tail": 25}
    assert {cause: ns for cause, ns in idle.by_cause(0).items() if ns} == {}
    first = [(int(p.gap[i]), EVERY[p.cause[i]]) for p in [idle.pieces] for i in range(2)]
    assert first == [(-1, "startup"), (-1, "tail")]


def test_rows_without_a_length_do_nothing() -> None:
    idle = Analysis(build_trace(kernel(0, 0), kernel(50, 0), call(0, 10))).idle
    assert {cause: ns for cause, ns in idle.by_cause().items() if ns} == {"startup": 50}
    assert len(idle) == 0


def test_idle_time_belongs_to_the_step_and_the_stage_whose_operation_ends_it() -> None:
    rows = [span("prefill", 0, 90), *launch("a", at=0, start=10, dur=80, call_dur=5)]
    rows += [span("decode", 100, 90), *launch("b", at=120, start=130, dur=50, call_dur=10)]
    rows += [span("decode", 200, 90), span("sample", 225, 20), *launch("c", at=230, start=240, dur=50, call_dur=10)]
    rows.append(kernel(300, 10))
    analysis = Analysis(build_trace(*rows))
    by_step = {cause: values.tolist() for cause, values in idle_by_step(analysis).items() if values.any()}
    assert by_step == {
        "python": [0, 30, 45, 0],
        "stage_sample": [0, 0, 5, 0],
        "launch_call": [0, 10, 10, 0],
        "unknown": [0, 0, 0, 10],
    }
    assert idle_by_stage(analysis) == {
        "decode": {"python": 30, "launch_call": 10},
        "sample": {"python": 45, "stage_sample": 5, "launch_call": 10},
        "": {"unknown": 10},
    }


def test_parts_of_gaps() -> None:
    rows = [kernel(0, 100), call(120, 30, "cudaMalloc"), launch("b", at=190, start=200, dur=100, call_dur=10)]
    rows.append(launch("c", at=340, start=360, dur=10, call_dur=10))
    idle = Analysis(build_trace(*rows)).idle
    assert idle.part("allocator").tolist() == [30, 0]
    assert idle.part("python", "allocator").tolist() == [90, 40]
    assert idle.any_of("launch_latency").tolist() == [False, True]
    assert [EVERY[code] for code in idle.main_cause()] == ["python", "python"]
    of_gap = {cause: ns for cause, ns in idle.where(np.asarray([1])).by_cause().items() if ns}
    assert of_gap == {"python": 40, "launch_call": 10, "launch_latency": 10}
    both = {cause: ns for cause, ns in idle.by_cause().items() if ns}
    assert both == {"python": 100, "allocator": 30, "launch_call": 20, "launch_latency": 10}


def test_the_summary_has_idle_time_by_cause_by_stage_and_of_a_mean_step() -> None:
    rows = []
    for i in range(4):
        t = i * 1_000
        rows += [span("decode", t, 900), *launch("k", at=t + 50 + i, start=t + 100, dur=800, call_dur=20)]
    summary = summarize(Analysis(build_trace(*rows)))
    # Three gaps of 200 before the launches of steps 1 to 3, which begin at 51, 52 and 53 and take 20.
    totals = {cause: ns for cause, ns in summary["idle_by_cause"].items() if ns}
    assert totals == {"python": 456, "launch_call": 60, "launch_latency": 84}
    assert summary["idle_by_stage"] == {"decode": totals}
    assert summary["idle_per_step"] == {"python": 152, "launch_call": 20, "launch_latency": 28}
