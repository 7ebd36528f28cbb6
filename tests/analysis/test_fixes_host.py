"""Fixes of what the host does: cost and saving of each, computed by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from profkit.testing import Row, call, kernel, launch, os_call, overhead, sched, span

Step = Callable[[int], list[Row | list[Row]]]


def _launches(count: int, pause: int = 5_000) -> Step:
    """Kernels of 2,000, each launched by a call of 5,000 with a pause before it."""

    def step(t: int) -> list[Row | list[Row]]:
        times = [t + i * (5_000 + pause) for i in range(count)]
        return [launch("k", at=at, start=at + 9_000, dur=2_000) for at in times]

    return step


def test_cuda_graphs(price_of: Any, steps_of: Any) -> None:
    found = price_of("cuda-graphs", *steps_of(5, 150_000, _launches(10)))
    # Ten launches and the nine pauses between them: 95,000, of which one launch of 2,500 and 10 nodes of 1 is left.
    # Kernels of 2,000 with 1,000 between them take 29,000 of the 55,000 that the host has then left.
    assert found.count == 50
    assert found.cost[1] == 95_000
    assert found.saving[1] == 95_000 - 2_510
    assert found.facts == {"graph_launches": 5, "graph_launch_base_ns": 2_500, "graph_launch_node_ns": 1}
    assert price_of("cuda-graphs", *steps_of(5, 150_000, _launches(7))) is None


def test_cuda_graphs_cost_what_the_traces_own_ones_do(price_of: Any, steps_of: Any) -> None:
    def step(t: int) -> list[Row | list[Row]]:
        graph = [call(t + 120_000, 8_000, "cudaGraphLaunch", correlation=t + 1)]
        nodes = [kernel(t + 133_000 + 2_700 * i, 2_000, correlation=t + 1, graph_node=i) for i in range(3)]
        return [*_launches(10)(t), *graph, *nodes]

    found = price_of("cuda-graphs", *steps_of(5, 200_000, step))
    assert found.facts == {"graph_launches": 5, "graph_launch_base_ns": 8_000, "graph_launch_node_ns": 0}
    assert found.saving[1] == 95_000 - 8_000


def test_replay_every_step(price_of: Any, steps_of: Any) -> None:
    """Step 3 of 8 launches kernel by kernel, the others replay a graph."""

    def step(t: int, launches: int = 20) -> list[Row | list[Row]]:
        if t == 3 * 250_000:
            return _launches(launches)(t)
        nodes = [kernel(t + 13_000 + 2_700 * i, 2_000, correlation=t + 1, graph_node=i) for i in range(10)]
        return [call(t, 8_000, "cudaGraphLaunch", correlation=t + 1), *nodes]

    found = price_of("replay-every-step", *steps_of(8, 250_000, step))
    # Twenty launches and nineteen pauses in one of seven periods, less a graph launch of 8,000.
    assert found.count == 20
    assert found.cost == (195_000, round(195_000 / 7))
    assert found.saving == (187_000, round(187_000 / 7))
    # Where most steps launch kernel by kernel that is no miss; a few launches stand beside a graph.
    assert price_of("replay-every-step", *steps_of(8, 250_000, _launches(20))) is None
    assert price_of("replay-every-step", *steps_of(8, 250_000, lambda t: step(t, 15))) is None


def _some_calls(*names: str) -> Step:
    """A kernel, then calls of 30,000, one behind the other, behind host work of 35,000."""

    def step(t: int) -> list[Row | list[Row]]:
        calls = [call(t + 40_000 + 30_000 * i, 30_000, name) for i, name in enumerate(names)]
        return [launch("k", at=t, start=t + 9_000, dur=5_000), *calls]

    return step


@pytest.mark.parametrize(
    ("fix", "name", "others"),
    [
        ("pooled-allocations", "cudaMalloc", ("cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc")),
        ("pooled-allocations", "cuMemCreate", ()),
        ("preallocated-pinned", "cudaHostAlloc", ("cudaMalloc", "cudaFree")),
        ("preallocated-pinned", "cudaHostRegister", ()),
        ("preloaded-modules", "cuModuleLoadData", ("cudaMalloc",)),
        ("preloaded-modules", "cuLibraryLoadData", ()),
        ("no-implicit-sync", "cudaFree", ("cudaFreeAsync", "cudaFreeHost")),
    ],
)
def test_calls_that_are_not_made(price_of: Any, steps_of: Any, fix: str, name: str, others: tuple[str, ...]) -> None:
    found = price_of(fix, *steps_of(5, 200_000, _some_calls(name)))
    assert (found.count, found.cost, found.saving) == (5, (4 * 30_000, 30_000), (4 * 30_000, 30_000))
    if others:
        assert price_of(fix, *steps_of(5, 300_000, _some_calls(*others))) is None


def test_host_work_right_before_a_call_that_is_not_made_is_not_done(price_of: Any, steps_of: Any) -> None:
    """Up to 20,000: what leads from the program to the call."""

    def step(pause: int) -> Step:
        return lambda t: [launch("k", at=t, start=t + 9_000, dur=5_000), call(t + 5_000 + pause, 30_000, "cudaMalloc")]

    assert price_of("pooled-allocations", *steps_of(5, 200_000, step(20_000))).cost[1] == 50_000
    assert price_of("pooled-allocations", *steps_of(5, 200_000, step(20_001))).cost[1] == 30_000


def test_what_stands_before_the_first_step_is_left_out(price_of: Any, steps_of: Any) -> None:
    rows = [call(0, 900_000, "cudaMalloc"), call(900_000, 90_000, "cuModuleLoadData")]
    later = [row for i in range(5) for row in _some_calls("cudaGetDevice")(1_000_000 + i * 200_000)]
    spans = [span("decode", 1_000_000 + i * 200_000, 190_000, payload=1) for i in range(5)]
    assert price_of("pooled-allocations", *rows, *spans, *later) is None
    assert price_of("preloaded-modules", *rows, *spans, *later) is None


def test_preloaded_modules(price_of: Any, steps_of: Any) -> None:
    """Loading inside of the first launch of a kernel, as the driver's own rows show it: 40,000 of a call of 50,000."""

    def step(t: int) -> list[Row | list[Row]]:
        first = t == 400_000
        load = [overhead(t + 5_000, 40_000, "module_loading")] if first else []
        return [launch("k", at=t, start=t + 60_000, dur=5_000, call_dur=50_000 if first else 5_000), *load]

    found = price_of("preloaded-modules", *steps_of(5, 200_000, step))
    assert (found.count, found.facts) == (1, {"loading_ns": 40_000})
    assert found.cost == found.saving == (40_000, 10_000)


def test_reuse_graphs(price_of: Any, steps_of: Any) -> None:
    """A capture of 60,000 with a launch inside, and its instantiation: 30,000."""

    def step(t: int) -> list[Row | list[Row]]:
        return [
            call(t, 10_000, "cudaStreamBeginCapture"), call(t + 20_000, 5_000, "cudaLaunchKernel"),
            call(t + 40_000, 20_000, "cudaStreamEndCapture"), call(t + 70_000, 30_000, "cudaGraphInstantiate"),
            call(t + 110_000, 8_000, "cudaGraphLaunch", correlation=t + 1),
            kernel(t + 123_000, 5_000, correlation=t + 1, graph_node=1),
        ]  # fmt: skip

    found = price_of("reuse-graphs", *steps_of(5, 200_000, step))
    # The calls (65,000), and what leads to three of them; the host work before the capture (82,000) stays.
    assert (found.count, found.saving) == (20, found.cost)
    assert found.cost[1] == 65_000 + 10_000 + 15_000 + 10_000
    assert price_of("reuse-graphs", *steps_of(5, 200_000, _some_calls("cuModuleLoadData"))) is None


def test_no_stalls(price_of: Any, steps_of: Any) -> None:
    """One pause of 1,000,000 where the others take 95,000."""

    def price(late: int) -> Any:
        times = [i * 100_000 + late * (i > 3) for i in range(9)]
        rows = [launch("k", at=t, start=t + 9_000, dur=5_000) for t in times]
        spans = [span("decode", t, 99_000 + late * (i == 3), payload=1) for i, t in enumerate(times)]
        return price_of("no-stalls", *spans, *rows)

    found = price(905_000)
    assert (found.count, found.facts) == (1, {"host_work_ns": 905_000})
    assert found.cost == found.saving == (905_000, round(905_000 / 8))
    assert price(805_000) is None  # 900,000 are less than ten times 95,000


@pytest.mark.parametrize("cause", ["off_cpu", "gil", "os_wait"])
def test_no_interruptions(price_of: Any, steps_of: Any, cause: str) -> None:
    """40,000 of the host's 195,000 it could not run."""

    def step(t: int) -> list[Row | list[Row]]:
        kept: dict[str, list[Row]] = {
            "off_cpu": [sched(t + 50_000, False), sched(t + 90_000, True)],
            "gil": [span("Waiting for GIL", t + 50_000, 40_000, domain="Python GIL")],
            "os_wait": [os_call(t + 50_000, 40_000, "pthread_cond_wait")],
        }
        return [launch("k", at=t, start=t + 9_000, dur=5_000), kept[cause]]

    found = price_of("no-interruptions", *steps_of(5, 200_000, step))
    assert found.cost == found.saving == (4 * 40_000, 40_000)
    assert price_of("no-interruptions", *steps_of(5, 200_000, _launches(1))) is None


@pytest.mark.parametrize(
    ("fix", "stages", "gone"),
    [
        ("overlapped-scheduling", ("schedule", "sample", "detokenize", "tokenize"), 3),
        ("tokenize-apart", ("schedule", "sample", "detokenize", "tokenize"), 1),
    ],
)
def test_stages_off_the_thread(price_of: Any, steps_of: Any, fix: str, stages: tuple[str, ...], gone: int) -> None:
    """Four stages of 20,000 each behind a kernel."""

    def step(t: int) -> list[Row | list[Row]]:
        ranges = [span(stage, t + 30_000 + 30_000 * i, 20_000) for i, stage in enumerate(stages)]
        return [launch("k", at=t, start=t + 9_000, dur=5_000), ranges]

    found = price_of(fix, *steps_of(5, 200_000, step))
    assert found.cost == found.saving == (4 * gone * 20_000, gone * 20_000)


def test_even_ranks(price_of: Any) -> None:
    """Two ranks; the host of the second one takes 60,000 before each collective, that of the first one 20,000."""
    rows: list[Any] = []
    for t in range(0, 600_000, 100_000):
        for rank, pause in ((1, 20_000), (2, 60_000)):
            thread = {"pid": rank, "tid": rank}
            at = t + 5_000 + pause
            rows += [
                span("decode", t, 99_000, payload=1, **thread),
                *launch("k", at=t, start=t + 9_000, dur=5_000, device=rank - 1, **thread),
                # They end together at 81,000: 10,000 behind the start of the second one, 71,000.
                *launch("ncclDevKernel_AllReduce", at=at, start=at + 6_000, dur=t + 75_000 - at, call_dur=2_000,
                        device=rank - 1, **thread),
                call(at + 5_000, t + 81_000 - at, "cudaStreamSynchronize", **thread),
            ]  # fmt: skip
    found = price_of("even-ranks", *rows)
    assert found.facts == {"collectives": 6, "late": 6, "late_by_p50_ns": 40_000}
    # 40,000 in all but the first step: what was before the first collective is not known.
    assert found.cost == found.saving == (5 * 40_000, 40_000)


def test_overlapped_host_work(price_of: Any, steps_of: Any) -> None:
    """Steps of 100,000: a launch, a wait until 6,000 behind its kernel, 35,000 on the host."""

    def step(t: int) -> list[Row | list[Row]]:
        return [launch("k", at=t, start=t + 9_000, dur=50_000), call(t + 10_000, 55_000, "cudaStreamSynchronize")]

    found = price_of("overlapped-host-work", *steps_of(5, 100_000, step))
    # In the gap behind each kernel but the last one the host does 35,000 of its own between wait and launch.
    assert found.count == 4
    assert found.facts == {"host_work_ns": 4 * 35_000}
    assert found.cost == found.saving == (4 * 35_000, 35_000)
    # A gap that holds nothing but launching is meant by cuda-graphs.
    assert price_of("overlapped-host-work", *steps_of(5, 150_000, _launches(10, pause=25_000))) is None
