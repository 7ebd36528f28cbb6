"""Odd traces for the replay and the fixes, each found by somebody who tried to break them."""

from __future__ import annotations

import time

import numpy as np
import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import parse_fix
from profkit.analysis.fixes._rates import pinned_length
from profkit.analysis.replay import build_model, edits, how_far, replay
from profkit.analysis.replay.model import PEER, WAIT, Model
from profkit.analysis.replay.price import difference, start
from profkit.analysis.replay.solve import CircleError
from profkit.analysis.replay.waits import MOST_AWAITED
from profkit.arrays import inside_any
from profkit.errors import UsageError
from profkit.show_whatif import whatif_document
from profkit.testing import Row, build_trace, call, copy, kernel, launch, span
from profkit.whatif import what_if


def _model(*rows: Row | list[Row]) -> Model:
    return build_model(Analysis(build_trace(*rows)))


def _engines() -> list[Row]:
    """Steps of two threads side by side: the upload of one step comes before that of the step before it."""
    rows = []
    for tid, upload in ((1, 800_000), (2, 1_000)):
        for i in range(10):
            t, number = i * 1_000_000 + (tid - 1) * 3_000, tid * 1_000 + i
            rows.append(span("decode", t, 990_000, tid=tid))
            rows.append(call(t + upload, 5_000, "cudaMemcpyAsync", correlation=number, tid=tid))
            where = ("h2d", 1 << 20, "pinned", "device")
            rows.append(copy(t + upload + 9_000, 50_000, *where, correlation=number, stream=tid))
            rows += launch("k", at=t + 810_000, start=t + 870_000, dur=10_000, tid=tid, stream=tid)
            rows.append(call(t + 850_000, 60_000, "cudaStreamSynchronize", tid=tid))
    return rows


@pytest.mark.parametrize("fix", ["prefetch", "read-later", "pinned-copies"])
def test_a_fix_that_turns_the_order_around_has_a_price_or_none(fix: str) -> None:
    """The replay went by the recorded order and took times that were not computed yet, of -2^60, for times."""
    result = what_if(build_trace(*_engines()), [fix])
    for priced in result.fixes:
        assert 0 <= priced.cost_ns <= 10_000_000 or not priced.known
        assert abs(priced.saving_ns) <= 10_000_000
    assert result.predicted is None or 0 < result.predicted["window_ns"] < 20_000_000


def test_each_point_comes_after_what_it_waits_for_whatever_was_recorded() -> None:
    model = _model(
        launch("a", at=0, start=10_000, dur=5_000),
        launch("b", at=1_000, start=30_000, dur=5_000, stream=8, tid=2),
    )
    # The first operation now waits for the end of the second one.
    first, second = model.first_op, model.first_op + 3
    later = replay(edits.with_constraint(model, np.asarray([second]), np.asarray([first]), 100, WAIT))
    assert later.start.tolist() == [35_100, 30_000]
    circle = edits.with_constraint(
        model, np.asarray([second, first + 1]), np.asarray([first, second - 1]), np.asarray([100, 100]), WAIT
    )
    with pytest.raises(CircleError):
        replay(circle)


def test_work_of_one_instant_takes_no_time_to_put_in_order() -> None:
    """A chain of operations of one instant was put in order one link a pass: 16,000 took seconds, more for ever."""
    n = 20_000
    rows = [row for i in range(n) for row in (call(0, 0, correlation=i + 1), kernel(5, 0, correlation=i + 1))]
    model = _model(*rows)
    began = time.perf_counter()
    times = replay(model)
    assert time.perf_counter() - began < 3
    assert (times.start == 5).all()


def test_copies_of_more_bytes_than_fit_times_a_billion() -> None:
    """Of over 9.2 GB the pinned length was negative: the fix saved all of the copy."""
    assert pinned_length(np.asarray([12 << 30]), 24_800_000_000).tolist() == [519_552_495]
    assert pinned_length(np.asarray([1_000, 1 << 62]), 1).tolist() == [1_000_000_000_000, 1 << 62]
    rows: list[Row] = []
    for i in range(6):
        t = i * 10_000_000_000
        rows.append(call(t, 5_010_000_000, "cudaMemcpyAsync", correlation=100 + i))
        rows.append(copy(t + 10_000, 5_000_000_000, "h2d", 12 << 30, "pageable", "device", correlation=100 + i))
        rows += launch("k", at=t + 5_020_000_000, start=t + 5_020_010_000, dur=10_000_000)
    (found,) = what_if(build_trace(*rows), ["pinned-copies"]).fixes
    assert found.known
    assert 26_000_000_000 < found.saving_ns < found.cost_ns - 500_000_000


def test_copies_that_were_impossibly_fast() -> None:
    """20 GiB in 1 ns are a rate that no integer holds: check ended in a traceback."""
    rows: list[Row] = []
    for i in range(8):
        t, number = i * 1_000_000, 100 + 2 * i
        rows.append(call(t, 5_000, "cudaMemcpyAsync", correlation=number))
        rows.append(copy(t + 9_000, 1, "h2d", 20 << 30, "pinned", "device", correlation=number))
        rows.append(call(t + 20_000, 400_000, "cudaMemcpyAsync", correlation=number + 1))
        rows.append(copy(t + 29_000, 390_000, "h2d", 1 << 20, "pageable", "device", correlation=number + 1))
    trace = build_trace(*rows)
    profkit.check(trace)
    (found,) = what_if(trace, ["pinned-copies"]).fixes
    assert 0 < found.saving_ns <= found.cost_ns


def test_lengths_whose_product_no_integer_holds() -> None:
    """``k`` begins 8 s into 9 s of ``e``: of 7.2 s that is 6.4 s, of which the product exceeds 64 bits."""
    model = _model(
        [call(0, 1_000, correlation=1), kernel(0, 9_000_000_000, "e", correlation=1)],
        [call(2_000, 1_000, correlation=2), kernel(8_000_000_000, 2_000_000_000, "k", correlation=2)],
    )
    shorter = edits.with_length(model, np.asarray([0]), 7_200_000_000)
    assert replay(shorter).start.tolist() == [0, 6_400_000_000]


@pytest.mark.parametrize("factor", ["1e300", "-1", "nan", "1001x"])
def test_factors_that_no_kernel_has(factor: str) -> None:
    with pytest.raises(UsageError, match="from 0 to 1,000"):
        what_if(build_trace(launch("e", at=0, start=9_000, dur=1_000)), [f"kernel:e={factor}"])


def test_a_model_explains_no_less_than_nothing() -> None:
    """The first kernel began a second after its call: without that the window is 5,000 times as long."""
    rows: list[Row] = [call(0, 5_000, correlation=1), kernel(1_000_000_000, 1_000, correlation=1)]
    for i in range(20):
        t = 1_000_010_000 + i * 10_000
        rows += launch("k", at=t, start=t + 6_000, dur=1_000, tid=5, stream=8, call_dur=4_000)
    trace = build_trace(*rows)
    trust = how_far(build_model(Analysis(trace)))
    assert not trust.holds
    assert trust.share == 1
    assert "explains 0.0 % of" in trust.why_not
    assert whatif_document(what_if(trace))["replay"]["error_share"] == 1


def test_no_fault_costs_less_than_nothing() -> None:
    """Without the first kernels the window begins earlier, before a kernel that nothing moves: it is longer."""
    rows: list[Row] = [call(0, 5_000, correlation=1), kernel(1_000_000, 1_000, "e", correlation=1)]
    rows += [call(1_000, 1_000, correlation=2, tid=5), kernel(1_100_000, 1_000, "e", correlation=2, stream=8)]
    rows += [kernel(1_200_000, 1_000, "other", stream=9)]
    analysis = Analysis(build_trace(*rows))
    replayed = start(analysis)
    found = parse_fix("kernel:e=0")[0].find(analysis, replayed.model, "e=0")
    assert found is not None
    free = difference(analysis, replayed, found.free)
    assert free is not None
    assert free.window_ns < 0
    (priced,) = what_if(analysis.trace, ["kernel:e=0"]).fixes
    assert priced.known
    assert priced.cost_ns == 0


@pytest.mark.parametrize("far", [(1 << 60), (1 << 61), (1 << 62) - 1_000_000_000])
def test_pauses_of_a_century(far: int) -> None:
    rows: list[Row] = []
    for tid in (1, 2, 3):
        for i, t in enumerate((0, 10_000, far)):
            number = 10 * tid + i
            rows += [call(t, 5_000, correlation=number, tid=tid)]
            rows += [kernel(t + 9_000, 1_000, correlation=number, stream=tid)]
    model = _model(*rows)
    times = replay(model)
    assert times.start.tolist() == model.work.start.tolist()
    what_if(build_trace(*rows), ["cuda-graphs"])


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "cudaFree"])
def test_waits_for_many_streams_take_bounded_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait for the device was a constraint with every stream: 1,000 of them and 10,000 waits took 2 GB."""
    monkeypatch.setattr("profkit.analysis.replay.waits._FEW_PAIRS", 100)
    rows: list[Row] = []
    for i in range(300):
        t = i * 100_000
        rows += launch("k", at=t, start=t + 6_000, dur=20_000, call_dur=4_000, stream=i % 100)
        rows.append(call(t + 10_000, 20_000, name))
    model = _model(*rows)
    waits = model.edges.where(model.edges.kind == WAIT)
    assert len(waits) <= 3 * MOST_AWAITED * 300 + 100
    last = model.first_op + 2 * np.arange(300) + 1
    assert set(last.tolist()) <= set(waits.src.tolist())
    assert replay(model).start.tolist() == model.work.start.tolist()


def test_collectives_of_many_ranks_wait_through_one() -> None:
    """As many constraints as ranks, not as pairs of them; the last rank still decides when all end."""
    ranks = 20
    rows: list[Row] = []
    for rank in range(ranks):
        lane = {"pid": 100 + rank, "device": rank}
        # Later ranks come later, and leave a little later.
        rows += launch("k", at=0, start=6_000, dur=1_000 * rank + 1_000, call_dur=4_000, tid=rank, **lane)
        begin = 8_000 + 1_000 * rank
        rows += launch("nccl", at=5_000, start=begin, dur=50_000 + rank - begin, call_dur=1_000, tid=rank, **lane)
    model = _model(*rows)
    assert int((model.edges.kind == PEER).sum()) == 2 * (ranks - 1)
    unchanged = replay(model)
    assert unchanged.start.tolist() == model.work.start.tolist()
    assert unchanged.end.tolist() == model.work.end.tolist()
    # The last rank comes 1,000 earlier: no rank ends without the one before it, which came 1,000 before.
    late = np.flatnonzero((model.work.device == ranks - 1) & (model.dur == 1_000 * ranks))
    sooner = replay(edits.with_length(model, late, 1_000))
    ends = (model.work.end - sooner.end)[model.dur != 0][-ranks:]
    assert set(ends.tolist()) == {1_000}


def test_ranges_that_are_never_closed_are_as_deep_as_they_are_many() -> None:
    """Each push without a pop lies in the one before it: 16,000 took 15 s, twice as many four times that."""
    rows: list[Row] = []
    for i in range(4_000):
        rows.append(span("decode", i * 1_000, -1))
        if i % 10 == 0:
            rows += launch("k", at=i * 1_000 + 1, start=i * 1_000 + 50, dur=5, call_dur=4)
    trace = build_trace(*rows)
    began = time.perf_counter()
    result = profkit.check(trace)
    assert time.perf_counter() - began < 3
    (stage,) = (row for row in result.summary["stages"] if row["stage"] == "decode")
    assert stage["unclosed"] == 4_000
    assert stage["gpu_busy_ns"] == 2_000


def test_ancestors_by_doubling() -> None:
    parent = np.asarray([-1, 0, 1, 2, -1, 4, 3])
    wanted = np.asarray([False, True, False, False, False, False, True])
    assert inside_any(parent, wanted).tolist() == [False, False, True, True, False, False, True]


def test_collectives_of_a_rank_on_several_streams() -> None:
    """One that stands behind all work of the first one's stream: whatif ended in a traceback."""
    rows: list[Row] = []
    for rank in (0, 1):
        lane = {"pid": 100 + rank, "device": rank, "tid": rank, "call_dur": 1_000}
        for i in range(6):
            t, late = i * 200_000, 100_000 * rank * (i > 0)
            rows += launch("k", at=t, start=t + 6_000, dur=10_000 + late, stream=7 if i < 4 else 9, **lane)
            begin = t + 20_000 + late
            stream = 7 if i == 0 else 8
            rows += launch("nccl", at=t + 5_000, start=begin, dur=t + 140_000 - begin, stream=stream, **lane)
    (found,) = what_if(build_trace(*rows), ["even-ranks"]).fixes
    assert found.facts["late"] == 5


def test_collectives_of_ranks_whose_calls_were_not_recorded() -> None:
    """``whatif`` ended in a traceback."""
    rows = []
    for rank in (0, 1):
        for i in range(4):
            begin = i * 200_000 + 50_000 * rank
            rows.append(kernel(begin, i * 200_000 + 150_000 - begin, "nccl", pid=100 + rank, device=rank))
    result = what_if(build_trace(*rows), ["even-ranks"])
    assert not result.fixes
    assert "no recorded call" in result.why_not
