"""What sections and drawings say, as data."""

import re
from pathlib import Path

import numpy as np
import pytest

import profkit.reports
from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import APART, CAUSES
from profkit.analysis.operators import operator_times
from profkit.analysis.trust import remarks
from profkit.api import check_analysis
from profkit.model import Evidence, Finding, Trace, Window
from profkit.report import ReportInput
from profkit.reports import words
from profkit.reports.drawing import Figure, step_chart
from profkit.reports.lead import device_of, find_hot
from profkit.reports.sections.findings import describe_evidence
from profkit.reports.sections.headline import price, tiles
from profkit.reports.sections.kernels import differences, kernel_times
from profkit.reports.sections.trust import verdict_of
from profkit.reports.views import around_gap, choose_hosts, choose_streams, close_look, hot_within, typical_step
from profkit.rules import idle_gaps, launch_bound_decode
from profkit.schema import STAGES, STEP_KINDS
from profkit.testing import build_trace, copy, graph, kernel, launch, span
from profkit.timeline.lanes import COPY_CATEGORIES, RANGE_CATEGORIES, call_lanes, idle_lanes, stream_lanes


def report_of(trace: Trace, window: Window | None = None) -> ReportInput:
    analysis = Analysis(trace, window)
    return ReportInput(analysis, check_analysis(analysis))


def test_every_cause_has_words_and_every_category_a_colour() -> None:
    assert set(words.CAUSES) >= {*CAUSES, *APART}
    style = (Path(profkit.reports.__file__).parent / "style.css").read_text("utf-8")
    coloured = set(re.findall(r"\.c-(\w+)", style))
    trace = build_trace(launch("k", at=0, start=10, dur=5), launch("k", at=30, start=40, dur=5), graph(60, 5))
    analysis = Analysis(trace)
    wanted = {*COPY_CATEGORIES, *RANGE_CATEGORIES, *(f"stage_{name}" for name in (*STAGES, *STEP_KINDS))}
    wanted |= {f"idle_{cause}" for cause in (*CAUSES, *APART)}
    for lane in (*call_lanes(analysis), *idle_lanes(analysis), *stream_lanes(analysis)):
        wanted |= set(lane.categories)
    wanted |= {family for family, _ in text._FAMILIES}
    assert wanted <= coloured
    assert len({words.category(category) for category in wanted}) >= len(wanted) - 2


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("longest_ns", 1_500, ("longest", "1.50 µs")),
        ("saved_ns_per_step", 2_000, ("saved a step", "2.00 µs")),
        ("moved_bytes", 2_000, ("moved", "2.00 kB")),
        ("copy_bytes_per_s", 12_000_000_000, ("copy", "12.0 GB/s")),
        ("busy_share", 0.25, ("busy share", "25.0 %")),
        ("gaps", 12_345, ("gaps", "12,345")),
        ("launches_per_step", -1, ("launches per step", "n/a")),
        ("wait_ns", -1, ("wait", "n/a")),
        ("graph_launch_source", "a table", ("graph launch source", "a table")),
    ],
)
def test_a_fact_has_its_unit(key: str, value: int | float | str, said: tuple[str, str]) -> None:
    assert words.fact(key, value) == said


def test_the_lead_is_what_the_headline_says() -> None:
    report = report_of(launch_bound_decode.fires())
    assert report.lead is not None
    assert report.result.headline.startswith(f"{report.lead.title}: {report.lead.cause}; up to ")
    assert report_of(launch_bound_decode.quiet()).lead is None


def test_hot_are_the_gaps_of_the_lead_all_along_the_trace() -> None:
    report = report_of(launch_bound_decode.fires())
    assert report.hot is not None
    assert (report.hot.what, report.hot.device) == ("idle gaps of PK201", 0)
    assert report.lead is not None
    assert report.hot.intervals.total == report.lead.facts["waited_ns"]
    report = report_of(idle_gaps.fires())
    assert report.hot is not None
    # Nine gaps of 500 us between ten kernels: those of the lead, which the idle gaps are folded into.
    assert report.hot.what == "idle gaps of PK102"
    assert report.hot.intervals.total == 9 * 500_000


def test_what_lies_outside_of_a_window_is_not_announced_there() -> None:
    report = report_of(launch_bound_decode.fires())
    assert report.hot is not None
    first = int(report.hot.intervals.start[0])
    assert hot_within(report, Window(first - 100, first)) is None
    assert hot_within(report, Window(first - 100, first + 1)) == report.hot


def test_hot_of_an_unknown_rule_comes_from_its_evidence() -> None:
    analysis = Analysis(build_trace(kernel(0, 10), kernel(50, 10), kernel(100, 10)))
    window = Window(0, 7)
    base = {"code": "X1", "title": "t", "message": "m", "cause": "c", "advice": "a"}
    by_rows = Finding(**base, key="X1:0:k:", evidence=(Evidence("kernels", (1,), 1),))
    hot = find_hot(analysis, by_rows)
    assert hot is not None
    assert (hot.intervals.start.tolist(), hot.intervals.end.tolist()) == ([10], [50])
    by_window = Finding(**base, key="X1::k:", evidence=(Evidence("calls", (1,), 1, window=window),))
    hot = find_hot(analysis, by_window)
    assert hot is not None
    assert (hot.what, hot.device, hot.intervals.total) == ("evidence of X1", -1, 7)
    assert find_hot(analysis, Finding(**base, key="X1")) is None
    assert device_of(Finding(**base, key="X1:12:k:")) == 12


def test_the_typical_step_is_the_median_one() -> None:
    rows, time = [], 0
    for number, length in enumerate((1_000_000, 3_000_000, 2_000_000, 4_000_000, 5_000_000)):
        rows.append(span("decode", time, length - 1_000, payload=1))
        rows += launch(f"k{number}", at=time + 10_000, start=time + 20_000, dur=length - 30_000)
        time += length
    report = report_of(build_trace(*rows))
    view = typical_step(report.analysis)
    assert view is not None
    steps = report.analysis.steps
    step = int(re.search(r"decode step (\d+), the median of 4", view.caption)[1])  # type: ignore[index]
    assert int(steps.period[step]) == 3_000_000
    assert view.window.start_ns <= steps.gpu_end[step] - steps.period[step]
    assert view.window.end_ns >= steps.gpu_end[step]


def test_without_gpu_rows_the_typical_step_is_by_host_time_and_outside_of_a_window_there_is_none() -> None:
    trace = build_trace(*(span("decode", i * 10_000, 1_000 + i * 100, payload=1) for i in range(5)))
    view = typical_step(Analysis(trace))
    assert view is not None
    assert "decode step 2, the median of 5 by host time (1.20 µs)" in view.caption
    assert typical_step(Analysis(trace, Window(200_000, 300_000))) is None
    assert typical_step(Analysis(build_trace(kernel(0, 5)))) is None


def test_the_view_around_a_gap_shows_the_gap_and_a_close_look_is_inside_its_step() -> None:
    report = report_of(build_trace(kernel(0, 100_000), kernel(150_000, 100_000), kernel(1_250_000, 100_000)))
    view = around_gap(report, None)
    assert view is not None
    assert view.window == Window(150_000, 1_350_000)
    assert around_gap(report_of(build_trace(kernel(0, 100))), None) is None
    report = report_of(launch_bound_decode.fires())
    step = typical_step(report.analysis)
    assert step is not None
    close = close_look(report, step.window)
    assert close is not None
    assert step.window.start_ns - 1_000 <= close.window.start_ns < close.window.end_ns <= step.window.end_ns + 1_000
    assert close.window.dur_ns <= step.window.dur_ns // 10


def test_streams_that_do_not_fit_become_one_and_devices_are_counted() -> None:
    trace = build_trace(*(kernel(i, 100 - i, device=d, stream=s) for d in range(9) for i, s in enumerate(range(4))))
    chosen = choose_streams(stream_lanes(Analysis(trace)))
    assert [lane.device for lane in chosen.lanes] == [d for d in range(8) for _ in range(2)]
    assert chosen.lanes[1].label == "3 other streams in one"
    assert len(chosen.lanes[1]) == 3
    assert chosen.left_out == "1 further GPU with 4 streams not drawn"


def test_hosts_of_the_busiest_processes_come_first() -> None:
    trace = build_trace(*(launch("k", at=i, start=500, dur=9, call_dur=10 + i, pid=100 + i) for i in range(12)))
    chosen = choose_hosts(call_lanes(Analysis(trace)))
    assert [lane.group for lane in chosen.lanes][:2] == ["process 111", "process 110"]
    assert (len(chosen.lanes), chosen.left_out) == (8, "4 further host lanes not drawn")


def test_kernels_of_one_short_name_are_not_one_and_clipped_ones_are_in_no_median() -> None:
    trace = build_trace(
        kernel(0, 100, "f<int>(a)"),
        kernel(200, 300, "f<int>(a)"),
        kernel(600, 50, "f<float>(a)"),
        kernel(900, 400, "g"),
    )
    times = kernel_times(Analysis(trace, Window(0, 1_000)), 2)
    assert [(trace.name(k.name), k.count, k.sum_ns, k.median_ns) for k in times.top] == [
        ("f<int>(a)", 2, 400, 100),
        ("g", 1, 100, None),
    ]
    assert (times.names, times.count, times.sum_ns) == (3, 4, 550)
    rows = [trace.names.index(name) for name in ("f<int>(a)", "f<float>(a)", "g")]
    assert differences(trace, rows) == {rows[0]: "…int>(a)", rows[1]: "…float>(a)"}


def test_operators_by_the_time_that_is_their_own() -> None:
    trace = build_trace(
        span("aten::linear", 0, 100, kind="op"), span("aten::mm", 10, 80, kind="op"), span("decode", 0, 500)
    )
    found = operator_times(Analysis(trace), 5)
    assert [(op.name, op.count, op.self_ns, op.sum_ns, op.median_ns) for op in found] == [
        ("aten::mm", 1, 80, 80, 80),
        ("aten::linear", 1, 20, 100, 100),
    ]


def test_evidence_can_be_found_again() -> None:
    report = report_of(build_trace(kernel(5_620_114_000, 1_000)))
    said = describe_evidence(
        report, Evidence("kernels", tuple(range(100)), 281, tracks=(0,), window=Window(5_620_114_000, 5_620_115_500))
    )
    assert said == (
        "281 rows of kernels; ids 0, 1, 2, 3, 4, 5, …; on stream 7; look at 5.620114000 s to 5.620115500 s (1.50 µs)"
    )


def test_a_price_names_its_denominator_or_says_that_it_is_not_known() -> None:
    base = {"code": "X1", "title": "t", "message": "m", "cause": "c", "advice": "a", "key": "X1:0::"}
    known = Finding(**base, saving_ns=5_000, saving_ns_per_step=500, share=0.1, share_of="the median step")
    assert price(known).striptags() == "up to 500 ns a step 10.0 % of the median step"
    assert price(Finding(**base, saving_ns=5_000)).striptags() == "up to 5.00 µs"
    assert price(Finding(**base)).striptags() == "an unknown amount"


def test_trust_has_problems_first_and_one_line_a_reason() -> None:
    trace = build_trace(
        kernel(0, 100), copy(200, 5, "h2d", 64), simulated=True, warnings=("half of it is gone",),
        missing={"os_calls": "not traced", "syncs": "not traced"},
    )  # fmt: skip
    found = remarks(Analysis(trace))
    # Rows without a call, a gap of which nothing shows the cause, and the reader's own warning.
    assert [remark.level for remark in found] == ["problem", "warning", "warning", "warning", "note"]
    assert found[-1].text == "No os calls, syncs: not traced"
    assert verdict_of(found)[0] == "problem"
    assert verdict_of([])[0] == "good"


def test_tiles_say_of_what_their_numbers_are() -> None:
    shown = {tile.label: tile for tile in tiles(report_of(build_trace(kernel(0, 25), kernel(75, 25))))}
    assert (shown["GPU busy"].value, shown["GPU busy"].of) == ("50.0 %", "of the window, 100 ns")
    assert shown["Step"].value == "n/a"
    two = build_trace(kernel(0, 100), kernel(0, 25, device=1))
    shown = {tile.label: tile for tile in tiles(report_of(two))}
    assert shown["GPU busy"].value == "25.0 to 100.0 %"
    shown = {tile.label: tile for tile in tiles(report_of(build_trace(span("x", 0, 5))))}
    assert shown["GPU busy"].value == "n/a"


def test_a_figure_explains_only_the_colours_it_has() -> None:
    analysis = Analysis(build_trace(kernel(0, 50, "gemm"), copy(60, 20, "h2d", 64)))
    figure = Figure(Window(0, 100), 50)
    figure.bars(stream_lanes(analysis)[0])
    assert sorted(set(figure.categories)) == ["copy_h2d", "gemm"]


def test_the_step_chart_keeps_the_longest_step_of_a_column() -> None:
    period = np.asarray([10, 90, 20])
    svg, categories = step_chart(Window(0, 1_000_000), np.asarray([10, 20, 999_999]), period, ["a", "b", "c"])
    assert categories == ["b", "c"]
    assert "longest 90 ns" in svg
