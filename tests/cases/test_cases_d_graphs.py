"""Cases D06 and D07: when a CUDA graph is the answer, and GPU work inside graphs that has no rows.

D01, D02 and D04 are in ``test_cases_graphs_copies.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

US, MS = 1_000, 1_000_000
KERNELS, ITERATIONS = 50, 100
EACH = 8 * US
"""A kernel of 3 us and a gap of 5 us."""
D2H, PAGEABLE, DEVICE = 2, 0, 2


def iterations(
    nsys: Any, *, calls: bool = True, graph: bool = False, read_back: bool = False, order: Any = None
) -> int:
    """100 iterations of 50 kernels; returns where the last one ends. A launch call returns 1 us before its kernel."""
    t, correlation = 10 * US, 1
    for _ in range(ITERATIONS):
        names = range(KERNELS) if order is None else order.permutation(KERNELS).tolist()
        if graph:
            nsys.call(t - 4 * US, t - 2 * US, "cudaGraphLaunch_v10000", correlation=correlation)
        for j, name in enumerate(names):
            if calls and not graph:
                correlation += 1
                nsys.call(t - 4 * US, t - 1 * US, "cudaLaunchKernel_v7000", correlation=correlation)
            node = j + 1 if graph else None
            nsys.kernel(t, t + 3 * US, f"kernel_{name}", node, correlation=correlation if calls or graph else 0)
            t += EACH
        if read_back:
            correlation += 1
            nsys.call(t - 4 * US, t - 1 * US, "cudaMemcpyAsync_v3020", correlation=correlation)
            nsys.memcpy(t, t + 2 * US, D2H, 4, DEVICE, PAGEABLE, correlation=correlation)
            correlation += 1
            nsys.call(t - 1 * US, t + 3 * US, "cudaStreamSynchronize_v3020", correlation=correlation)
            t += 10 * US
        correlation += 1
    return t


@pytest.mark.parametrize("calls", [True, False], ids=["with-calls", "kernels-only"])
def test_D06a_the_same_kernels_again_and_again(nsys: Any, check: Any, page: Any, calls: bool) -> None:
    iterations(nsys, calls=calls)
    path = nsys.write()

    seen = check(path)

    # The launches are what the GPU waits for, a graph the one fix: with calls both are one finding.
    assert seen.codes == ["PK202"]
    assert "50 kernels repeats 100 times" in seen.text
    (hint,) = check(path, "--select", "PK202").findings("PK202")
    assert (hint["facts"]["kernels_per_repetition"], hint["facts"]["repetitions"]) == (50, 100)
    # 49 gaps of 5 us inside each of 100 repetitions; the gaps between two of them a graph does not close.
    assert hint["facts"]["waited_ns"] == 100 * 49 * 5 * US
    if calls:
        # 5,000 kernels of 3 us, 5 us apart; then 850 ns apart in a graph and 1 us between two graphs.
        assert hint["cost_ns"] == hint["saving_ns"] == 4_999 * 5_000 - (100 * 49 * 850 + 99 * 1_000)
    else:
        assert hint["cost_ns"] is hint["saving_ns"] is None
        assert "100.0 % of the device operations have no recorded call" in hint["facts"]["price_not_known"]
    assert "50 kernels repeats 100 times" in hint["message"]
    assert "CUDA graph" in hint["advice"]
    assert hint["facts"]["waits_inside"] == 0
    assert "stands in the way" not in hint["message"]
    assert hint["evidence"][0]["ids"] == list(range(50))
    assert seen.summary["step_source"] == "kernel_sequences"
    assert seen.summary["steps"]["other"]["count"] == 100
    assert seen.summary["steps"]["other"]["period_p50_ns"] == 50 * EACH
    assert "from a sequence of 50 kernels × 100 that repeats" in seen.text
    assert "from a sequence of 50 kernels × 100 that repeats" in page(path)


def test_D06b_a_synchronisation_stands_in_the_way(nsys: Any, check: Any) -> None:
    iterations(nsys, read_back=True)

    path = nsys.write()

    seen = check(path)

    (hint,) = check(path, "--select", "PK202").findings("PK202")
    assert (hint["facts"]["kernels_per_repetition"], hint["facts"]["repetitions"]) == (50, 100)
    assert hint["facts"]["waits"] == "cudaStreamSynchronize (for a pageable D2H copy)"
    for words in ("Remove", "first", "cudaStreamSynchronize", "pageable D2H copy"):
        assert words in hint["advice"]
    assert "cudaStreamSynchronize (for a pageable D2H copy) stands in the way of a CUDA graph" in seen.text
    (wait,) = seen.findings("PK303")
    # Each step ends with a read-back behind its kernels; whether the last one was seen to its end is not known.
    assert (wait["facts"]["steps_with_wait"], wait["facts"]["steps"]) == (99, 100)
    assert seen.line("excluded") == "1 of 100 steps excluded: cut off or irregular"


def test_D06c_kernels_of_a_graph_need_no_hint(nsys: Any, check: Any) -> None:
    iterations(nsys, graph=True)

    seen = check(nsys.write())

    assert seen.findings("PK202") == []
    assert seen.findings("PK201") == []
    assert {"PK201", "PK202"} <= set(seen.document["clean"])
    assert seen.summary["launches"]["graph_launches"] == 100
    assert seen.summary["step_source"] == "graph_launches"
    assert seen.summary["steps"]["other"]["count"] == 100
    assert seen.summary["steps"]["other"]["period_p50_ns"] == 50 * EACH


def test_D06d_in_random_order_nothing_repeats(nsys: Any, check: Any) -> None:
    iterations(nsys, order=np.random.default_rng(6))

    seen = check(nsys.write())

    assert seen.findings("PK202") == []
    assert "PK202" in seen.document["clean"]
    assert seen.summary["steps"] == {}
    assert seen.summary["step_source"] is None
    # The launches are what the GPU waits for all the same, and no advice speaks of a graph.
    (bound,) = seen.findings("PK201")
    assert "graph" not in bound["advice"].lower()
    assert "No sequence of kernels repeats" in bound["advice"]


def test_D07_gpu_work_inside_a_graph_was_not_recorded(nsys: Any, check: Any, page: Any) -> None:
    nsys.call(0, 20 * US, "cudaGraphLaunch_v10000", correlation=1)
    for i in range(5):
        nsys.kernel(i * MS, (i + 1) * MS, node=i + 1, correlation=1)
    nsys.call(100 * US, 50 * MS, "cudaStreamSynchronize_v3020", correlation=2)
    nsys.device_row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 100 * US, 50 * MS, correlation=2, syncType=3)
    nsys.call(51 * MS - 10 * US, 51 * MS - 5 * US, "cudaLaunchKernel_v7000", correlation=3)
    nsys.kernel(51 * MS, 52 * MS, correlation=3)
    path = nsys.write()

    seen = check(path)

    (lost,) = seen.findings("PK503")
    assert lost["severity"] == "warning"
    assert lost["facts"]["wait_without_gpu_work_ns"] == 45 * MS
    assert lost["facts"]["waits"] == 1
    assert lost["evidence"][0]["window"] == {"start_ns": 5 * MS, "end_ns": 50 * MS}
    words = "The host waited 45.0 ms in 1 call of cudaStreamSynchronize on stream 7 with no recorded GPU work"
    for text in (lost["message"], seen.text, page(path)):
        assert words in text
        assert "records may be missing" in text
    assert "the last launch before was a CUDA graph" in lost["message"]
    assert (lost["cost_ns"], lost["saving_ns"]) == (None, None)
    assert seen.findings("PK201") == []
    assert "PK201" in seen.document["clean"]
    assert "launch-bound" not in seen.text.lower().replace("pk201 launch-bound decode", "")


@pytest.mark.parametrize("until", [49, 50], ids=["a-millisecond-behind", "to-the-end"])
def test_D07_a_wait_for_recorded_work_is_none(nsys: Any, check: Any, until: int) -> None:
    nsys.call(0, 20 * US, "cudaGraphLaunch_v10000", correlation=1)
    nsys.kernel(30 * US, until * MS, node=1, correlation=1)
    nsys.call(100 * US, 50 * MS, "cudaStreamSynchronize_v3020", correlation=2)

    seen = check(nsys.write())

    assert seen.findings("PK503") == []
    assert "PK503" in seen.document["clean"]
