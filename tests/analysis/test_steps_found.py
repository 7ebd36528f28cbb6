"""Steps from graph launches and from kernels that repeat; whose work is whose when the host runs ahead."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.steps import OTHER
from profkit.ingest import open_trace
from profkit.testing import build_trace, call, copy, graph, kernel, launch, span

_KERNELS = ("embed", "attention", "mlp", "head", "argmax")


def replay(number: int, at: int, kernels: tuple[str, ...], pid: int = 100, tid: int = 100) -> list:
    """A graph launch at ``at`` and its kernels of 10 ns each from 20 ns later on."""
    rows = [call(at, 5, "cudaGraphLaunch", correlation=number, pid=pid, tid=tid)]
    return rows + [
        kernel(at + 20 + 10 * i, 10, name, correlation=number, graph_node=i + 1, pid=pid)
        for i, name in enumerate(kernels)
    ]


def test_one_graph_launch_a_step() -> None:
    steps = Analysis(build_trace(*(replay(i + 1, 100 * i, _KERNELS) for i in range(4)))).steps
    assert steps.source == "graph_launches"
    assert steps.kind.tolist() == [OTHER] * 4
    assert steps.host_start.tolist() == [0, 100, 200, 300]
    assert steps.host_end.tolist() == [100, 200, 300, 305]
    assert steps.gpu_start.tolist() == [20, 120, 220, 320]
    assert steps.gpu_end.tolist() == [70, 170, 270, 370]
    assert steps.period.tolist() == [-1, 100, 100, 100]
    assert steps.complete.all()
    assert steps.of_work.tolist() == [step for step in range(4) for _ in _KERNELS]


def test_graphs_of_several_batch_sizes_are_steps_all_the_same() -> None:
    large = [replay(i + 1, 100 * i, _KERNELS) for i in range(4)]
    small = [replay(i + 1, 100 * i, _KERNELS[1:]) for i in range(4, 8)]
    assert len(Analysis(build_trace(*large, *small)).steps) == 8


def test_pieces_of_a_step_are_grouped() -> None:
    rows = []
    for i in range(12):
        piece = ("a", "b", "c")[i % 3]
        rows += replay(i + 1, 100 * i, (piece, "mlp"))
    steps = Analysis(build_trace(*rows)).steps
    assert steps.source == "graph_launches"
    assert steps.host_start.tolist() == [0, 300, 600, 900]
    assert steps.host_end.tolist() == [300, 600, 900, 1_105]
    assert steps.complete.all()


def test_equal_pieces_between_a_first_and_a_last_one_are_one_step() -> None:
    pieces = ["first", *["middle"] * 6, "last"]
    rows = [replay(8 * s + i + 1, 100 * (8 * s + i), (name,)) for s in range(5) for i, name in enumerate(pieces)]
    assert Analysis(build_trace(*rows)).steps.host_start.tolist() == [0, 800, 1_600, 2_400, 3_200]


def test_graph_launches_in_random_order_are_no_steps() -> None:
    order = np.random.default_rng(0).integers(0, 8, 60).tolist()
    rows = [replay(i + 1, 100 * i, (f"graph_{which}",)) for i, which in enumerate(order)]
    assert Analysis(build_trace(*rows)).steps.source == ""


def test_two_graph_launches_are_none_and_three_are_steps() -> None:
    rows = [replay(i + 1, 100 * i, _KERNELS[:1]) for i in range(3)]
    assert len(Analysis(build_trace(*rows[:2])).steps) == 0
    assert len(Analysis(build_trace(*rows)).steps) == 3


def test_graphs_recorded_as_one_piece_are_steps() -> None:
    rows = [
        [call(100 * i, 5, "cudaGraphLaunch", correlation=i + 1), graph(100 * i + 20, 60, correlation=i + 1)]
        for i in range(4)
    ]
    assert Analysis(build_trace(*rows)).steps.gpu_end.tolist() == [80, 180, 280, 380]


def test_a_few_graph_launches_among_much_else_are_no_steps() -> None:
    rows = [replay(i + 1, 100 * i, _KERNELS[:1]) for i in range(3)]
    rows += [launch("gemm", at=1_000 + 10 * i, start=1_005 + 10 * i, dur=4, call_dur=2) for i in range(50)]
    assert Analysis(build_trace(*rows)).steps.source == ""


def test_work_behind_the_graph_belongs_to_its_step_and_the_last_one_is_open() -> None:
    rows = []
    for i in range(4):
        rows += replay(i + 1, 100 * i, _KERNELS)
        rows += launch("sample", at=100 * i + 60, start=100 * i + 75, dur=5, call_dur=2)
    steps = Analysis(build_trace(*rows)).steps
    assert steps.gpu_end.tolist() == [80, 180, 280, 370]
    assert steps.complete.tolist() == [True, True, True, False]


def sequence(at: int, names: tuple[str, ...] = _KERNELS, **where: int) -> list:
    """Kernels of 10 ns, 20 ns apart, each launched 5 ns before."""
    return [
        row
        for i, name in enumerate(names)
        for row in launch(name, at=at + 20 * i, start=at + 20 * i + 5, dur=10, call_dur=4, **where)
    ]


def test_a_kernel_sequence_that_repeats_makes_steps() -> None:
    steps = Analysis(build_trace(*(sequence(100 * i) for i in range(6)))).steps
    assert steps.source == "kernel_sequences"
    assert steps.kind.tolist() == [OTHER] * 6
    assert steps.host_start.tolist() == [100 * i for i in range(6)]
    assert steps.gpu_end.tolist() == [100 * i + 95 for i in range(6)]
    assert steps.period.tolist() == [-1, *[100] * 5]
    assert steps.complete.all()
    assert steps.word(OTHER) == "repeating"


def test_without_calls_steps_are_on_the_device_only() -> None:
    rows = [kernel(100 * i + 20 * j, 10, name) for i in range(6) for j, name in enumerate(_KERNELS)]
    analysis = Analysis(build_trace(*rows))
    steps = analysis.steps
    assert (steps.host_start.tolist(), steps.host_end.tolist()) == ([-1] * 6, [-1] * 6)
    assert steps.gpu_start.tolist() == [100 * i for i in range(6)]
    assert steps.host_ns.tolist() == [-1] * 6
    assert analysis.step_of_time(np.asarray([50]), np.asarray([0])).tolist() == [-1]


def test_other_streams_and_copies_belong_to_the_step_that_launched_them() -> None:
    rows = []
    for i in range(6):
        rows += sequence(100 * i)
        rows += launch("side", at=100 * i + 50, start=100 * i + 150, dur=20, call_dur=2, stream=20)
        rows += [call(100 * i + 55, 2, "cudaMemcpyAsync", correlation=i + 1)]
        rows += [copy(100 * i + 60, 5, "h2d", 64, correlation=i + 1, stream=20)]
    steps = Analysis(build_trace(*rows)).steps
    assert np.bincount(steps.of_work).tolist() == [7] * 6
    # Work that is still on when the next step begins is of the step that launched it.
    assert steps.gpu_end.tolist() == [100 * i + 170 for i in range(6)]


def test_a_cut_off_last_step_is_not_complete() -> None:
    steps = Analysis(build_trace(*(sequence(100 * i) for i in range(5)), sequence(500, _KERNELS[:2]))).steps
    assert steps.complete.tolist() == [True] * 5 + [False]


def test_a_loop_over_one_or_two_kernels_makes_no_steps() -> None:
    assert Analysis(build_trace(*(sequence(100 * i, ("gemm",)) for i in range(20)))).steps.source == ""
    assert Analysis(build_trace(*(sequence(100 * i, ("gemm", "add")) for i in range(20)))).steps.source == ""


def test_each_process_has_its_own_sequence() -> None:
    rows = [sequence(100 * i, pid=100) for i in range(4)]
    rows += [sequence(50 * i + 7, ("a", "b", "c", "d"), pid=200, tid=200, device=1) for i in range(5)]
    steps = Analysis(build_trace(*rows)).steps
    assert np.bincount(steps.process).tolist() == [4, 5]
    assert steps.index.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_row_order_changes_no_step() -> None:
    rows = [row for i in range(6) for row in sequence(100 * i)]
    forward, backward = Analysis(build_trace(*rows)).steps, Analysis(build_trace(*reversed(rows))).steps
    assert forward.period.tolist() == backward.period.tolist()
    assert forward.of_work.tolist() == backward.of_work.tolist()


def test_a_longer_capture_of_the_same_steps_changes_no_period() -> None:
    short, long = (Analysis(build_trace(*(sequence(100 * i) for i in range(n)))).steps for n in (6, 60))
    assert set(short.period[1:].tolist()) == set(long.period[1:].tolist()) == {100}


def test_asynchronous_scheduling_with_ranges() -> None:
    """The host is done with step n + 1 before the GPU is with step n: a period is from GPU end to GPU end."""
    rows = [[span("decode", 40 * i, 30), *launch("k", at=40 * i + 5, start=100 * i + 50, dur=90, call_dur=5)]
            for i in range(4)]  # fmt: skip
    analysis = Analysis(build_trace(*rows))
    steps = analysis.steps
    assert steps.host_end.tolist() == [30, 70, 110, 150]
    assert steps.gpu_end.tolist() == [140, 240, 340, 440]
    assert steps.period.tolist() == [-1, 100, 100, 100]
    assert steps.of_work.tolist() == [0, 1, 2, 3]
    # The 10 ns in front of each kernel belong to the step whose kernel ends them.
    assert analysis.idle.ends_at.tolist() == [1, 2, 3]
    assert steps.of_work[analysis.idle.ends_at].tolist() == [1, 2, 3]


def test_asynchronous_scheduling_with_graph_launches() -> None:
    rows = []
    for i in range(4):
        rows.append(call(10 * i, 5, "cudaGraphLaunch", correlation=i + 1))
        rows += [kernel(100 * i + 50 + 10 * j, 10, f"k{j}", correlation=i + 1, graph_node=j + 1) for j in range(9)]
    steps = Analysis(build_trace(*rows)).steps
    assert steps.host_start.tolist() == [0, 10, 20, 30]
    assert steps.gpu_end.tolist() == [140, 240, 340, 440]
    assert steps.period.tolist() == [-1, 100, 100, 100]


CORPUS = {
    # A loop of four forward passes of 32 layers, each with 128 / 4 ranges around attention: not its layers.
    "cs336-a100-2.7B-nvtx.sqlite": ("kernel_sequences", 4, 840_992_666),
    "cs336-a100-2.7B-cudagraph.sqlite": ("graph_launches", 10, 781_074_000),
}


@pytest.mark.skipif("PROFKIT_CORPUS" not in os.environ, reason="the corpus is not at hand")
@pytest.mark.parametrize("name", CORPUS)
def test_steps_of_real_traces_without_ranges(name: str) -> None:
    steps = Analysis(open_trace(Path(os.environ["PROFKIT_CORPUS"]) / "nsys" / name)).steps
    source, count, period = CORPUS[name]
    assert (steps.source, len(steps)) == (source, count)
    assert np.median(steps.period[steps.period >= 0]) == pytest.approx(period, rel=0.001)
