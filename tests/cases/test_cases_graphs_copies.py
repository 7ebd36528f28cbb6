"""Cases D and G: CUDA graphs, copies and the waits for them."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.ingest import open_trace

US, MS = 1_000, 1_000_000
H2D, D2D = 1, 8
PAGEABLE, DEVICE = 0, 2


def stats_rows(run: Any, path: Any, report: str) -> list[dict[str, str]]:
    printed = run("stats", path, report, "--format", "csv")
    assert printed.code == 0
    return list(csv.DictReader(io.StringIO(printed.out)))


def test_D01_a_graph_launch_is_one_launch(nsys: Any, check: Any) -> None:
    nsys.call(0, 20 * US, "cudaGraphLaunch_v10000", correlation=50)
    for i in range(30):
        nsys.kernel(25 * US + i * 3 * US, 28 * US + i * 3 * US, node=i + 1, correlation=50)

    seen = check(nsys.write())

    launches = seen.summary["launches"]
    assert (launches["graph_launches"], launches["graph_kernels"]) == (1, 30)
    assert seen.summary["counts"]["launch_calls"] == 1
    assert seen.summary["counts"]["kernels"] == 30
    assert launches["host_ns"] == launches["graph_host_ns"] == 20 * US
    assert launches["graph_host_ns_per_kernel"] == pytest.approx(20 * US / 30)
    assert launches["kernels_without_call"] == 0
    assert (seen.device["busy_ns"], seen.device["idle_ns"]) == (90 * US, 0)
    assert seen.findings("PK201") == []
    assert "PK201" in seen.document["clean"]
    line = seen.line("1 graph launch")
    assert "30 kernels" in line
    assert "20.0 µs" in line
    assert "667 ns a kernel" in line
    assert "600 µs" not in seen.text


@pytest.mark.parametrize("at_the_end", [True, False], ids=["window-of-the-rows", "window-given"])
def test_D02_graph_level_tracing_is_busy(nsys: Any, check: Any, run: Any, page: Any, at_the_end: bool) -> None:
    for i in range(10):
        nsys.graph(i * 10 * MS, i * 10 * MS + 9 * MS, correlation=i + 1)
    for i in range(6):
        nsys.kernel(i * 10 * MS + 9_500 * US, i * 10 * MS + 9_510 * US, correlation=100 + i)
    if at_the_end:
        last = nsys.rows["CUPTI_ACTIVITY_KIND_KERNEL"][-1]
        last["start"], last["end"] = 100 * MS - 10 * US, 100 * MS
    path = nsys.write()

    options = () if at_the_end else ("--window", "0ms:100ms")
    seen = check(path, *options)

    assert seen.summary["window_ns"] == 100 * MS
    assert seen.summary["counts"]["graphs"] == 10
    assert seen.device["busy_ns"] == 90_060_000
    assert seen.device["graph_ns"] == 90 * MS
    assert seen.device["kernel_ns"] == 60 * US
    assert seen.device["idle_ns"] == 9_940_000
    assert sum(seen.summary["idle_by_cause"].values()) == 9_940_000
    assert "90.1 %" in seen.headline
    assert "Kernels inside CUDA graphs were not recorded" in seen.headline
    assert "9.94 ms" in seen.text
    assert "9.9 %" in seen.everything
    (hidden,) = seen.findings("PK501")
    assert hidden["facts"] == {
        "graph_launches": 10, "graph_ns": 90 * MS, "busy_ns": 90_060_000, "visible_kernels": 6,
    }  # fmt: skip
    assert "--cuda-graph-trace=node" in hidden["advice"]
    assert "profkit trace" in hidden["advice"]
    assert "--cuda-graph-trace=node" in seen.text
    kernels = run("stats", path, "cuda_gpu_kern_sum", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(kernels.out))
    assert (row["Instances"], row["Total Time (ns)"]) == ("6", "60000")
    assert "10" in kernels.err
    assert "graph" in kernels.err.lower()
    words = page(path, *options)
    for seen_there in ("90.1 %", "Kernels inside CUDA graphs were not recorded", "--cuda-graph-trace=node"):
        assert seen_there in words


def test_D04_many_device_rows_share_one_correlation_id(nsys: Any, check: Any, run: Any) -> None:
    nsys.call(0, 20 * US, "cudaGraphLaunch_v10000", correlation=77)
    for i in range(31):
        start = 30 * US + i * 4 * US
        if i % 4 == 3:
            nsys.memcpy(start, start + 2 * US, D2D, 1_000, DEVICE, DEVICE, correlation=77)
        else:
            nsys.kernel(start, start + 3 * US, node=i + 1, correlation=77)
    path = nsys.write()

    seen = check(path)

    assert (seen.summary["counts"]["kernels"], seen.summary["counts"]["copies"]) == (24, 7)
    assert seen.summary["counts"]["launch_calls"] == 1
    assert seen.summary["launches"]["graph_kernels"] == 24
    assert seen.summary["launches"]["kernels_without_call"] == 0
    assert seen.device["kernel_ns"] == 24 * 3 * US
    assert seen.device["copy_ns"] == 7 * 2 * US
    assert seen.device["busy_ns"] == 24 * 3 * US + 7 * 2 * US
    assert seen.copies() == {("d2d", "device", "device"): (7, 7_000, 14 * US)}
    work = Analysis(open_trace(path)).work
    assert len(work) == 31
    assert work.call.tolist() == [0] * 31
    assert "duplicate" not in (seen.text + str(seen.document)).lower()
    assert seen.document["trace"]["warnings"] == []
    assert len(stats_rows(run, path, "cuda_gpu_trace")) == 31


def test_G01_pageable_asynchronous_upload(nsys: Any, check: Any, page: Any) -> None:
    nsys.call(1_000 * US, 1_150 * US, "cudaMemcpyAsync_v3020", correlation=9)
    nsys.memcpy(1_005 * US, 1_005 * US + 139_392, H2D, 1_573_000, PAGEABLE, DEVICE, correlation=9)
    path = nsys.write()

    seen = check(path)
    words = page(path)

    (upload,) = seen.findings("PK301")
    assert upload["key"] == "PK301:0:h2d:"
    facts = upload["facts"]
    assert (facts["copies"], facts["bytes"], facts["copy_ns"]) == (1, 1_573_000, 139_392)
    assert facts["host_in_call_ns"] == 150 * US
    assert upload["cost_ns"] == 139_392  # nothing else is in the window
    assert facts["bytes_per_s"] == 1_573_000 * 10**9 // 139_392
    for part in ("Pageable H2D ×1", "1.57 MB", "139 µs", "11.3 GB/s", "cudaMemcpyAsync", "(GPU 0)", "stream 7"):
        assert part in upload["message"]
        assert part in seen.text
        assert part in words
    (evidence,) = upload["evidence"]
    assert evidence["table"] == "copies"
    assert (evidence["ids"], evidence["count"]) == ([0], 1)
    assert evidence["window"] == {"start_ns": 1_005 * US, "end_ns": 1_005 * US + 139_392}
    assert "pin_memory" in upload["advice"]


@pytest.mark.parametrize("uploads", [0, 3])
def test_G03_read_back_into_pageable_memory(kineto: Any, check: Any, uploads: int) -> None:
    for i in range(1_000):
        at = 1000 + 20 * i
        kineto.call("cudaMemcpyAsync", at, 3, 2 * i + 1)
        kineto.on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 2, 1.2, 2 * i + 1, bytes=4)
        kineto.call("cudaStreamSynchronize", at + 3, 2, 2 * i + 2)
    for i in range(uploads):
        at = 30_000 + 200 * i
        kineto.call("cudaMemcpyAsync", at, 150, 5_000 + i)
        kineto.on_device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 5, 140, 5_000 + i, bytes=1_573_000)

    seen = check(kineto.write())

    by_key = {finding["key"]: finding for finding in seen.findings("PK301")}
    assert sorted(by_key) == ["PK301:0:d2h:"] + ["PK301:0:h2d:"] * bool(uploads)
    back = by_key["PK301:0:d2h:"]
    facts = back["facts"]
    assert (facts["copies"], facts["bytes"], facts["copy_ns"]) == (1_000, 4_000, 1_200_000)
    assert facts["followed_by_sync"] == 1_000
    assert "×1,000" in back["message"]
    assert "small read-backs" in back["message"]
    assert "1,000 have a synchronisation right behind them" in back["message"]
    for words in ("pinned", "later", "less often"):
        assert words in back["advice"]
    if uploads:
        up = by_key["PK301:0:h2d:"]
        assert (up["facts"]["copies"], up["facts"]["bytes"]) == (3, 3 * 1_573_000)
        assert "×3" in up["message"]
        assert up["advice"] != back["advice"]


LABELS = {
    "Memcpy HtoD (Pageable -> Device)": ("h2d", "pageable", "device"),
    "Memcpy HtoD (Pinned -> Device)": ("h2d", "pinned", "device"),
    "Memcpy HtoD (Unknown -> Device)": ("h2d", "unknown", "device"),
    "Memcpy DtoH (Device -> Pageable)": ("d2h", "device", "pageable"),
    "Memcpy DtoH (Device -> Pinned)": ("d2h", "device", "pinned"),
    "Memcpy DtoD (Device -> Device)": ("d2d", "device", "device"),
    "Memcpy PtoP (Device -> Device)": ("p2p", "device", "device"),
    "Memcpy HtoH (Pageable -> Pageable)": ("h2h", "pageable", "pageable"),
    "Memcpy HtoA (Pageable -> Array)": ("array", "pageable", "array"),
    "Memset (Device)": ("memset", "unknown", "device"),
}


def test_G04_every_copy_label_is_known(kineto: Any, check: Any) -> None:
    for i, label in enumerate(LABELS):
        category = "gpu_memset" if label.startswith("Memset") else "gpu_memcpy"
        kineto.on_device(category, label, 1000 + 20 * i, 10, i + 1, bytes=10)

    seen = check(kineto.write())

    assert seen.copies() == dict.fromkeys(LABELS.values(), (1, 10, 10_000))
    assert seen.summary["counts"]["copies"] == 10
    # Nine copies and the memset, without the one from host to host.
    assert seen.device["busy_ns"] == seen.device["copy_ns"] == 9 * 10_000
    assert seen.summary["window_ns"] == 9 * 20_000 + 10_000
    assert not [w for w in seen.document["trace"]["warnings"] if "not read" in w]


@pytest.mark.parametrize("with_calls", [False, True])
def test_G05_rocm_names_without_memory_kind(kineto: Any, check: Any, with_calls: bool) -> None:
    for i, name in enumerate(("CopyHostToDevice", "CopyDeviceToHost", "CopyDeviceToDevice")):
        if with_calls:
            kineto.call("hipMemcpyAsync", 1000 + 100 * i, 5, i + 1)
        kineto.on_device("gpu_memcpy", name, 1010 + 100 * i, 50, i + 1, bytes=1_000_000)

    seen = check(kineto.write())

    assert seen.copies() == {(kind, "unknown", "unknown"): (1, 1_000_000, 50_000) for kind in ("h2d", "d2h", "d2d")}
    assert seen.findings("PK301") == []
    assert "PK301" not in seen.document["clean"]
    assert "does not say whether the host memory of its copies is pageable or pinned" in seen.not_run["PK301"]
    assert "pageable or pinned" in seen.line("pageable or pinned")


@pytest.mark.parametrize("python_line", ["", "train.py(42): log_loss"])
def test_G09_loss_read_every_step(kineto: Any, check: Any, python_line: str) -> None:
    for i in range(100):
        at = 50_000 * i
        kineto.event("user_annotation", f"ProfilerStep#{i}", at, 50_000)
        kineto.launch(at + 1_000, 10, 10 * i + 1)
        # Of the wait from 3 ms to 48 ms the GPU is busy from 3 ms to 47 ms, the read-back at the end included.
        kineto.kernel(at + 3_000, 43_998, 10 * i + 1)
        if python_line:
            kineto.event("python_function", python_line, at + 1_900, 46_500)
        kineto.event("cpu_op", "aten::item", at + 2_000, 46_200)
        kineto.event("cpu_op", "aten::_local_scalar_dense", at + 2_100, 46_000)
        kineto.call("cudaMemcpyAsync", at + 2_200, 20, 10 * i + 2)
        kineto.on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 46_998, 2, 10 * i + 2, bytes=4)
        kineto.call("cudaStreamSynchronize", at + 3_000, 45_000, 10 * i + 3)

    seen = check(kineto.write())

    (wait,) = seen.findings("PK303")
    assert seen.findings("PK301") == []
    facts = wait["facts"]
    assert (facts["steps_with_wait"], facts["steps"], facts["syncs"], facts["read_backs"]) == (100, 100, 100, 100)
    assert facts["wait_ns"] == 4_500 * MS
    assert facts["gpu_busy_meanwhile_ns"] == 4_400 * MS
    assert facts["recoverable_ns"] == 100 * MS
    # Without the waits nothing but the kernels is left of the window.
    assert wait["cost_ns"] == (99 * 50 + 47 - 3) * MS - 100 * 43_998 * US
    for words in ("aten::item", "100 of 100 steps", "waited 4.50 s", "busy 4.40 s", "at most 100 ms"):
        assert words in wait["message"]
        assert words in seen.text
    assert ("train.py(42): log_loss" in wait["message"]) == bool(python_line)
    assert "_local_scalar_dense" not in wait["message"]


def test_G14_a_gap_filled_by_a_copy_is_not_idle(nsys: Any, check: Any, page: Any) -> None:
    nsys.kernel(0, 100 * MS)
    nsys.kernel(400 * MS, 500 * MS)
    nsys.memcpy(100 * MS, 353_700 * US, H2D, 10**9, PAGEABLE, DEVICE)
    path = nsys.write()

    seen = check(path)

    assert seen.summary["window_ns"] == 500 * MS
    assert seen.device["copy_ns"] == 253_700 * US
    assert seen.device["idle_ns"] == 46_300 * US
    assert seen.device["busy_ns"] == 453_700 * US
    assert sum(seen.summary["idle_by_cause"].values()) == 46_300 * US
    (gap,) = seen.findings("PK101")
    assert gap["cost_ns"] == 46_300 * US
    assert "46.3 ms (9.3 % of 500 ms)" in gap["message"]
    assert "46.3 ms (9.3 % of 500 ms)" in seen.everything
    row = seen.line("NVIDIA H200 (GPU 0)  ").split("  ")
    # Busy share, busy, kernels, copies, idle: of the 300 ms between the kernels 253.7 ms are the copy's.
    for cell in ("90.7 %", "454 ms", "200 ms", "254 ms", "46.3 ms"):
        assert cell in [part.strip() for part in row]
    words = page(path)
    assert "46.3 ms" in words
    assert "90.7 %" in words


def test_G15_a_memset_is_neither_kernel_nor_idle(nsys: Any, check: Any, run: Any) -> None:
    nsys.kernel(0, 2 * MS)
    nsys.memset(2 * MS, 3 * MS, 4_096)
    nsys.kernel(3 * MS, 5 * MS)
    path = nsys.write()

    seen = check(path)

    assert seen.copies() == {("memset", "unknown", "device"): (1, 4_096, 1 * MS)}
    assert seen.summary["counts"]["kernels"] == 2
    assert (seen.summary["window_ns"], seen.device["busy_ns"], seen.device["idle_ns"]) == (5 * MS, 5 * MS, 0)
    assert (seen.device["kernel_ns"], seen.device["copy_ns"]) == (4 * MS, 1 * MS)
    assert "1.00 ms" in seen.line("memset ")
    (memory,) = stats_rows(run, path, "cuda_gpu_mem_time_sum")
    assert (memory["Operation"], memory["Count"], memory["Total Time (ns)"]) == ("[CUDA memset]", "1", "1000000")
    (kernels,) = stats_rows(run, path, "cuda_gpu_kern_sum")
    assert (kernels["Instances"], kernels["Total Time (ns)"], kernels["Name"]) == ("2", "4000000", "gemm")


def test_D04_the_same_correlation_id_in_two_processes(nsys: Any) -> None:
    for pid in (100, 200):
        nsys.call(0, 20 * US, "cudaGraphLaunch_v10000", correlation=77, pid=pid)
        for i in range(5):
            nsys.kernel((30 + 4 * i) * US, (33 + 4 * i) * US, node=i + 1, correlation=77, pid=pid, device=pid // 200)

    work = Analysis(open_trace(nsys.write())).work

    calls = {int(p): np.unique(work.call[work.process == p]).tolist() for p in np.unique(work.process)}
    assert sorted(len(c) for c in calls.values()) == [1, 1]
    assert len({c[0] for c in calls.values()}) == 2
