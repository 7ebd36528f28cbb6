"""From which step on periods are steady, and ranks of one engine that share their steps."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.summary import summarize
from profkit.api import check_analysis
from profkit.builder import Builder
from profkit.model import RunMeta, Trace, Window
from profkit.show import check_text
from profkit.testing import build_trace, launch, span


def decode(at: int, length: int, **where: int) -> list:
    """A decode range of that length whose kernel ends with it."""
    host = {key: value for key, value in where.items() if key in ("pid", "tid")}
    return [
        span("decode", at, length, **host),
        *launch("k", at=at + 1, start=at + 5, dur=length - 5, call_dur=2, **where),
    ]


def of_periods(*lengths: int) -> Analysis:
    """A first step of 100 ns, then one for each period."""
    rows, at = [], 0
    for length in (100, *lengths):
        rows += decode(at, length)
        at += length
    return Analysis(build_trace(*rows))


def test_even_periods_are_steady_from_the_first_on() -> None:
    steady = of_periods(*[100] * 8).steady
    assert steady is not None
    assert (steady.first, steady.steps, steady.of, steady.median_ns) == (1, 8, 8, 100)
    assert steady.window == Window(100, 900)


def test_a_few_odd_steps_do_not_make_them_unsteady() -> None:
    steady = of_periods(100, 100, 300, 100, 90, 110, 100, 900).steady
    assert steady is not None
    assert steady.steps == 8


def test_a_slow_start_is_left_out_of_the_steady_window() -> None:
    analysis = of_periods(190, 180, 170, 160, 100, 100, 100, 100)
    steady = analysis.steady
    assert steady is not None
    assert (steady.first, steady.steps, steady.of) == (5, 4, 8)
    assert steady.window == Window(800, 1_200)
    assert "steady from step 5 on: 4 of 8 counted steps" in check_text(check_analysis(analysis))


@pytest.mark.parametrize(
    "periods",
    [[100 * 2**i for i in range(8)], [100, 900] * 2 + [2_000, 400, 3_000, 50]],
    ids=["ever-slower", "all-over-the-place"],
)
def test_periods_that_never_settle_are_said_to(periods: list[int]) -> None:
    analysis = of_periods(*periods)
    steady = analysis.steady
    assert steady is not None
    assert steady.window is None
    assert summarize(analysis)["steady"]["steady"] is False
    assert summarize(analysis)["steady"]["start_ns"] is None
    assert "no steady window: the periods of 8 steps never settle" in check_text(check_analysis(analysis))


def test_too_few_periods_tell_nothing() -> None:
    analysis = of_periods(100, 900, 100)
    assert analysis.steady is None
    assert summarize(analysis)["steady"] is None
    assert "steady" not in check_text(check_analysis(analysis))


def with_ranks(trace: Trace, ranks: dict[int, int]) -> Trace:
    """The same trace with a rank for each pid."""
    rows = trace.tables["processes"].to_pylist()
    for row in rows:
        row |= {"rank": ranks[row["pid"]], "world_size": len(ranks)}
    table = type(trace.tables["processes"]).from_pylist(rows, schema=trace.tables["processes"].schema)
    return Trace(trace.meta, {**trace.tables, "processes": table}, trace.missing, trace.windows)


def two_ranks(second: list[int]) -> Any:
    """Rank 1 (pid 100) and rank 0 (pid 200), steps of 100 ns; ``second`` are those that rank 1 has."""
    rows = [decode(100 * i, 90, pid=200, tid=200, device=1) for i in range(6)]
    rows += [decode(100 * i + 3, 95, pid=100) for i in second]
    return Analysis(with_ranks(build_trace(*rows), {100: 1, 200: 0}))


def test_ranks_of_one_engine_share_the_index_and_the_lowest_speaks() -> None:
    analysis = two_ranks(list(range(6)))
    steps = analysis.steps
    pid = analysis.trace.array("processes", "pid")[steps.process]
    assert steps.index[pid == 100].tolist() == steps.index[pid == 200].tolist() == list(range(6))
    assert steps.lead.tolist() == (pid == 200).tolist()
    summary = summarize(analysis)
    assert summary["step_rank"] == 0
    assert summary["steps"]["decode"]["count"] == 6
    assert summary["steps"]["decode"]["host_p50_ns"] == 90
    assert analysis.step_count == 6
    assert analysis.counted_steps().count == 5  # the first one has no period
    assert "numbers of steps are of rank 0, the lowest" in check_text(check_analysis(analysis))


def test_a_rank_whose_capture_began_later_has_the_index_of_its_iteration() -> None:
    analysis = two_ranks([2, 3, 4, 5])
    steps = analysis.steps
    pid = analysis.trace.array("processes", "pid")[steps.process]
    assert steps.index[pid == 100].tolist() == [2, 3, 4, 5]


def test_losses_of_a_rank_are_shared_out_over_its_own_steps() -> None:
    analysis = two_ranks([2, 3, 4, 5])
    number = analysis.device_number.tolist()
    assert analysis.counted_steps(number.index(0)).count == 3
    assert analysis.counted_steps(number.index(1)).count == 5


def test_processes_that_are_no_ranks_count_together() -> None:
    rows = [decode(100 * i, 90, pid=pid, tid=pid, device=pid // 200) for pid in (100, 200) for i in range(6)]
    summary = summarize(Analysis(build_trace(*rows)))
    assert summary["step_rank"] is None
    assert summary["steps"]["decode"]["count"] == 12


def test_no_steps_have_no_remarks() -> None:
    summary = summarize(Analysis(Builder().finish(RunMeta("built"))))
    assert (summary["steps"], summary["step_source"], summary["steps_excluded"]) == ({}, None, None)
    assert summary["step_remarks"] == []
