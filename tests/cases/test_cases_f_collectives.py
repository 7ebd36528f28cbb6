"""Cases F: kernels of collectives, what runs beside them, who comes late, and their ranges on the host.

F05 is in ``test_cases_kineto_damage.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

US, MS = 1_000, 1_000_000
KERNELS = (
    "ncclKernel_AllReduce_RING_LL_Sum_float",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "ncclDevKernel_SendRecv",
    "aiter::cross_device_reduce_2stage",
    "vllm::cross_device_reduce_1stage",
)


def five_collectives(source: str, request: Any) -> Path:
    export = request.getfixturevalue(source)
    if source == "kineto":
        export.event("user_annotation", "nccl:all_reduce", 1_000, 5_000)
        for i, name in enumerate(KERNELS):
            export.launch(1_000 + 1_000 * i, 5, i + 1)
            export.kernel(1_100 + 1_000 * i, 1_000, i + 1, name)
    else:
        export.nvtx(0, 5 * MS, text="nccl:all_reduce")
        for i, name in enumerate(KERNELS):
            export.kernel(i * MS, (i + 1) * MS, name)
    return export.write()


@pytest.mark.parametrize("source", ["nsys", "kineto"])
def test_F01_collective_kernels_renamed(request: Any, check: Any, source: str) -> None:
    seen = check(five_collectives(source, request))

    found = seen.summary["communication"]
    assert (found["kernels"], found["nccl_ns"], found["custom_ns"]) == (5, 3 * MS, 2 * MS)
    assert found["busy_ns"] == 5 * MS
    # The range on the host is no GPU time.
    assert (found["host_calls"], found["host_ns"]) == (1, 5 * MS)
    assert seen.device["busy_ns"] == seen.device["kernel_ns"] == 5 * MS
    line = seen.line("communication kernels")
    assert "5 communication kernels: NCCL 3.00 ms and custom all-reduce 2.00 ms" in line
    assert "1 range, 5.00 ms, no part of that" in seen.line("their calls on the host")


def test_F03_no_collectives_in_the_trace(nsys: Any, check: Any, page: Any) -> None:
    for i in range(10):
        nsys.kernel(i * 10 * US, i * 10 * US + 8 * US)
    path = nsys.write()

    seen = check(path)

    found = seen.summary["communication"]
    assert (found["kernels"], found["busy_ns"]) == (0, 0)
    assert found["overlap_share"] is found["overlapped_ns"] is None
    assert seen.summary["collectives"] is None
    assert "no communication kernels: overlap n/a" in seen.everything
    assert "overlap 0" not in seen.everything
    assert "overlap 0" not in page(path)
    assert not [code for code in seen.codes if code.startswith("PK6")]
    assert not [code for code in seen.document["clean"] if code.startswith("PK6")]


def test_F03_overlap_is_what_runs_beside_on_the_same_device(nsys: Any, check: Any) -> None:
    """An all-reduce of 4 ms beside 3 ms of other kernels; a second one alone; on the other GPU nothing but kernels."""
    nsys.kernel(0, 4 * MS, KERNELS[1], stream=20)
    nsys.kernel(1 * MS, 3 * MS, stream=7)
    nsys.kernel(2 * MS, 4 * MS, stream=8)
    nsys.kernel(5 * MS, 7 * MS, KERNELS[1], stream=20)
    nsys.kernel(0, 7 * MS, device=1)

    found = check(nsys.write()).summary["communication"]

    assert (found["busy_ns"], found["overlapped_ns"], found["overlap_share"]) == (6 * MS, 3 * MS, 0.5)


def call(rank: int, name: str, ts: int, dur: int, correlation: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 100 + rank, "tid": 100 + rank, "ts": ts, "dur": dur,
        "args": {"correlation": correlation},
    }  # fmt: skip


def kernel(rank: int, name: str, ts: int, dur: int, correlation: int) -> dict[str, Any]:
    args = {"device": rank, "stream": 20, "correlation": correlation}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": 20, "ts": ts, "dur": dur, "args": args}


def four_ranks(folder: Path, late: str) -> Path:
    """Ten all-reduces that end at 51 ms of each 60 ms, and a wait for each; ranks 0 to 2 come at 0, rank 3 at 50 ms:
    its host launches so late, or a kernel of its own is in the way."""
    folder.mkdir()
    for rank in range(4):
        events = []
        for i in range(10):
            t, number = 10_000 + 60_000 * i, 10 * i
            start = t + (50_000 if rank == 3 else 0)
            launched = start if late == "host" else t
            if rank == 3 and late == "kernel":
                events += [call(rank, "cudaLaunchKernel", t - 20, 5, number + 1)]
                events += [kernel(rank, "gemm", t, 50_000, number + 1)]
            events += [call(rank, "cudaLaunchKernel", launched - 8, 5, number + 2)]
            events += [kernel(rank, KERNELS[1], start, t + 51_000 - start, number + 2)]
            events += [call(rank, "cudaStreamSynchronize", launched, t + 51_010 - launched, number + 3)]
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": device, "name": "NVIDIA H200"} for device in range(4)],
            "distributedInfo": {"rank": rank, "world_size": 4},
            "baseTimeNanoseconds": 1_700_000_000 * 10**9,
            "traceEvents": events,
        }
        (folder / f"rank{rank}.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.mark.parametrize("late", ["host", "kernel"])
def test_F06_which_rank_is_the_straggler(tmp_path: Path, check: Any, page: Any, late: str) -> None:
    folder = four_ranks(tmp_path / "ranks", late)

    seen = check(folder)

    found = seen.summary["collectives"]
    assert (found["matched"], found["not_matched"]) == (10, [])
    assert found["ranks"] == [{"rank": "rank 3", "came_last": 10, "of": 10}]
    assert (found["wait_p50_ns"], found["transfer_p50_ns"]) == (50 * MS, 1 * MS)
    # Ten times 50 ms, by each of three ranks.
    assert found["wait_sum_ns"] == 10 * 50 * MS
    assert [w["wait_ns"] for w in found["waits"]] == [500 * MS, 500 * MS, 500 * MS, 0]
    assert "rank 3 came last 10 of 10 times" in seen.text
    assert "wait for the last one 50.0 ms, transfer 1.00 ms (medians)" in seen.text
    assert "fastest" not in seen.everything
    (straggler,) = seen.findings("PK602")
    assert straggler["facts"]["collectives"] == 10
    assert "rank 3" in straggler["message"]
    assert seen.codes[0] == "PK602"
    # Nine times 50 ms: what came before the first one is not known.
    assert straggler["saving_ns"] == pytest.approx(9 * 50 * MS, rel=0.01)
    assert "rank 3 came last" in page(folder)


def test_F07_a_range_on_the_host_is_not_the_duration(kineto: Any, check: Any) -> None:
    kineto.event("cpu_op", "nccl:all_reduce", 1_000, 40)
    kineto.launch(1_010, 20, 1)
    kineto.kernel(1_035, 3_000, 1, KERNELS[1])

    seen = check(kineto.write())

    found = seen.summary["communication"]
    assert (found["kernels"], found["nccl_ns"], found["busy_ns"]) == (1, 3 * MS, 3 * MS)
    assert (found["host_calls"], found["host_ns"]) == (1, 40 * US)
    assert "1 communication kernel: NCCL 3.00 ms" in seen.text
    assert "1 range, 40.0 µs, no part of that" in seen.text
    assert seen.device["busy_ns"] == 3 * MS
    assert "3.04 ms" not in seen.text.replace("3.04 ms of capture", "")
