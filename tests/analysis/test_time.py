"""Busy, idle, stages, steps and requests on traces small enough to compute by hand."""

import numpy as np
import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.steps import DECODE, MIXED, PREFILL
from profkit.analysis.window import parse_window
from profkit.errors import UsageError
from profkit.model import Window
from profkit.testing import build_trace, call, copy, kernel, launch, os_call, span


def test_busy_is_a_union_and_kinds_may_overlap() -> None:
    analysis = Analysis(build_trace(kernel(0, 100), kernel(50, 100, stream=8), copy(140, 60, "h2d", 10)))
    device = analysis.devices[0]
    assert (device.busy_ns, device.kernel_ns, device.copy_ns, device.kernel_sum_ns) == (200, 150, 60, 200)
    assert device.idle_ns == 0
    assert device.busy_share == 1.0


def test_every_device_has_the_same_window() -> None:
    analysis = Analysis(build_trace(kernel(0, 90), kernel(10, 20, device=1), kernel(95, 5, device=1)))
    assert analysis.window == Window(0, 100)
    assert [(d.busy_ns, d.idle_ns) for d in analysis.devices] == [(90, 10), (25, 75)]
    assert analysis.idle.by_cause(1)["startup"] == 10
    assert analysis.idle.by_cause(0)["tail"] == 10


def test_idle_is_cut_where_the_host_changes_state() -> None:
    rows = [
        launch("a", at=0, start=10, dur=90, call_dur=5),
        # The gap is [100, 300): sync until 120, Python to 130, sampling to 200 with a poll in it, Python to 210,
        # an allocation to 240, the launch call to 280, then 20 until the kernel starts.
        call(5, 115, "cudaStreamSynchronize"),
        span("sample", 130, 70),
        os_call(150, 10, "poll"),
        call(210, 30, "cudaMalloc"),
        launch("b", at=240, start=300, dur=10, call_dur=40),
    ]
    parts = Analysis(build_trace(*rows)).idle.by_cause()
    assert {cause: value for cause, value in parts.items() if value} == {
        "sync": 20,
        "python": 20,
        "stage_sample": 60,
        "os_wait": 10,
        "allocator": 30,
        "launch_call": 40,
        "launch_latency": 20,
    }


def test_idle_before_work_without_a_call_is_unknown() -> None:
    parts = Analysis(build_trace(kernel(0, 10), kernel(30, 10))).idle.by_cause()
    assert parts["unknown"] == 20


def test_idle_behind_a_call_that_had_returned_is_latency() -> None:
    rows = [launch("a", at=0, start=10, dur=90, call_dur=5), launch("b", at=20, start=130, dur=10, call_dur=5)]
    parts = Analysis(build_trace(*rows)).idle.by_cause()
    assert parts["launch_latency"] == 30


def test_time_outside_of_collection_is_not_idle() -> None:
    trace = build_trace(kernel(0, 100), kernel(1_000, 100), windows=(Window(0, 200), Window(900, 1_100)))
    parts = Analysis(trace).idle.by_cause()
    assert parts["not_collected"] == 700
    assert parts["unknown"] == 200


def test_idle_of_other_threads_does_not_count() -> None:
    rows = [
        launch("a", at=0, start=10, dur=90, call_dur=5),
        call(100, 100, "cudaStreamSynchronize", tid=200),
        launch("b", at=195, start=200, dur=10, call_dur=5),
    ]
    parts = Analysis(build_trace(*rows)).idle.by_cause()
    assert parts["sync"] == 0
    assert parts["python"] == 95


def test_stage_times_are_inclusive_and_self_times_are_not() -> None:
    rows = [
        span("request#3", 0, 1_000),
        span("decode", 100, 800),
        span("sample", 500, 300),
        launch("a", at=110, start=200, dur=100, call_dur=10),
        launch("b", at=510, start=600, dur=50, call_dur=10),
        launch("c", at=950, start=960, dur=10, call_dur=5),
    ]
    stages = {stage.stage: stage for stage in Analysis(build_trace(*rows)).stages}
    assert (stages["request"].gpu_busy_ns, stages["request"].gpu_self_ns) == (160, 10)
    assert (stages["decode"].gpu_busy_ns, stages["decode"].gpu_self_ns) == (150, 100)
    assert (stages["sample"].gpu_busy_ns, stages["sample"].gpu_self_ns) == (50, 50)
    assert stages["decode"].host(50) == 800
    assert stages["decode"].gpu(99) == 150


def test_a_call_that_reaches_out_of_a_range_is_not_its_own() -> None:
    rows = [span("decode", 0, 100), launch("a", at=90, start=200, dur=10, call_dur=20)]
    stages = Analysis(build_trace(*rows)).stages
    assert stages[0].gpu_busy_ns == 0
    assert stages[0].gpu(50) is None


def _step(kind: str, at: int, **rest: object) -> list:
    return [span(kind, at, 90, **rest), *launch("k", at=at + 5, start=at + 20, dur=50, call_dur=5)]


def test_steps_periods_and_payloads() -> None:
    rows = [_step("prefill", 0, payload=33), _step("decode", 100, payload=2), _step("decode", 200, payload=2)]
    steps = Analysis(build_trace(*rows)).steps
    assert steps.kind.tolist() == [PREFILL, DECODE, DECODE]
    assert steps.index.tolist() == [0, 1, 2]
    assert steps.period.tolist() == [-1, 100, 100]
    assert steps.prefill_tokens.tolist() == [33, -1, -1]
    assert steps.batch.tolist() == [-1, 2, 2]
    assert steps.gpu_end.tolist() == [70, 170, 270]


def test_prefill_and_decode_behind_one_schedule_are_one_mixed_step() -> None:
    rows = []
    for i in range(3):
        t = i * 300
        rows += [span("schedule", t, 10), _step("prefill", t + 20), _step("decode", t + 120)]
    steps = Analysis(build_trace(*rows)).steps
    assert steps.kind.tolist() == [MIXED] * 3
    assert steps.host_start.tolist() == [20, 320, 620]
    assert steps.host_end.tolist() == [210, 510, 810]


def test_a_schedule_inside_a_step_joins_nothing() -> None:
    rows = [
        _step("prefill", 0),
        _step("decode", 100),
        span("schedule", 100, 4),
        _step("decode", 200),
        span("schedule", 200, 4),
    ]
    assert Analysis(build_trace(*rows)).steps.kind.tolist() == [PREFILL, DECODE, DECODE]


def test_inner_steps_do_not_count() -> None:
    rows = [span("decode", 0, 100), span("prefill", 10, 20), span("decode", 40, 20)]
    assert len(Analysis(build_trace(*rows)).steps) == 1


def test_profiler_steps_count_only_without_stages() -> None:
    rows = [span(f"ProfilerStep#{i}", i * 100, 90, kind="annotation") for i in range(5)]
    analysis = Analysis(build_trace(*rows))
    assert (len(analysis.steps), analysis.steps.source) == (5, "profiler_steps")
    analysis = Analysis(build_trace(*rows, _step("decode", 0)))
    assert (len(analysis.steps), analysis.steps.source) == (1, "stages")


def test_a_slow_first_step_is_warm_up_and_position_alone_is_not() -> None:
    slow = [span("ProfilerStep#0", 0, 2_000, kind="annotation")]
    even = [span(f"ProfilerStep#{i + 7}", 3_000 + i * 100, 95, kind="annotation") for i in range(4)]
    assert Analysis(build_trace(*slow, *even)).steps.warm_up.tolist() == [True, False, False, False, False]
    assert not Analysis(build_trace(*even)).steps.warm_up.any()


def test_a_step_cut_off_at_the_end_is_not_complete() -> None:
    rows = [_step("decode", i * 100) for i in range(4)]
    rows.append(span("decode", 400, 90))
    rows.append(span("decode", 500, -1))
    steps = Analysis(build_trace(*rows)).steps
    assert steps.complete.tolist() == [True] * 4 + [False] * 2
    assert len(steps) == 6


def test_requests_one_after_the_other() -> None:
    rows = []
    for i in range(2):
        t = i * 1_000
        rows += [span(f"request#{i}", t, 900), span("prefill", t + 100, 100, payload=33)]
        rows += [span("sample", t + 190 + k * 200, 10, payload=1) for k in range(4)]
    requests = Analysis(build_trace(*rows)).requests
    # The first sample starts inside of the prefill: the first token is its end.
    assert requests.ttft.tolist() == [200, 200]
    assert requests.output_tokens.tolist() == [4, 4]
    assert requests.prompt_tokens.tolist() == [33, 33]
    # (900 - 200) / 3 = 233.33
    assert requests.tpot.tolist() == [233, 233]


def test_overlapping_requests_share_samples() -> None:
    rows = [span("request", i * 10, 1_000 - i * 10, kind="start_end", payload=i + 5) for i in range(2)]
    rows += [span("prefill", 50, 100), *(span("sample", 200 + k * 100, 50, payload=2) for k in range(5))]
    requests = Analysis(build_trace(*rows)).requests
    assert requests.request.tolist() == [5, 6]
    assert requests.output_tokens.tolist() == [5, 5]
    assert requests.ttft.tolist() == [250, 240]
    # (1000 - 250) / 4 = 187.5, half up.
    assert requests.tpot.tolist() == [188, 188]


def test_marks_of_the_instrumenter_win() -> None:
    rows = [
        span("request", 0, 1_000, kind="start_end", payload=7),
        span("request#7 prompt_tokens=33", 1, 0, kind="mark"),
        span("request#7 first_token", 400, 0, kind="mark"),
        span("request#7 output_tokens=4", 999, 0, kind="mark"),
        span("sample", 100, 50),
    ]
    requests = Analysis(build_trace(*rows)).requests
    assert (requests.ttft.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == (
        [400],
        [33],
        [4],
    )
    assert requests.tpot.tolist() == [200]


def test_half_up_division_of_tpot() -> None:
    rows = [
        span("request#1", 0, 103),
        span("prefill", 0, 1),
        span("sample", 0, 1),
        span("sample", 50, 1),
        span("sample", 60, 1),
    ]
    # (103 - 1) / 2 = 51
    assert Analysis(build_trace(*rows)).requests.tpot.tolist() == [51]
    rows[0] = span("request#1", 0, 104)
    assert Analysis(build_trace(*rows)).requests.tpot.tolist() == [52]


def test_one_launch_owns_many_kernels_and_ids_of_processes_stay_apart() -> None:
    rows = [call(0, 20, "cudaGraphLaunch", correlation=50)]
    rows += [kernel(25 + i * 3, 3, correlation=50, graph_node=i + 1) for i in range(30)]
    rows += [call(500, 20, correlation=50, pid=2, tid=2), kernel(600, 5, correlation=50, pid=2)]
    analysis = Analysis(build_trace(*rows))
    assert np.bincount(analysis.work.call).tolist() == [30, 1]
    assert analysis.trace.rows("kernels") == 31


def test_a_window_cuts_rows_at_its_edges() -> None:
    trace = build_trace(kernel(0, 100), kernel(200, 100))
    result = profkit.check(trace, Window(50, 250))
    assert result.summary["window_ns"] == 200
    assert result.summary["devices"][0]["busy_ns"] == 100


def test_a_window_selects_steps_ranges_calls_and_waits() -> None:
    rows = []
    for i in range(10):
        t = i * 1_000
        rows += [span("decode", t, 900), *launch("k", at=t + 5, start=t + 20, dur=500, call_dur=5)]
        rows += [call(t + 30, 510, "cudaStreamSynchronize")]
    trace = build_trace(*rows)
    window = parse_window(trace, "step:3-5")
    # The period of a step runs from the end of the previous step's GPU work to the end of its own.
    assert window == Window(2_520, 5_520)
    result = profkit.check(trace, window)
    summary = result.summary
    assert summary["steps"]["decode"]["count"] == 3
    assert summary["steps"]["decode"]["period_p50_ns"] == 1_000
    assert summary["devices"][0]["busy_ns"] == 3 * 500
    assert summary["counts"]["kernels"] == 3
    assert summary["counts"]["launch_calls"] == 3
    assert [(s["stage"], s["count"], s["gpu_busy_ns"]) for s in summary["stages"]] == [("decode", 3, 1_500)]
    finding = next(f for f in (*result.findings, *result.others) if f.code == "PK303")
    assert (finding.facts["syncs"], finding.facts["steps"]) == (3, 3)
    assert summary["window"] == {"start_ns": 2_520, "end_ns": 5_520, "of": "selected"}


@pytest.mark.parametrize(
    ("words", "window"),
    [
        ("0.0001ms:1350ms", Window(100, 1_350_000_000)),
        ("0us:7µs", Window(0, 7_000)),
        ("0ns:101ns", Window(0, 101)),
        ("105ns:", Window(105, 190)),
        (":150ns", Window(100, 150)),
        ("range:decode", Window(100, 190)),
    ],
)
def test_windows_in_words(words: str, window: Window) -> None:
    assert parse_window(build_trace(*_step("decode", 100)), words) == window


@pytest.mark.parametrize(
    "words",
    [
        "",
        ":",
        "5",
        "1s",
        "2s:1s",
        "1s:1s",
        "1:2",
        "step:9",
        "step:0-9",
        "step:x",
        "step:1-0",
        "range:nope",
        "-1s:2s",
        "1s:2s",
    ],
)
def test_windows_that_are_none(words: str) -> None:
    with pytest.raises(UsageError):
        parse_window(build_trace(*_step("decode", 100)), words)


def test_row_order_changes_nothing() -> None:
    rows = [row for i in range(20) for row in _step("decode", i * 100, payload=1)]
    forward, backward = profkit.check(build_trace(*rows)), profkit.check(build_trace(*rows[::-1]))
    assert forward.summary == backward.summary
