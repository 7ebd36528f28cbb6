"""Rules about the capture itself: what is usual is no warning, what makes numbers doubtful is one."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.devices import only_device
from profkit.analysis.window import parse_window
from profkit.judge import judged, run_rules
from profkit.model import Finding, Trace, Window
from profkit.rules import all_rules
from profkit.testing import Row, build_trace, call, copy, kernel, launch, overhead, span

RULES = all_rules()
CAPTURE = ("PK504", "PK505", "PK506", "PK507", "PK508", "PK509", "PK510")
CORPUS = Path(os.environ.get("PROFKIT_CORPUS", "/nowhere"))


def flat(rows: Iterable[Any]) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, Row):
            yield row
        else:
            yield from flat(row)


def made(*rows: Any, **rest: Any) -> Trace:
    """A trace of rows in lists of whatever depth."""
    return build_trace(flat(rows), **rest)


def findings(code: str, trace: Trace, selected: Window | None = None) -> list[Finding]:
    analysis = Analysis(trace, selected)
    assert not RULES[code].unmet(analysis)
    return [item.finding for item in judged(RULES[code], analysis)]


def one(code: str, trace: Trace, selected: Window | None = None) -> Finding:
    (finding,) = findings(code, trace, selected)
    return finding


def launches(count: int, every: int = 10_000, at: int = 0) -> list[Any]:
    return [launch("gemm", at=at + i * every, start=at + i * every + 6_000, dur=2_000) for i in range(count)]


# PK504


def test_a_queue_at_the_start_and_at_the_end_is_usual() -> None:
    before = [kernel(-20_000 + i * 1_000, 900, correlation=i + 1) for i in range(5)]
    after = [call(1_000_000 + i * 10_000, 5_000, correlation=i + 7) for i in range(5)]
    finding = one("PK504", made(before, launches(100), after))
    assert finding.severity == "info"
    assert finding.facts["gpu_rows_without_call"] == finding.facts["gpu_rows_without_call_at_start"] == 5
    assert finding.facts["launches_without_gpu_row"] == finding.facts["launches_without_gpu_row_at_end"] == 5
    assert "5 of 105 GPU rows (4.8 %)" in finding.message
    assert "5 of 105 launches (4.8 %)" in finding.message
    assert [item.table for item in finding.evidence] == ["kernels", "calls"]


def test_rows_that_are_missing_in_between_make_numbers_doubtful() -> None:
    missing = [call(400_000 + i * 10_000 + 8_500, 1_000, correlation=i + 1) for i in range(12)]
    finding = one("PK504", made(launches(100), missing))
    assert finding.severity == "warning"
    assert finding.facts["launches_without_gpu_row_at_end"] == 0
    assert "12 of 112 launches (10.7 %) have no GPU row, none of them at an edge" in finding.message


def test_short_kernels_before_long_graphs_are_no_warning() -> None:
    before = [kernel(-20_000 + i * 1_000, 900, correlation=i + 1) for i in range(12)]
    rows = [launch("graph", at=i * 2_000_000, start=i * 2_000_000 + 9_000, dur=1_500_000) for i in range(20)]
    assert one("PK504", made(before, rows)).severity == "info"


@pytest.mark.parametrize("opened", [True, False])
def test_launches_that_a_capture_took_are_not_missing(opened: bool) -> None:
    begin = [call(2_000_000, 1_000, "cudaStreamBeginCapture")] if opened else []
    taken = [call(2_010_000 + i * 5_000, 4_000, correlation=i + 1) for i in range(40)]
    end = call(2_300_000, 1_000, "cudaStreamEndCapture_v10000")
    first = launches(100, at=0 if opened else 3_000_000)
    assert not findings("PK504", made(first, begin, taken, end, launches(10, at=5_000_000)))


def test_what_needs_no_other_half_is_not_counted() -> None:
    rows: list[Any] = [*launches(100)]
    rows += [copy(i * 10_000 + 8_500, 100, "um_h2d", 4_096) for i in range(30)]
    rows += [call(500_000 + i, 0, "cudaLaunchHostFunc_v10000", correlation=i + 1) for i in range(20)]
    assert not findings("PK504", made(rows))


def test_a_kernel_that_was_open_at_the_end_is_said() -> None:
    finding = one("PK504", made(launches(20), call(300_000, 5_000, correlation=1), kernel(306_000, -1, correlation=1)))
    assert finding.severity == "info"
    assert finding.message == "1 of 21 GPU rows was open or cut at an edge of the capture"


def test_processes_without_any_row_are_another_finding() -> None:
    rows = [launches(20), [call(i * 10_000, 5_000, correlation=i, pid=7, tid=7) for i in range(20)]]
    assert not findings("PK504", made(*rows))
    assert findings("PK502", made(*rows))


def test_a_window_counts_what_lies_in_it() -> None:
    missing = [call(400_000 + i * 10_000 + 8_500, 1_000, correlation=i + 1) for i in range(12)]
    trace = made(launches(100), missing)
    assert not findings("PK504", trace, Window(0, 390_000))
    assert one("PK504", trace, Window(400_000, 600_000)).facts["launches"] == 20 + 12


@pytest.mark.parametrize("processes", [1, 2])
def test_of_one_device_alone_the_launches_of_others_are_not_missing(processes: int) -> None:
    first = launches(50)
    pid = 100 + processes - 1
    second = [
        launch(
            "gemm", at=i * 10_000 + 7_000, start=i * 10_000 + 13_000, dur=900, call_dur=900, device=1, pid=pid, tid=pid
        )
        for i in range(50)
    ]
    trace = made(first, second)
    assert not findings("PK504", trace)
    for device in (0, 1):
        assert not findings("PK504", only_device(trace, device))


# PK505


def test_ranks_that_launched_are_said_once() -> None:
    rows = [launches(20), [call(i * 10_000, 5_000, correlation=i, pid=7, tid=7) for i in range(20)]]
    trace = made(*rows, ranks={100: 0, 7: 1})
    assert not findings("PK505", trace)
    assert findings("PK502", trace)


def test_without_ranks_it_is_not_judged() -> None:
    assert RULES["PK505"].unmet(Analysis(made(launches(3))))


# PK506


def steps(count: int, *, own: Callable[[int], int], kind: str = "buffer_flush") -> Trace:
    rows: list[Any] = []
    for i in range(count):
        t = i * 1_000_000
        rows.append(span("decode", t, 900_000, payload=1))
        rows += launches(10, 50_000, t)
        if own(i):
            rows.append(overhead(t + 600_000, own(i), kind))
    return made(*rows)


def test_a_few_long_flushes_change_no_median() -> None:
    finding = one("PK506", steps(20, own=lambda i: 250_000 if i % 5 == 0 else 0))
    assert finding.severity == "info"
    assert finding.facts["profiler_own_ns"] == 1_000_000
    assert "in 4 pieces, the longest 250 µs; the median step holds nothing of it" in finding.message
    assert "not known" in finding.message
    assert finding.saving_ns == -1


def test_a_profiler_in_every_step_makes_steps_doubtful() -> None:
    finding = one("PK506", steps(20, own=lambda i: 100_000))
    assert finding.severity == "warning"
    assert finding.facts["profiler_own_ns_per_median_step"] == 100_000


def test_the_driver_is_no_profiler() -> None:
    assert not findings("PK506", steps(20, own=lambda i: 100_000, kind="module_loading"))


def test_launches_that_are_slow_with_nothing_queued() -> None:
    rows = [launch("gemm", at=i * 200_000, start=i * 200_000 + 50_000, dur=20_000, call_dur=48_000) for i in range(120)]
    finding = one("PK506", made(rows))
    assert finding.facts["launch_p10_ns"] == finding.facts["launch_p50_ns"] == 48_000
    assert finding.severity == "warning"
    assert "120 launch calls onto an idle GPU took 48.0 µs or longer" in finding.message


def test_launches_that_wait_for_the_gpu_are_not_slow() -> None:
    blocking = [
        launch("gemm", at=i * 200_000, start=i * 200_000 + 5_000, dur=90_000, call_dur=100_000) for i in range(120)
    ]
    queued = [launch("gemm", at=i * 50_000, start=9_000 + i * 50_000, dur=50_000, call_dur=48_000) for i in range(120)]
    assert not findings("PK506", made(blocking))
    assert RULES["PK506"].unmet(Analysis(made(queued)))


# PK507


def decode(lengths: list[int], at: int = 0) -> list[Any]:
    rows: list[Any] = []
    for length in lengths:
        rows.append(span("decode", at, length - 1_000, payload=1))
        rows.append(launch("gemm", at=at + 100, start=at + 10_000, dur=length - 12_000))
        at += length
    return rows


def test_a_slow_first_step_of_many_is_a_note() -> None:
    finding = one("PK507", made(decode([1_000_000, *[100_000] * 100])))
    assert finding.severity == "info"
    assert finding.facts["warm_up_steps"] == 1
    assert "1 of 101 steps that took over twice the median" in finding.message
    assert "medians of steps leave it out" in finding.message
    assert "--window step:1-100" in finding.advice


def test_the_window_that_is_advised_has_no_warm_up() -> None:
    trace = made(decode([3_000_000, *[100_000] * 20]))
    assert one("PK507", trace).severity == "warning"
    assert not findings("PK507", trace, parse_window(trace, "step:1-20"))


def test_work_before_the_first_step_is_warm_up() -> None:
    loading = [launch("load", at=i * 100_000, start=i * 100_000 + 9_000, dur=90_000) for i in range(50)]
    finding = one("PK507", made(loading, decode([100_000] * 20, at=6_000_000)))
    assert finding.severity == "warning"
    assert finding.facts["before_first_step_ns"] == 6_000_000 - 9_000
    assert "before the first step" in finding.message


def test_too_few_steps_do_not_tell() -> None:
    assert "fewer than 4" in RULES["PK507"].unmet(Analysis(made(decode([1_000_000, 100_000, 100_000]))))


# PK508


def test_what_runs_at_the_end_is_usual() -> None:
    closed = [span("decode", i * 10_000, 9_000) for i in range(100)]
    finding = one("PK508", made(launches(100), closed, span("main", 0, -1), span("decode", 1_000_000, -1)))
    assert finding.severity == "info"
    assert finding.message.startswith("2 of 102 ranges (2.0 %) were never closed, up to 2 at once on one thread: ")


def test_requests_in_flight_at_the_end_are_usual() -> None:
    ended = [span("request", i * 10_000, 300_000, kind="start_end") for i in range(70)]
    open_ = [span("request", 700_000 + i * 10_000, -1, kind="start_end") for i in range(30)]
    finding = one("PK508", made(launches(100), ended, open_))
    assert finding.severity == "info"
    assert finding.facts["unclosed_ranges"] == 30
    assert finding.facts["open_for_too_long"] == 0


def test_three_of_five_pushes_never_popped() -> None:
    rows = [span("a", 0, -1), span("b", 10, -1), span("c", 20, -1), span("d", 30, 10), span("d", 50, 10)]
    trace = made(*rows, missing={"kernels": "not traced"})
    finding = one("PK508", trace)
    assert finding.facts["unclosed_ranges"] == finding.facts["unclosed_at_once_on_one_thread"] == 3
    assert finding.severity == "info"


def test_names_are_clipped_and_keep_their_place() -> None:
    rows = [span("x:" * 20_000, i * 10_000, -1) for i in range(20)]
    finding = one("PK508", made(launches(100), rows))
    assert len(finding.message) < 400
    assert finding.key.count(":") == 3
    assert finding.severity == "warning"


# PK509


def test_unique_names_are_found_without_gpu_rows_but_never_clean() -> None:
    many = made(*(span(f"request {i}", i * 10, 5) for i in range(6_000)), missing={"kernels": "not traced"})
    finding = one("PK509", many)
    assert finding.severity == "info"
    assert finding.facts["distinct_names"] == 6_000
    assert "6,000 of these names are 1 name, the most common is request #" in finding.message
    few = made(*(span("request", i * 10, 5) for i in range(6_000)), missing={"kernels": "not traced"})
    assert RULES["PK509"].unmet(Analysis(few)) == "not traced"


def test_operators_and_modules_are_named_by_others() -> None:
    rows = [span(f"layer.{i}", i * 10, 5, kind="module") for i in range(6_000)]
    assert RULES["PK509"].unmet(Analysis(made(launches(3), rows))) == (
        "no ranges were recorded that the program named itself"
    )


# PK510


def test_what_the_profiler_says_is_quoted_and_cut() -> None:
    said = ("events were lost " + "x" * 5_000, "a", *(f"buffer {i} overflow" for i in range(5)))
    finding = one("PK510", made(launches(3), warnings=said))
    assert finding.severity == "warning"
    assert finding.facts["messages"] == 6
    assert "and 3 more messages" in finding.message
    assert len(finding.message) < 500


def test_other_warnings_are_not_about_lost_records() -> None:
    said = ("Unable to configure the collection of CPU samples.", "2 ranges left out: the begin or the end has no time")
    assert not findings("PK510", made(launches(3), warnings=said))


def test_part_of_a_file_is_not_whole() -> None:
    trace = made(launches(3))
    finding = one("PK510", replace(trace, meta=replace(trace.meta, partial=True)))
    assert "part of the file could not be read" in finding.message


def test_pytorch_does_not_say_what_it_dropped() -> None:
    trace = made(launches(3))
    trace = replace(trace, meta=replace(trace.meta, source="kineto-json"))
    assert "PK510" in {item.code for item in run_rules(Analysis(trace)).not_run}


# All of them


def test_a_capture_with_ordinary_flaws_has_no_warning() -> None:
    rows = decode([300_000, *[100_000] * 60])
    rows += [span("main", 0, -1), kernel(6_500_000, -1), kernel(-10_000, 5_000, correlation=1)]
    rows += [overhead(3_000_000, 80_000, "buffer_flush")]
    verdict = run_rules(Analysis(made(*rows)), lambda code: code in CAPTURE)
    assert {"PK504", "PK507", "PK508"} <= {finding.code for finding in verdict.every}
    assert {finding.severity for finding in verdict.every} == {"info"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(30))
def test_odd_rows_break_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    far = int(rng.choice([10_000, 1 << 40, 1 << 60]))

    def time() -> int:
        return int(rng.integers(0, far))

    rows: list[Row] = []
    for _ in range(int(rng.integers(0, 60))):
        number, pid = int(rng.integers(-1, 8)), int(rng.integers(1, 4))
        lane = {"pid": pid, "correlation": number}
        rows += [
            [kernel(time(), int(rng.integers(-1, far)), stream=int(rng.integers(0, 40)), **lane)],
            [
                call(
                    time(),
                    int(rng.integers(-1, far)),
                    str(rng.choice(["cudaLaunchKernel", "cudaStreamEndCapture"])),
                    **lane,
                )
            ],
            [copy(time(), int(rng.integers(-1, far)), "um_h2d", -1, **lane)],
            [
                span(
                    str(rng.choice(["decode", "prefill", "", "x" * 40_000])),
                    time(),
                    int(rng.integers(-1, far)),
                    pid=pid,
                )
            ],
            [overhead(time(), int(rng.integers(-1, far)), pid=pid)],
        ][int(rng.integers(0, 5))]
    trace = made(*rows)
    middle = Window(far // 4, far // 2)
    for analysis in (Analysis(trace), Analysis(trace, middle)):
        for code in CAPTURE:
            if not RULES[code].unmet(analysis):
                for item in judged(RULES[code], analysis):
                    assert item.finding.message


@pytest.mark.skipif(not CORPUS.is_dir(), reason="PROFKIT_CORPUS is not set")
def test_real_captures() -> None:
    cut = {f.code: f for f in profkit.check(CORPUS / "nsys" / "nsysai-2xh100-1s.sqlite").findings}
    assert cut["PK504"].facts["gpu_rows_without_call"] == 2_276
    assert cut["PK504"].facts["launches_without_gpu_row"] == 1_714
    whole = profkit.check(CORPUS / "nsys" / "nsysai-2xh100-mfu-before.sqlite")
    found = {f.code: f for f in (*whole.findings, *whole.others)}
    assert found["PK504"].severity == found["PK509"].severity == "info"
    assert found["PK509"].facts["distinct_names"] == 18_499
    smoke = profkit.check(CORPUS / "nsys" / "flameox-smoke-2025.5.2.sqlite")
    assert "PK504" in smoke.clean  # its one launch without a row was taken by a stream capture
