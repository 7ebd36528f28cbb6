"""Calls, kernels with their launches, sizes, categories and migrations of hand-built traces, number by number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profkit import stats
from profkit.testing import Row, build_trace, call, copy, kernel, launch, os_call

Rows = list[dict[str, Any]]
Given = list[Row | list[Row]]


def answer(name: str, *rows: Row | list[Row]) -> stats.Answer:
    return stats.answer(build_trace(*rows), stats.choose([name])[0])


def report(name: str, *rows: Row | list[Row]) -> Rows:
    """Rows by key, in base units; None where absent."""
    listing = answer(name, *rows).listing
    assert listing is not None
    keys = [column.key for column in listing.columns]
    columns = [values.to_pylist() for values in listing.values]
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def columns(rows: Rows, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in rows]


def titles(name: str, *rows: Row | list[Row]) -> list[str]:
    listing = answer(name, *rows).listing
    assert listing is not None
    return [column.title for column in listing.columns]


def sized(row: Row, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Row:
    sides: dict[str, int] = {f"grid_{a}": n for a, n in zip("xyz", grid, strict=True)}
    sides |= {f"block_{a}": n for a, n in zip("xyz", block, strict=True)}
    return replace(row, values={**row.values, **sides})


def at_address(row: Row, address: int) -> Row:
    return replace(row, values={**row.values, "address": address})


def test_every_call_by_its_start() -> None:
    rows: Given = [
        call(30, 4, "cudaFree_v3020", correlation=9, tid=200),
        replace(
            call(10, 5, "cuInit", correlation=8, api="driver"),
            values={**call(10, 5, correlation=8).values, "return_code": 100},
        ),
        call(50, -1, "cudaDeviceSynchronize_v3020"),
        os_call(90, 10),
    ]
    assert titles("cuda_api_trace", *rows) == [
        "Start (ns)", "Duration (ns)", "Name", "Result", "CorrID", "Pid", "Tid", "T-Pri", "Thread Name",
    ]  # fmt: skip
    keys = ("start_ns", "duration_ns", "name", "result", "corr_id", "pid", "tid", "thread_priority", "thread_name")
    assert columns(report("cuda_api_trace", *rows), *keys) == [
        (10, 5, "cuInit", 100, 8, 100, 100, None, None),
        (30, 4, "cudaFree", 0, 9, 100, 200, None, None),
        (50, None, "cudaDeviceSynchronize", 0, None, 100, 100, None, None),
    ]


def test_a_kernel_with_its_launch_and_its_wait() -> None:
    rows: Given = [
        launch("waits", at=100, start=150, dur=30, call_dur=20, api="cudaLaunchKernel_v7000"),
        launch("early", at=200, start=210, dur=5, call_dur=20, device=1),
        launch("at once", at=300, start=320, dur=5, call_dur=20, tid=200),
    ]
    assert titles("cuda_kern_exec_trace", *rows) == [
        "API Start (ns)", "API Dur (ns)", "Queue Start (ns)", "Queue Dur (ns)", "Kernel Start (ns)", "Kernel Dur (ns)",
        "Total Dur (ns)", "PID", "TID", "DevId", "API Function", "GridXYZ", "BlockXYZ", "Kernel Name",
    ]  # fmt: skip
    first, second, third = report("cuda_kern_exec_trace", *rows)
    assert first == {
        "api_start_ns": 100, "api_dur_ns": 20, "queue_start_ns": 120, "queue_dur_ns": 30, "kernel_start_ns": 150,
        "kernel_dur_ns": 30, "total_dur_ns": 80, "pid": 100, "tid": 100, "dev_id": 0,
        "api_function": "cudaLaunchKernel", "gridxyz": None, "blockxyz": None, "kernel_name": "waits",
    }  # fmt: skip
    # It began during its call: there is no wait, and the call ends after the kernel.
    assert [second[key] for key in ("queue_start_ns", "queue_dur_ns", "total_dur_ns", "dev_id")] == [None, None, 20, 1]
    assert [third[key] for key in ("queue_start_ns", "queue_dur_ns", "tid")] == [320, 0, 200]


def test_launch_summary_counts_only_real_waits() -> None:
    rows: Given = [
        launch("gemm", at=0, start=30, dur=10, call_dur=20),  # waits 10, total 40
        launch("gemm", at=100, start=150, dur=20, call_dur=10),  # waits 40, total 70
        launch("gemm", at=200, start=205, dur=30, call_dur=10),  # no wait, total 35
        launch("norm", at=300, start=305, dur=3, call_dur=10),  # no wait, total 10
    ]
    gemm, norm = report("cuda_kern_exec_sum", *rows)
    assert columns([gemm, norm], "pid", "tid", "dev_id", "count", "qcount", "api_name", "kernel_name") == [
        (100, 100, 0, 3, 2, "cudaLaunchKernel", "gemm"),
        (100, 100, 0, 1, 0, "cudaLaunchKernel", "norm"),
    ]
    spread = ("avg", "med", "min", "max", "stddev")
    values = {part: [gemm[f"{part}_{key}_ns"] for key in spread] for part in ("total", "api", "queue", "kernel")}
    assert values["total"] == pytest.approx([145 / 3, 40, 35, 70, 18.929694], rel=1e-6)
    assert values["api"] == pytest.approx([40 / 3, 10, 10, 20, 5.773503], rel=1e-6)
    assert values["queue"] == pytest.approx([25, 25, 10, 40, 21.213203], rel=1e-6)
    assert values["kernel"] == pytest.approx([20, 20, 10, 30, 10])
    assert [norm[f"queue_{key}_ns"] for key in spread] == [None] * 5


def test_launch_summary_keeps_threads_devices_and_calls_apart() -> None:
    rows: Given = [
        launch("k", at=0, start=30, dur=10),
        launch("k", at=10_000, start=30_000, dur=10, tid=200),
        launch("k", at=20_000, start=90_000, dur=10, device=1),
        launch("k", at=40_000, start=140_000, dur=10, api="cuLaunchKernelEx"),
    ]
    assert columns(report("cuda_kern_exec_sum", *rows), "tid", "dev_id", "api_name", "total_max_ns") == [
        (100, 0, "cuLaunchKernelEx", 100_010),
        (100, 1, "cudaLaunchKernel", 70_010),
        (200, 0, "cudaLaunchKernel", 20_010),
        (100, 0, "cudaLaunchKernel", 5_000),
    ]
    assert titles("cuda_kern_exec_sum", *rows)[:8] == [
        "PID", "TID", "DevId", "Count", "QCount", "TAvg (ns)", "TMed (ns)", "TMin (ns)",
    ]  # fmt: skip


def test_kernels_without_a_whole_launch_are_left_out_and_counted() -> None:
    rows: Given = [*launch("k", at=0, start=30, dur=10), kernel(100, 5, "lost"), kernel(200, 5, "lost")]
    for name in ("cuda_kern_exec_trace", "cuda_kern_exec_sum"):
        got = answer(name, *rows).listing
        assert got is not None
        assert (got.rows, got.remarks) == (1, ("2 kernels left out: their launches were not recorded",))
    assert answer("cuda_kern_exec_sum", kernel(0, 5), call(0, 1)).reason == (
        "1 kernel left out: its launch was not recorded"
    )


def test_kernels_by_grid_and_block() -> None:
    rows: Given = [
        sized(kernel(0, 10, "gemm"), (148, 1, 1), (256, 1, 1)),
        sized(kernel(20, 30, "gemm"), (148, 1, 1), (256, 1, 1)),
        sized(kernel(60, 20, "gemm"), (32_768, 2, 1), (16, 16, 4)),
        kernel(90, 1, "unsized"),
    ]
    assert titles("cuda_gpu_kern_gb_sum", *rows)[-3:] == ["GridXYZ", "BlockXYZ", "Name"]
    assert columns(
        report("cuda_gpu_kern_gb_sum", *rows), "total_time_ns", "instances", "gridxyz", "blockxyz", "name"
    ) == [
        (40, 2, " 148    1    1", " 256    1    1", "gemm"),
        (20, 1, "32768    2    1", "  16   16    4", "gemm"),
        (1, 1, None, None, "unsized"),
    ]


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("", ["void gemm<float>(float)", "void gemm<int>(int)"]),
        (":base", ["gemm"]),
        (":mangled", ["void gemm<float>(float)", "void gemm<int>(int)"]),  # none was recorded
    ],
)
def test_kernels_by_the_name_that_is_asked_for(argument: str, names: list[str]) -> None:
    rows: Given = [kernel(0, 30, "void gemm<float>(float)"), kernel(50, 20, "void gemm<int>(int)")]
    for name in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"):
        assert [row["name"] for row in report(name + argument, *rows)] == names
    assert [row["operation"] for row in report("cuda_gpu_sum" + argument, *rows)] == names
    assert answer("cuda_gpu_kern_sum" + argument, *rows).name == "cuda_gpu_kern_sum" + argument


def test_calls_kernels_and_copies_in_one_summary() -> None:
    rows: Given = [
        launch("gemm", at=0, start=100, dur=60, call_dur=10),
        copy(200, 30, "h2d", 64, "pinned", "device"),
        copy(300, 30, "memset", 64, dst="device"),
    ]
    assert columns(report("cuda_gpu_sum", *rows), "time_percent", "total_time_ns", "category", "operation") == [
        (50.0, 60, "CUDA_KERNEL", "gemm"),
        (25.0, 30, "MEMORY_OPER", "[CUDA memcpy Host-to-Device]"),
        (25.0, 30, "MEMORY_OPER", "[CUDA memset]"),
    ]
    assert titles("cuda_api_gpu_sum", *rows)[2:3] + titles("cuda_api_gpu_sum", *rows)[-2:] == [
        "Instances", "Category", "Operation",
    ]  # fmt: skip
    assert columns(report("cuda_api_gpu_sum", *rows), "total_time_ns", "category", "operation") == [
        (60, "CUDA_KERNEL", "gemm"),
        (30, "MEMORY_OPER", "[CUDA memcpy Host-to-Device]"),
        (30, "MEMORY_OPER", "[CUDA memset]"),
        (10, "CUDA_API", "cudaLaunchKernel"),
    ]


def test_a_name_of_two_categories_is_two_rows() -> None:
    rows: Given = [call(0, 5, "same"), kernel(10, 5, "same")]
    assert columns(report("cuda_api_gpu_sum", *rows), "category", "operation") == [
        ("CUDA_API", "same"),
        ("CUDA_KERNEL", "same"),
    ]


MIGRATIONS: Given = [
    at_address(copy(0, 1_000, "um_h2d", 4_096), 0x7F9C80000000),
    at_address(copy(2_000, 3_000, "um_h2d", 8_192), 0x7F9C80000000),
    at_address(copy(6_000, 1_000, "um_d2h", 4_096), 0x7F9C80000000),
    at_address(copy(8_000, 1_000, "um_d2h", 65_536), 0x7F9D7FF83000),
    copy(9_000, 500, "h2d", 1_000_000, "pinned", "device"),
]


def test_migrations_by_address_the_fastest_first() -> None:
    assert titles("um_sum", *MIGRATIONS) == [
        "Virtual Address", "HtoD Migration size (MB)", "DtoH Migration size (MB)", "CPU Page Faults",
        " GPU Page Faults", "Migration Throughput (MB/s)",
    ]  # fmt: skip
    # 16,384 bytes in 5,000 ns: 200,000 such migrations a second.
    assert report("um_sum", *MIGRATIONS) == [
        {
            "virtual_address": "0x7F9D7FF83000", "htod_bytes": None, "dtoh_bytes": 65_536, "cpu_page_faults": None,
            "gpu_page_faults": None, "throughput_bytes_per_s": 65_536e6,
        },
        {
            "virtual_address": "0x7F9C80000000", "htod_bytes": 12_288, "dtoh_bytes": 4_096, "cpu_page_faults": None,
            "gpu_page_faults": None, "throughput_bytes_per_s": 16_384 * 200_000.0,
        },
    ]  # fmt: skip


def test_rows_of_migrations_are_limited_as_asked() -> None:
    pages = [at_address(copy(i * 100, 10, "um_h2d", i + 1), 0x1000 * (i + 1)) for i in range(12)]
    assert [len(report(name, *pages)) for name in ("um_sum", "um_sum:rows=3", "um_sum:rows=50")] == [10, 3, 12]
    assert report("um_sum:rows=1", *pages)[0]["virtual_address"] == "0xC000"
    listing = answer("um_sum", *pages).listing
    assert listing is not None
    assert listing.remarks[-1] == "10 of 12 addresses listed: more with um_sum:rows=12"


def test_migrations_in_all() -> None:
    assert report("um_total_sum", *MIGRATIONS) == [
        {
            "total_htod_bytes": 12_288, "total_dtoh_bytes": 69_632, "total_cpu_page_faults": None,
            "total_gpu_page_faults": None, "minimum_virtual_address": "0x7F9C80000000",
            "maximum_virtual_address": "0x7F9D7FF83000",
        },
    ]  # fmt: skip
    bare = report("um_total_sum", copy(0, 5, "um_d2h", 100))
    assert columns(bare, "total_htod_bytes", "total_dtoh_bytes", "minimum_virtual_address") == [(None, 100, None)]


def test_copies_that_are_no_migrations_give_a_reason() -> None:
    for name in ("um_sum", "um_total_sum"):
        assert answer(name, copy(0, 5, "h2d", 10)).reason == "no unified-memory migrations in this capture"
