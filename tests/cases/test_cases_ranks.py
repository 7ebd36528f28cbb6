"""Cases E: several devices and processes in one capture."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.ingest import open_trace

US, MS = 1_000, 1_000_000


def test_E03_all_devices_are_analysed(nsys: Any, check: Any, page: Any) -> None:
    for device, busy in enumerate((90, 80, 70, 20)):
        nsys.kernel(0, (busy - 1) * MS, device=device)
        nsys.kernel(99 * MS, 100 * MS, device=device)
    path = nsys.write()

    seen = check(path)

    assert seen.summary["window_ns"] == 100 * MS
    assert [d["busy_share"] for d in seen.summary["devices"]] == [0.9, 0.8, 0.7, 0.2]
    assert seen.summary["busy_share_mean"] == pytest.approx(0.65)
    assert seen.line("mean busy share of 4 GPUs: ").endswith("65.0 %")
    assert seen.line("imbalance: ") == "imbalance: NVIDIA H200 (GPU 3) was busy 20.0 % of the window"
    for share in ("90.0 %", "80.0 %", "70.0 %", "20.0 %"):
        assert share in page(path, only="table")


def test_E03_even_devices_are_no_imbalance(nsys: Any, check: Any) -> None:
    for device, busy in enumerate((90, 85)):
        nsys.kernel(0, busy * MS, device=device)

    seen = check(nsys.write())

    assert "imbalance" not in seen.text
    assert "mean busy share of 2 GPUs" in seen.text


def test_E03_one_device_has_no_mean(nsys: Any, check: Any) -> None:
    nsys.kernel(0, 90 * MS)

    assert "mean busy share" not in check(nsys.write()).text


def test_E07_only_one_process_has_gpu_data(nsys: Any, check: Any, page: Any) -> None:
    for rank in range(8):
        pid = 100 + rank
        nsys.add("PROCESSES", globalPid=pid << 24, pid=pid, name="python")
        for i in range(10):
            nsys.call(i * 10 * US, i * 10 * US + 5 * US, "cudaLaunchKernel_v7000", correlation=i + 1, pid=pid)
    for i in range(10):
        nsys.kernel(i * 10 * US + 6 * US, i * 10 * US + 9 * US, correlation=i + 1, pid=100)
    path = nsys.write()

    seen = check(path)

    (lost,) = seen.findings("PK502")
    assert (lost["facts"]["processes"], lost["facts"]["processes_with_calls"], lost["facts"]["launch_calls"]) == (
        7,
        8,
        70,
    )
    assert "7 of 8 processes that used CUDA" in lost["message"]
    assert "spawn" in lost["advice"]
    assert "--trace-fork-before-exec" in lost["advice"]
    assert "7 of 8 processes that used CUDA" in seen.text
    assert "7 of 8 processes that used CUDA" in page(path)
    trace = open_trace(path)
    assert trace.why_missing("kernels", 0) == ""
    for process in range(1, 8):
        assert "made 10 launches, none of its GPU work was recorded" in trace.why_missing("kernels", process)
