"""The trace that a replay gives: the same one where nothing changed, and one whose requests make sense where it did."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import parse_fix
from profkit.analysis.replay import Model, build_model, replay
from profkit.analysis.replay.requests import moved_requests
from profkit.analysis.replay.retime import retimed
from profkit.analysis.requests import Requests
from profkit.cli import main
from profkit.ingest import open_trace
from profkit.model import Trace
from profkit.samples import launch_bound_decode
from profkit.testing import build_trace, call, copy, kernel, launch, os_call, overhead, sched, span
from profkit.whatif import what_if


def _fixed(trace: Trace, *fixes: str) -> tuple[Analysis, Model, Model]:
    analysis = Analysis(trace)
    model = build_model(analysis)
    changed = model
    for text in fixes:
        fix, argument = parse_fix(text)
        found = fix.find(analysis, model, argument)
        assert found is not None, text
        changed = found.fixed(changed)
    return analysis, model, changed


def _assert_same(trace: Trace) -> None:
    model = build_model(Analysis(trace))
    again = retimed(trace, model, replay(model))
    for name, table in trace.tables.items():
        assert again.tables[name].equals(table), name
    assert again.windows == trace.windows or len(trace.windows) == 1


def test_unchanged_every_table_is_the_same() -> None:
    rows = [
        span("decode", 0, 90_000, payload=1), span("sample", 62_000, 20_000), span("request#1", -5_000, 300_000),
        launch("k", at=1_000, start=9_000, dur=50_000), call(2_000, 2_000, "cuLaunchKernel", api="driver"),
        call(10_000, 55_000, "cudaStreamSynchronize"), os_call(66_000, 3_000), overhead(70_000, 2_000),
        sched(71_000, False), sched(75_000, True), span("other", 40_000, 30_000, tid=7), os_call(1, 80_000, tid=8),
        kernel(100_000, 5_000, stream=9), copy(120_000, 9_000, "d2h", 4), copy(121_000, 9_000, "h2h", 4),
        call(130_000, 0, "cudaGetDevice"), span("tail", 131_000, 50_000),
    ]  # fmt: skip
    _assert_same(build_trace(*rows))


def test_unchanged_simulated_traces_and_samples_are_the_same(simulated: dict[str, Path]) -> None:
    for path in simulated.values():
        _assert_same(open_trace(path))
    _assert_same(launch_bound_decode())


def test_what_lies_between_calls_is_stretched_with_the_time_between_them() -> None:
    """A pause of 40,000 between two calls becomes one of 20,000; calls inside of others keep their place."""
    trace = build_trace(
        call(0, 10_000), call(2_000, 3_000, "cuLaunchKernel", api="driver"), call(50_000, 10_000), call(70_000, 1_000),
        span("inside", 20_000, 20_000), span("over all", 0, 80_000), span("elsewhere", 20_000, 20_000, tid=7),
        os_call(30_000, 4_000), kernel(100_000, 1_000),
    )  # fmt: skip
    model = build_model(Analysis(trace))
    gap, own = model.calls.gap.copy(), model.calls.own.copy()
    gap[1], own[0] = 20_000, 4_000
    changed = replace(model, calls=replace(model.calls, gap=gap, own=own))
    moved = retimed(trace, model, replay(changed))

    def rows(table: str) -> list[tuple[int, int]]:
        columns = (moved.array(table, name).tolist() for name in ("start_ns", "dur_ns"))
        return list(zip(*columns, strict=True))

    # Calls: [0, 4,000), inside of it [2,000, 4,000), [24,000, 34,000), [44,000, 45,000).
    assert rows("calls") == [(0, 4_000), (2_000, 2_000), (24_000, 10_000), (44_000, 1_000)]
    # 10,000 into the pause, half of it: at 5,000 of 20,000 behind 4,000.
    spans = {
        trace.name(int(row)): place for row, place in zip(moved.array("spans", "name"), rows("spans"), strict=True)
    }
    assert spans["inside"] == (9_000, 10_000)
    assert spans["over all"] == (0, 54_000)
    assert spans["elsewhere"] == (20_000, 20_000)
    assert rows("os_calls") == [(14_000, 2_000)]


def _serving(steps: int = 8) -> Trace:
    """One request after the other in a loop that waits for each step: 20,000 of host work behind a kernel of 60,000."""
    rows: list[Any] = []
    for i in range(steps):
        t = i * 100_000
        name = "prefill" if i % 4 == 0 else "decode"
        if i % 4 == 0:
            rows.append(span(f"request#{i // 4}", t - 4_000, 392_000, kind="start_end"))
        rows += [span(name, t, 95_000, payload=1), span("sample", t + 78_000, 10_000, payload=1)]
        rows += launch("k", at=t, start=t + 9_000, dur=60_000)
        rows.append(call(t + 10_000, 65_000, "cudaStreamSynchronize"))
    return build_trace(*rows)


def _sensible(before: Requests, after: Requests) -> None:
    known = after.ttft >= 0
    assert (known == (before.ttft >= 0)).all()
    assert (after.ttft[known] > 0).all()
    assert (after.first_token[known] > after.arrival[known]).all()
    assert (after.end[known] >= after.first_token[known]).all()
    assert (after.ttft[known] <= before.ttft[known]).all()
    assert (after.tpot[after.tpot >= 0] <= before.tpot[after.tpot >= 0]).all()


def test_times_of_requests_unchanged_are_the_recorded_ones() -> None:
    analysis, model, _ = _fixed(_serving())
    before, after = analysis.requests, moved_requests(analysis, model, replay(model))
    for name in ("arrival", "first_token", "end", "ttft", "tpot"):
        assert getattr(after, name).tolist() == getattr(before, name).tolist()
    assert before.ttft.tolist() == [92_000, 92_000]
    assert before.tpot.tolist() == [100_000, 100_000]


def test_without_waits_tokens_come_with_the_work_of_the_device() -> None:
    """The host then runs ahead of the device: its own ranges end long before the tokens exist."""
    analysis, model, changed = _fixed(_serving(), "no-step-sync")
    after = moved_requests(analysis, model, replay(changed))
    _sensible(analysis.requests, after)
    # A kernel each 61,000.
    assert after.tpot.tolist() == [61_000, 61_000]
    # Nothing ran before the first request. Its token is 19,000 behind its kernel, as recorded.
    assert after.ttft[0] == 92_000


def test_a_server_whose_waits_were_removed_answers_no_later(tmp_path: Path) -> None:
    path = tmp_path / "server.sqlite"
    command = ["simulate", "--scenario", "continuous_batching", "--fault", "readback_sync", "--seed", "3"]
    assert main([*command, "-o", str(path)]) == 0
    analysis, model, changed = _fixed(open_trace(path), "read-later")
    before, after = analysis.requests, moved_requests(analysis, model, replay(changed))
    assert len(before) > 5
    assert (after.first_token <= before.first_token).all()
    known = after.ttft >= 0
    assert np.median(after.ttft[known]) <= np.median(before.ttft[known])


def test_the_prediction_has_the_requests_of_the_replay(simulated: dict[str, Path]) -> None:
    result = what_if(_serving(), ["no-step-sync"])
    assert result.predicted is not None
    assert result.recorded["tpot_ns"]["p50"] == 100_000
    assert result.predicted["tpot_ns"]["p50"] == 61_000
    assert result.predicted["ttft_ns"]["p50"] <= 92_000
