"""How far a model is trusted, and what part of a trace prices are taken from: by hand."""

from typing import Any

import pytest

from profkit import whatif
from profkit.analysis.context import Analysis
from profkit.analysis.replay import build_model, how_far, price
from profkit.analysis.replay.trust import Trust
from profkit.model import Window
from profkit.testing import Row, build_trace, call, kernel, launch, span
from profkit.whatif import Priced, WhatIf, what_if


def _trust(*rows: Row | list[Row]) -> Trust:
    return how_far(build_model(Analysis(build_trace(*rows))))


def _regular(count: int) -> list[list[Row]]:
    """Kernels of 10,000, one every 20,000, 4,000 behind their calls."""
    return [launch("k", at=i * 20_000, start=i * 20_000 + 9_000, dur=10_000) for i in range(count)]


def test_usual_lags_are_explained() -> None:
    found = _trust(*_regular(50))
    assert (found.window_ns, found.error_ns, found.unexplained_ops, found.unexplained_calls) == (990_000, 0, 0, 0)
    assert found.holds
    assert found.why_not == ""


@pytest.mark.parametrize(("lag", "explained"), [(40_000, True), (40_001, False)])
def test_a_start_ten_usual_lags_late_has_a_cause_that_is_not_recorded(lag: int, explained: bool) -> None:
    """The last kernel, on a stream of its own."""
    late = launch("k", at=1_100_000, start=1_105_000 + lag, dur=10_000, stream=8)
    found = _trust(*_regular(50), late)
    assert found.unexplained_ops == (0 if explained else 1)
    # It would have begun 4,000 behind its call.
    assert found.error_ns == (0 if explained else lag - 4_000)


@pytest.mark.parametrize(("late", "holds"), [(20_000, True), (22_000, False)])
def test_two_percent_of_the_window(late: int, holds: bool) -> None:
    """A synchronisation of 20,000 more than it may take, while no work was recorded, before a kernel 980,000 long."""
    found = _trust(
        launch("k", at=0, start=9_000, dur=1_000),
        call(20_000, 20_000 + late, "cudaStreamSynchronize"),
        launch("k", at=50_000 + late, start=59_000 + late, dur=950_000 - late),
    )
    assert found.unexplained_calls == 1
    assert (found.window_ns, found.error_ns) == (1_000_000, late)
    assert found.holds == holds
    assert found.why_not == (
        "" if holds else "the replay explains 97.8 % of the recorded window: 1 wait of the host has no recorded cause"
    )


@pytest.mark.parametrize(("joined", "holds"), [(4, True), (3, False)])
def test_half_of_the_work_may_lack_its_call(joined: int, holds: bool) -> None:
    found = _trust(*_regular(joined), *(kernel(1_000_000 + i * 2_000, 1_000) for i in range(4)))
    assert found.unjoined == 4 / (joined + 4)
    assert (found.unjoined <= 0.5) == holds


def test_without_device_work_nothing_holds() -> None:
    for rows in ([call(0, 5)], [launch("k", at=0, start=9, dur=0, call_dur=5)]):
        found = _trust(*rows)
        assert (found.window_ns, found.share, found.holds) == (0, 0.0, False)
        assert found.why_not == "there is no device work that takes time"


def _sync(found: WhatIf) -> Priced:
    (fix,) = [fix for fix in found.fixes if fix.fix == "no-step-sync"]
    return fix


def _waiting(count: int) -> list[Any]:
    """Decode steps of 100,000 that wait for their kernel: 49,000 of each are lost."""
    steps = [(i, i * 100_000) for i in range(count)]
    return [
        [
            span("decode", t, 99_000, payload=1),
            *launch("k", at=t, start=t + 9_000, dur=50_000),
            call(t + 10_000, 55_000, "cudaStreamSynchronize"),
        ]
        for _, t in steps
    ]


def test_a_large_trace_is_priced_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = build_trace(*_waiting(100))
    whole = what_if(trace)
    assert whole.sampled == ""
    monkeypatch.setattr(whatif, "MOST_OPS", 40)
    part = what_if(trace)
    assert part.sampled == "steps 31 to 69"
    before, after = (_sync(found) for found in (whole, part))
    assert before.saving_ns_per_step == after.saving_ns_per_step == 49_000
    # The price of the sample grows by the number of steps.
    assert before.saving_ns == 99 * 49_000
    assert after.saving_ns == before.saving_ns


def test_without_steps_the_sample_is_from_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whatif, "MOST_OPS", 20)
    found = what_if(build_trace(*_regular(50)))
    assert found.sampled == "20 device operations from the middle of the capture"


def test_work_that_was_submitted_before_a_sample_keeps_its_time() -> None:
    """A kernel from 9,000 to 250,000; what is replayed begins at 100,000, with a launch behind it."""
    rows = [
        launch("long", at=0, start=9_000, dur=241_000),
        launch("k", at=110_000, start=251_000, dur=10_000),
        launch("k", at=210_000, start=262_000, dur=10_000),
        launch("k", at=400_000, start=409_000, dur=10_000),
    ]
    analysis = Analysis(build_trace(*rows))
    model = build_model(analysis, Window(100_000, 300_000))
    assert model.work.start.tolist() == [9_000, 251_000, 262_000]
    assert model.fixed.tolist() == [True, False, False]
    assert model.row.tolist() == [0, 1, 2]
    assert len(model.calls) == 2


def test_a_selected_window_is_what_is_replayed() -> None:
    analysis = Analysis(build_trace(*_waiting(20)), Window(500_000, 1_000_000))
    replayed = price.start(analysis)
    assert replayed.sampled == "the window that was selected"
    assert len(replayed.model.calls) == 10


def test_the_steps_of_one_rank_say_how_large_a_sample_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that do the same at the same time: the window is that of one of them."""
    rows: list[Any] = []
    for rank in (1, 2):
        for i in range(60):
            t, thread = i * 100_000, {"pid": rank, "tid": rank}
            rows += [
                span("decode", t, 99_000, payload=1, **thread),
                *launch("k", at=t, start=t + 9_000, dur=50_000, device=rank - 1, **thread),
                call(t + 10_000, 55_000, "cudaStreamSynchronize", **thread),
            ]
    trace = build_trace(*rows)
    before = _sync(what_if(trace))
    monkeypatch.setattr(whatif, "MOST_OPS", 60)
    after = _sync(what_if(trace))
    assert before.saving_ns == pytest.approx(59 * 49_000, rel=0.001)
    assert after.saving_ns == pytest.approx(before.saving_ns, rel=0.05)
