"""Cases A and H: captures that lack something, and how utilisation and queues are told."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

US, MS = 1_000, 1_000_000
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
SQL_WORDS = ("no such table", "sqlite3", "SELECT", "OperationalError", "^")


def test_A01_capture_with_no_nvtx_table(nsys: Any, check: Any, run: Any, page: Any) -> None:
    nsys.kernel(0, 100 * US)
    nsys.kernel(200 * US, 300 * US)
    path = nsys.write(without=("NVTX_EVENTS",))

    seen = check(path)

    assert seen.summary["window_ns"] == 300_000
    assert seen.device["busy_ns"] == 200_000
    assert seen.device["idle_ns"] == 100_000
    assert seen.device["busy_share"] == pytest.approx(2 / 3)
    assert "66.7 %" in seen.text
    (gaps,) = seen.findings("PK101")
    assert (gaps["facts"]["gaps"], gaps["facts"]["longest_ns"], gaps["cost_ns"]) == (1, 100_000, 100_000)
    assert seen.document["trace"]["missing"]["spans"].startswith("no NVTX ranges in this capture")
    assert "no NVTX ranges in this capture" in seen.line("spans: ")
    for command in (("check", path), ("check", path, "--json"), ("stats", path)):
        printed = run(*command)
        assert printed.code == 0
        assert "no such table" not in printed.all
    words = page(path)
    for seen_there in ("66.7 %", "300 µs", "100 µs", "no NVTX ranges in this capture"):
        assert seen_there in words
    assert "no such table" not in words


def test_A01_a_slice_keeps_its_own_time(nsys: Any, page: Any) -> None:
    """Both kernels reach over the edges of the closer look at the gap, which shows 10 µs of each."""
    nsys.kernel(0, 100 * US)
    nsys.kernel(200 * US, 300 * US)

    words = page(nsys.write(without=("NVTX_EVENTS",)))

    assert "100 µs at 0.000000000 s" in words
    assert "100 µs at 0.000200000 s" in words
    assert "10.0 µs at" not in words


@pytest.mark.parametrize(
    "names", [("cudaLaunchKernel_v7000",) * 3, ("cudaFree_v3020",) * 3], ids=["launches", "others"]
)
def test_A03_cpu_only_capture_without_a_kernel_table(
    nsys: Any, check: Any, run: Any, page: Any, names: tuple[str, ...]
) -> None:
    for i, name in enumerate(names):
        nsys.call(i * 10 * US, i * 10 * US + 5 * US, name, correlation=i + 1)
    nsys.nvtx(0, 50 * US, text="load")
    path = nsys.write(tables=("StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_GPU"))

    seen = check(path)

    assert len(seen.headline.splitlines()) == 1
    assert "no gpu kernels in this capture" in seen.headline.lower()
    assert "likely reasons" in seen.headline
    assert seen.document["clean"] == []
    rules = [line.split()[0] for line in run("rules").out.splitlines() if line.startswith("  PK")]
    assert seen.codes == (["PK502"] if "Launch" in names[0] else [])
    assert seen.document["others"] == []
    assert sorted([*seen.not_run, *seen.codes]) == sorted(rules)
    for code in seen.not_run:
        assert all(line.startswith("not evaluated: ") for line in seen.text.splitlines() if code in line)
    assert seen.summary["devices"] == []
    assert seen.summary["window_ns"] is None
    assert seen.summary["idle_by_cause"] is None
    for command in (
        (path,),
        ("check", path),
        ("check", path, "--json"),
        ("stats", path),
        ("stats", path, "cuda_gpu_kern_sum"),
    ):
        printed = run(*command)
        assert printed.code == 0
        assert not [word for word in SQL_WORDS if word in printed.all]
    words = page(path)
    assert "no gpu kernels in this capture" in words.lower()
    assert not [word for word in SQL_WORDS if word in words]
    assert "100.0 %" not in words


def test_A13_launches_but_an_empty_kernel_table_is_not_zero(nsys: Any, check: Any, run: Any, page: Any) -> None:
    for i in range(100):
        nsys.call(i * 10 * US, i * 10 * US + 5 * US, "cudaLaunchKernel_v7000", correlation=i + 1)
    path = nsys.write()

    seen = check(path)

    assert "100 launches were made" in seen.headline
    assert "no gpu kernels" in seen.headline.lower()
    assert seen.summary["window_ns"] is None
    assert seen.summary["window"] is None
    assert seen.summary["devices"] == []
    assert seen.summary["idle_by_cause"] is None
    assert seen.summary["counts"]["launch_calls"] == 100
    assert seen.summary["launches"]["queue_wait_ns"] is None
    assert seen.line("GPU busy and idle: ").startswith("GPU busy and idle: n/a")
    assert " 0.0" not in seen.text
    assert "100.0 %" not in seen.text
    assert "100 %" not in seen.text
    assert seen.codes == ["PK502"]
    assert seen.document["others"] == seen.document["clean"] == []
    assert {"PK101", "PK201", "PK202", "PK301", "PK303", "PK501", "PK503"} <= set(seen.not_run)
    kernels = run("stats", path, "cuda_gpu_kern_sum")
    assert (kernels.code, kernels.out) == (0, "")
    assert "no GPU kernels in this capture" in kernels.err
    words = page(path)
    assert "100 launches were made" in words
    assert " 0.0 " not in words
    assert "100.0 %" not in words


def test_A13_stages_and_steps_without_gpu_rows(nsys: Any, check: Any) -> None:
    for i in range(100):
        nsys.call(i * 10 * US, i * 10 * US + 5 * US, "cudaLaunchKernel_v7000", correlation=i + 1)
    for step in range(5):
        nsys.nvtx(step * 200 * US, step * 200 * US + 196 * US, text="decode")

    seen = check(nsys.write())

    (decode,) = seen.summary["stages"]
    assert (decode["stage"], decode["count"], decode["host_p50_ns"]) == ("decode", 5, 196 * US)
    assert {value for key, value in decode.items() if key.startswith("gpu_")} == {None}
    steps = seen.summary["steps"]["decode"]
    assert (steps["count"], steps["host_p50_ns"]) == (5, 196 * US)
    assert {steps[f"period_p{p}_ns"] for p in (50, 90, 99)} == {None}
    # In the text: three periods of the steps, and five GPU times of the stage.
    assert sorted(line.count("n/a") for line in seen.text.splitlines() if line.startswith("decode ")) == [0, 3, 5]
    assert "100.0 %" not in seen.text


CALLS = {
    "cudaMemcpyAsync_v3020": ("cudaMemcpyAsync", "copy"),
    "cudaMemcpy_v3020": ("cudaMemcpy", "copy"),
    "cudaStreamSynchronize_v3020": ("cudaStreamSynchronize", "sync"),
    "cudaDeviceSynchronize_v3020": ("cudaDeviceSynchronize", "sync"),
    "cudaLaunchKernel_v7000": ("cudaLaunchKernel", "launch"),
    "cuLaunchKernelEx": ("cuLaunchKernelEx", "launch"),
    "cudaGraphLaunch_v10000": ("cudaGraphLaunch", "graph_launch"),
}


def test_A14_runtime_names_with_a_version_suffix(nsys: Any, check: Any, run: Any, page: Any) -> None:
    for i, name in enumerate(CALLS):
        nsys.call(i * 10 * US, i * 10 * US + (i + 1) * US, name, correlation=i + 1)
    path = nsys.write()

    seen = check(path)

    calls = {call["name"]: (call["kind"], call["count"], call["total_ns"]) for call in seen.summary["calls"]}
    assert calls == {base: (kind, 1, (i + 1) * US) for i, (base, kind) in enumerate(CALLS.values())}
    assert seen.summary["counts"]["launch_calls"] == 3
    assert seen.summary["launches"]["graph_launches"] == 1
    table = run("stats", path, "cuda_api_sum", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    # stats prints what nsys prints: NVIDIA cuts versions of four digits only (golden: cudaGraphLaunch_v10000).
    listed = {base if base != "cudaGraphLaunch" else "cudaGraphLaunch_v10000": "1" for base, _ in CALLS.values()}
    assert {row["Name"]: row["Num Calls"] for row in rows} == listed
    tables = page(path, only="table")
    assert all(base in tables for base, _ in CALLS.values())
    for text in (seen.text, str(seen.document), tables):
        assert "_v3020" not in text
        assert "_v7000" not in text
        assert "_v10000" not in text


def test_H01_utilisation_never_above_100_percent(nsys: Any, check: Any, page: Any) -> None:
    nsys.kernel(0, 100 * MS, stream=7)
    nsys.kernel(0, 100 * MS, stream=20)
    path = nsys.write()

    seen = check(path)

    assert seen.summary["window_ns"] == 100 * MS
    assert seen.device["busy_ns"] == 100 * MS
    assert seen.device["busy_share"] == 1.0
    assert seen.device["idle_ns"] == 0
    assert seen.device["kernel_ns"] == 100 * MS
    assert seen.device["kernel_sum_over_streams_ns"] == 200 * MS
    assert "100.0 %" in seen.text
    assert "200.0 %" not in seen.text
    assert seen.line("kernel sum over streams").endswith("kernel sum over streams")
    assert seen.line("NVIDIA H200 (GPU 0)  ").endswith("200 ms")
    words = page(path)
    assert "100.0 %" in words
    assert "200.0 %" not in words


def test_H03a_a_long_queue_is_not_launch_bound(nsys: Any, check: Any) -> None:
    for i in range(1_000):
        nsys.call(i * 5 * US, i * 5 * US + 4 * US, "cudaLaunchKernel_v7000", correlation=i + 1)
        nsys.kernel(10 * US + i * 50 * US, 60 * US + i * 50 * US, correlation=i + 1)

    seen = check(nsys.write())

    assert seen.findings("PK201") == []
    assert "PK201" in seen.document["clean"]
    assert (seen.summary["window_ns"], seen.device["busy_ns"], seen.device["idle_ns"]) == (50 * MS, 50 * MS, 0)
    assert "launch-bound" not in seen.text.lower().replace("pk201 launch-bound decode", "")
    # Kernel i waits from 5i + 4 us to 10 + 50i us: nearest rank 50 is i = 499, rank 99 is i = 989.
    assert seen.summary["launches"]["queue_wait_ns"]["p50"] == 6 * US + 499 * 45 * US
    assert seen.summary["launches"]["queue_wait_ns"]["p99"] == 6 * US + 989 * 45 * US
    assert seen.summary["launches"]["queue_wait_ns"]["n"] == 1_000
    assert "p50 22.5 ms, p99 44.5 ms" in seen.line("queue wait")


@pytest.mark.parametrize("call_ns", [2 * US, 5 * US], ids=["after-the-call-returned", "before-the-call-returned"])
def test_H03b_kernels_shorter_than_their_launches_are_launch_bound(nsys: Any, check: Any, call_ns: int) -> None:
    starts_after = 4 * US + (call_ns if call_ns < 4 * US else 0)
    for i in range(1_000):
        at = i * 20 * US
        nsys.call(at, at + call_ns, "cudaLaunchKernel_v7000", correlation=i + 1)
        nsys.kernel(at + starts_after, at + starts_after + 5 * US, correlation=i + 1)

    seen = check(nsys.write())

    window = 999 * 20 * US + 5 * US
    assert (seen.summary["window_ns"], seen.device["busy_ns"]) == (window, 5 * MS)
    assert seen.device["idle_ns"] == 999 * 15 * US
    (bound,) = seen.findings("PK201")
    assert bound["facts"]["waited_ns"] == 999 * 15 * US
    assert bound["cost_ns"] == window - (1_000 * 5_000 + 999 * 850)  # kernels 850 ns apart are left, as in a graph
    assert bound["severity"] == "critical"
    assert "launch-bound" in bound["message"]
    assert "75.0 %" in bound["message"]
    assert (bound["facts"]["kernel_p50_ns"], bound["facts"]["launch_interval_p50_ns"]) == (5 * US, 20 * US)
    assert "launch-bound" in seen.headline


def test_A05_truncated_profile_file(whole: Path, tmp_path: Path, run: Any) -> None:
    data = (whole / "run.sqlite").read_bytes()
    path = tmp_path / "run.sqlite"
    path.write_bytes(data[: len(data) * 6 // 10])

    for command in (("check", path), ("check", path, "--json"), ("stats", path)):
        seen = run(*command)
        assert (seen.code, seen.out) == (1, "")
        (line,) = seen.err.splitlines()
        assert "truncated" in line
        assert f"{len(data)} bytes ({len(data) // 4096} pages of 4096), the file has {len(data) * 6 // 10}" in line


def test_A06_export_schema_newer_than_known_and_a_renamed_column(nsys: Any, run: Any) -> None:
    nsys.kernel(0, 100 * US)
    path = nsys.write()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE META_DATA_EXPORT SET value = '99.0.0' WHERE name = 'EXPORT_SCHEMA_VERSION'")
        db.commit()
    newer = run("check", path)
    assert newer.code == 0
    assert "warning: export schema 99.0.0 is newer than the tested range (2 to 3.x)" in newer.out
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"ALTER TABLE {KERNEL} RENAME COLUMN deviceId TO device")
        db.commit()

    seen = run("check", path)

    assert (seen.code, seen.out) == (1, "")
    assert f"{KERNEL}.deviceId is missing" in seen.err
    assert "export schema 99.0.0 is newer than the tested range" in seen.err


def test_A08_optional_activity_tables_absent(nsys: Any, check: Any, run: Any, page: Any) -> None:
    nsys.call(0, 5 * US, "cudaLaunchKernel_v7000", correlation=1)
    nsys.kernel(10 * US, 60 * US, correlation=1)
    nsys.call(6 * US, 61 * US, "cudaStreamSynchronize_v3020", correlation=2)
    kinds = ("MEMSET", "SYNCHRONIZATION", "MEMCPY")
    path = nsys.write(without=tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds))

    seen = check(path)

    assert seen.device["busy_ns"] == 50 * US
    assert seen.summary["copies"] == []
    calls = {call["name"]: (call["kind"], call["total_ns"]) for call in seen.summary["calls"]}
    assert calls["cudaStreamSynchronize"] == ("sync", 55 * US)
    assert "the export has no table CUPTI_ACTIVITY_KIND_SYNCHRONIZATION" in seen.document["trace"]["missing"]["syncs"]
    for command in (("check", path), ("stats", path), ("stats", path, "cuda_gpu_mem_time_sum")):
        printed = run(*command)
        assert printed.code == 0
        assert "no such table" not in printed.all
    assert "no such table" not in page(path)


def test_A11_a_device_that_is_not_in_the_capture(nsys: Any, check: Any, run: Any) -> None:
    for i in range(3):
        nsys.kernel(i * 100 * US, i * 100 * US + 10 * US, device=1)
        nsys.kernel(i * 100 * US, i * 100 * US + 30 * US, device=2)
    path = nsys.write()

    both = check(path)
    assert [(d["number"], d["kernel_ns"]) for d in both.summary["devices"]] == [(1, 30 * US), (2, 90 * US)]
    assert "(GPU 1)" in both.text
    assert "(GPU 2)" in both.text
    second = check(path, "--device", "2")
    assert (second.device["number"], second.device["busy_ns"]) == (2, 90 * US)
    assert second.summary["counts"]["kernels"] == 3
    for options in ((), ("--json",), ("--window", "0ms:1ms")):
        seen = run("check", path, "--device", "0", *options)
        assert (seen.code, seen.out) == (1, "")
        assert seen.err == "profkit: no kernels on device 0; devices with kernels: 1 (3), 2 (3)\n"


def test_A11_devices_that_all_processes_call_0(nsys: Any, check: Any, run: Any) -> None:
    """Then the number is the one that check shows."""
    for pid in (100, 101):
        nsys.kernel(0, (pid - 90) * US, pid=pid)
        nsys.add("TARGET_INFO_CUDA_DEVICE", gpuId=pid - 100, cudaId=0, pid=pid, uuid=f"gpu-{pid - 100}")
    path = nsys.write()

    assert [(d["number"], d["busy_ns"]) for d in check(path).summary["devices"]] == [(0, 10 * US), (1, 11 * US)]
    assert check(path, "--device", "1").device["busy_ns"] == 11 * US
    assert "devices with kernels: 0 (1), 1 (1)" in run("check", path, "--device", "7").err


def test_A15_kernel_names_thousands_of_characters_long(nsys: Any, check: Any, run: Any, tmp_path: Path) -> None:
    stem = "void gemm<" + "cutlass::Tile<128, 64>, " * 1_666
    names = [stem.ljust(39_990, "x") + end for end in ("aaaaaaaaaa", "bbbbbbbbbb")]
    for i in range(1_000):
        nsys.call(i * 10 * US, i * 10 * US + US, "cudaLaunchKernel_v7000", correlation=i + 1)
        nsys.kernel(i * 10 * US + 2 * US, i * 10 * US + 6 * US, name=names[i % 2], correlation=i + 1)
        nsys.rows[KERNEL][-1]["shortName"] = nsys.string("gemm")
    path = nsys.write()

    seen = check(path)
    report = run("report", path, "-o", tmp_path / "page.html")
    table = run("stats", path, "cuda_gpu_kern_sum", "--format", "csv")

    assert max(len(line) for line in seen.text.splitlines()) < 1_100
    assert report.code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 2_000_000
    rows = {row["Name"]: row["Instances"] for row in csv.DictReader(io.StringIO(table.out))}
    assert rows == dict.fromkeys(names, "500")
