"""Reports of hand-built traces, number by number."""

from __future__ import annotations

import re
import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from profkit import stats
from profkit.builder import Builder
from profkit.errors import InputError, UsageError
from profkit.model import RunMeta, Trace
from profkit.stats import Answer, Column
from profkit.stats._render import rounded
from profkit.stats._summary import summarize
from profkit.stats.cuda_api_sum import listed_name
from profkit.testing import Row, build_trace, call, copy, graph, kernel, launch, os_call, span


def run(name: str, *rows: Row, **missing: str) -> Answer:
    return stats.answer(build_trace(*rows, missing=missing), stats.choose([name])[0])


def table(answer: Answer) -> list[dict[str, Any]]:
    """Rows by key, in base units; None where absent."""
    assert answer.listing is not None
    columns = [values.to_pylist() for values in answer.listing.values]
    keys = [column.key for column in answer.listing.columns]
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def test_kernels_by_name_largest_total_first() -> None:
    rows = [
        kernel(start, dur, name) for start, dur, name in ((0, 10, "a"), (20, 30, "a"), (60, 20, "a"), (90, 100, "b"))
    ]
    assert table(run("cuda_gpu_kern_sum", *rows)) == [
        {
            "time_percent": 62.5, "total_time_ns": 100, "instances": 1, "avg_ns": 100.0, "med_ns": 100.0,
            "min_ns": 100, "max_ns": 100, "stddev_ns": 0.0, "name": "b",
        },
        {
            "time_percent": 37.5, "total_time_ns": 60, "instances": 3, "avg_ns": 20.0, "med_ns": 20.0,
            "min_ns": 10, "max_ns": 30, "stddev_ns": 10.0, "name": "a",
        },
    ]  # fmt: skip


def test_equal_totals_are_ordered_by_count_then_name() -> None:
    rows = [kernel(0, 10, "c"), kernel(20, 5, "b"), kernel(30, 5, "b"), kernel(40, 10, "a")]
    assert [row["name"] for row in table(run("cuda_gpu_kern_sum", *rows))] == ["a", "c", "b"]


def test_all_times_zero_has_shares_of_zero() -> None:
    assert [row["time_percent"] for row in table(run("cuda_gpu_kern_sum", kernel(0, 0, "a"), kernel(5, 0, "b")))] == [
        0,
        0,
    ]


def test_a_kernel_not_seen_to_end_is_not_counted() -> None:
    answer = run("cuda_gpu_kern_sum", kernel(0, 10, "a"), kernel(20, -1, "a"))
    assert [row["instances"] for row in table(answer)] == [1]
    assert answer.listing is not None
    assert answer.listing.remarks == ("1 row of kernels left out: not seen from start to end",)


def test_graphs_recorded_as_one_piece_are_named_not_listed() -> None:
    remark = "the kernels of 2 CUDA graph launches (1.50 ms) are not listed: each was recorded as one piece"
    graphs = (graph(0, 500_000), graph(600_000, 1_000_000))
    for report in ("cuda_gpu_kern_sum", "cuda_gpu_trace"):
        alone = run(report, *graphs)
        assert (alone.listing, alone.reason) == (None, remark)
        beside = run(report, *graphs, kernel(2_000_000, 5))
        assert beside.listing is not None
        assert (beside.listing.rows, beside.listing.remarks) == (1, (remark,))


@pytest.mark.parametrize(
    ("recorded", "listed"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync_ptsz"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch_v10000"),
        ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2_v12000"),
        ("cuGetProcAddress_v2", "cuGetProcAddress_v2"),
        ("cuLaunchKernel", "cuLaunchKernel"),
        ("my_v7000_call", "my_v7000_call"),
    ],
)
def test_only_a_version_of_four_digits_is_cut(recorded: str, listed: str) -> None:
    assert listed_name(recorded) == listed


def test_calls_whose_listed_names_agree_are_one_row() -> None:
    rows = [call(0, 10, "cudaFree_v3020"), call(20, 20, "cudaFree"), call(50, 5, "cuInit", api="driver")]
    assert [(row["name"], row["num_calls"], row["total_time_ns"]) for row in table(run("cuda_api_sum", *rows))] == [
        ("cudaFree", 2, 30),
        ("cuInit", 1, 5),
    ]


def test_operating_system_calls_of_other_classes_do_not_count() -> None:
    start = Row("os_calls", (100, 100), "poll", {"start_ns": 50, "dur_ns": 0, "event_class": 31})
    rows = table(run("osrt_sum", os_call(0, 10, "poll"), os_call(20, 30, "poll"), start))
    assert [(row["name"], row["num_calls"], row["min_ns"]) for row in rows] == [("poll", 2, 10)]
    assert run("osrt_sum", start).reason == "no operating system calls in this capture"


def test_memory_operations_by_time_and_by_size() -> None:
    rows = [
        copy(0, 100, "h2d", 1_000_000, "pageable", "device"),
        copy(200, 300, "h2d", 3_000_000, "pinned", "device"),
        copy(600, 40, "array", 10, "pinned", "array"),
        copy(700, 10, "memset", 4_000, dst="device"),
        copy(800, 5, "um_d2h", 64),
    ]
    by_time = table(run("cuda_gpu_mem_time_sum", *rows))
    assert [(row["operation"], row["count"], row["total_time_ns"]) for row in by_time] == [
        ("[CUDA memcpy Host-to-Device]", 2, 400),
        ("[CUDA memcpy Host-to-Array]", 1, 40),
        ("[CUDA memset]", 1, 10),
        ("[CUDA memcpy Unified Device-to-Host]", 1, 5),
    ]
    first = table(run("cuda_gpu_mem_size_sum", *rows))[0]
    assert first == {
        "total_bytes": 4_000_000, "count": 2, "avg_bytes": 2e6, "med_bytes": 2e6, "min_bytes": 1_000_000,
        "max_bytes": 3_000_000, "stddev_bytes": pytest.approx(2**0.5 * 1e6),
        "operation": "[CUDA memcpy Host-to-Device]",
    }  # fmt: skip


def test_a_copy_of_unknown_size_is_in_the_times_only() -> None:
    answer = run("cuda_gpu_mem_size_sum", copy(0, 10, "h2d", -1))
    assert (answer.listing, answer.reason) == (None, "1 memory operation left out: no size was recorded")
    assert len(table(run("cuda_gpu_mem_time_sum", copy(0, 10, "h2d", -1)))) == 1


def test_trace_lists_kernels_and_copies_by_start() -> None:
    rows = [
        kernel(300, 50, "gemm", correlation=7),
        copy(100, 20_912_712, "h2d", 200_000_000, "pageable", "device", correlation=6),
        copy(400, 800, "memset", 272, dst="device", correlation=8, device=1, stream=13),
    ]
    answer = run("cuda_gpu_trace", *rows)
    listed = table(answer)
    assert [(row["start_ns"], row["name"]) for row in listed] == [
        (100, "[CUDA memcpy Host-to-Device]"),
        (300, "gemm"),
        (400, "[CUDA memset]"),
    ]
    copied, computed, cleared = listed
    # 10^9 // 20,912,712 = 47 such copies a second: the cut of nsys, not 9,563.6 MB/s.
    assert (copied["bytes"], copied["throughput_bytes_per_s"]) == (200_000_000, 9_400e6)
    assert (copied["src_mem_kind"], copied["dst_mem_kind"], copied["grid_x"]) == ("Pageable", "Device", None)
    assert (computed["bytes"], computed["throughput_bytes_per_s"], computed["src_mem_kind"]) == (None, None, None)
    assert (cleared["src_mem_kind"], cleared["dst_mem_kind"]) == ("Device", None)
    assert (cleared["device"], cleared["context"], cleared["stream"]) == ("(1)", 1, 13)
    assert cleared["throughput_bytes_per_s"] == 340e6


def test_trace_has_no_length_for_what_was_not_seen_to_end() -> None:
    assert [row["duration_ns"] for row in table(run("cuda_gpu_trace", kernel(0, 5), kernel(9, -1)))] == [5, None]


def green_trace(*contexts: int) -> Trace:
    builder = Builder()
    for index, context in enumerate(contexts):
        track = builder.dimension("tracks", index, device=-1, ordinal=0, green_context=context, stream=7)
        builder.add("kernels", start_ns=np.asarray([index]), dur_ns=1, track=track, name=builder.names.kernel("k"))
    return builder.finish(RunMeta("built"))


def test_green_contexts_have_a_column_where_the_source_has_one() -> None:
    report = stats.choose(["cuda_gpu_trace"])[0]
    without, recorded = (stats.answer(green_trace(*ids), report) for ids in ((-1,), (0, 4)))
    assert without.listing is not None
    assert recorded.listing is not None
    titles = [column.title for column in recorded.listing.columns]
    assert titles[-4:] == ["Ctx", "GreenCtx", "Strm", "Name"]
    assert "Throughput (MB/s)" in titles
    assert [row["green_context"] for row in table(recorded)] == [None, 4]
    old = {column.title: column.absent for column in without.listing.columns}
    assert "GreenCtx" not in old
    assert (old["Throughput (MBps)"], old["Bytes (MB)"]) == ("", "None")


def test_what_was_not_captured_gives_its_reason() -> None:
    answer = run("cuda_gpu_kern_sum", call(0, 5), kernels="no GPU kernels: not traced")
    assert (answer.listing, answer.reason) == (None, "no GPU kernels: not traced")
    assert run("cuda_gpu_mem_time_sum", call(0, 5)).reason == "no GPU memory operations in this capture"


def test_old_names_and_the_default_set() -> None:
    assert [choice.name for choice in stats.choose(["gputrace", "cudaapisum", "cuda_api_sum"])] == [
        "cuda_gpu_trace",
        "cuda_api_sum",
    ]
    assert [choice.name for choice in stats.choose([])] == [
        "nvtx_sum",
        "osrt_sum",
        "cuda_api_sum",
        "cuda_gpu_kern_sum",
        "cuda_gpu_mem_time_sum",
        "cuda_gpu_mem_size_sum",
        "um_sum",
        "um_total_sum",
    ]
    assert {report.name: report.former_name for report in stats.all_reports()} == {
        "cuda_api_gpu_sum": "apigpusum",
        "cuda_api_sum": "cudaapisum",
        "cuda_api_trace": "cudaapitrace",
        "cuda_gpu_kern_gb_sum": "",
        "cuda_gpu_kern_sum": "gpukernsum",
        "cuda_gpu_mem_size_sum": "gpumemsizesum",
        "cuda_gpu_mem_time_sum": "gpumemtimesum",
        "cuda_gpu_sum": "gpusum",
        "cuda_gpu_trace": "gputrace",
        "cuda_kern_exec_sum": "kernexecsum",
        "cuda_kern_exec_trace": "kernexectrace",
        "nvtx_gpu_proj_sum": "",
        "nvtx_gpu_proj_trace": "nvtxgpuproj",
        "nvtx_kern_sum": "nvtxkernsum",
        "nvtx_pushpop_sum": "nvtxppsum",
        "nvtx_pushpop_trace": "nvtxpptrace",
        "nvtx_startend_sum": "nvtxsesum",
        "nvtx_sum": "nvtxsum",
        "osrt_sum": "osrtsum",
        "um_sum": "unifiedmemory",
        "um_total_sum": "unifiedmemorytotals",
    }


def test_arguments_stand_behind_colons_and_names_between_commas() -> None:
    chosen = stats.choose(["gpukernsum:base,nvtx_kern_sum:mangled", "um_sum:rows=3", "cuda_gpu_kern_sum"])
    assert [(choice.name, choice.arguments) for choice in chosen] == [
        ("cuda_gpu_kern_sum:base", stats.Arguments(kernel_name="short")),
        ("nvtx_kern_sum:mangled", stats.Arguments(kernel_name="mangled")),
        ("um_sum:rows=3", stats.Arguments(rows=3)),
        ("cuda_gpu_kern_sum", stats.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cuda_gpu_kern_sum:short", "report cuda_gpu_kern_sum has no argument 'short': it takes :base or :mangled"),
        ("cuda_gpu_kern_sum:base=1", "has no argument 'base=1': it takes :base or :mangled"),
        ("cuda_api_sum:base", "report cuda_api_sum has no argument 'base': it takes no arguments"),
        ("um_sum:rows", "report um_sum has no argument 'rows': it takes :rows="),
        ("um_sum:rows=0", "um_sum:rows=0: rows is a number from 1"),
        ("um_sum:rows=many", "um_sum:rows=many: rows is a number from 1"),
    ],
)
def test_an_unknown_argument_says_which_there_are(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        stats.choose([name])


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UsageError, match=r"unknown report 'kernels'; reports: nvtx_sum, osrt_sum, .*cuda_gpu_trace"):
        stats.choose(["kernels"])


def test_statistics_agree_with_the_textbook() -> None:
    random = np.random.default_rng(5)
    codes = random.integers(0, 40, 3_000)
    values = random.integers(0, 10**7, 3_000) + 10**15  # spread small beside the size: squares of these would cancel
    groups = summarize(codes, values)
    for i, code in enumerate(groups.code.tolist()):
        mine = values[codes == code].tolist()
        assert (groups.count[i], groups.total[i]) == (len(mine), sum(mine))
        assert (groups.minimum[i], groups.maximum[i]) == (min(mine), max(mine))
        assert groups.median[i] == statistics.median(mine)
        assert groups.average[i] == pytest.approx(sum(mine) / len(mine), rel=1e-15)
        assert groups.deviation[i] == pytest.approx(statistics.stdev(mine), rel=1e-12)


def test_values_too_wide_for_one_key_are_sorted_all_the_same() -> None:
    groups = summarize(np.asarray([1, 0, 1]), np.asarray([1 << 61, 5, 3]))
    assert groups.minimum.tolist() == [5, 3]
    assert groups.maximum.tolist() == [5, 1 << 61]


def test_a_sum_beyond_int64_is_an_error_of_one_line() -> None:
    with pytest.raises(InputError, match="add up to more"):
        summarize(np.asarray([0, 0, 0]), np.full(3, 1 << 62))


@pytest.mark.parametrize(
    ("value", "decimals", "divisor", "printed"),
    [
        (86953.25, 1, 1, "86953.3"),  # held exactly: half goes away from zero
        (841.15, 1, 1, "841.1"),  # the double is a little less than that
        (14004.75, 1, 1, "14004.8"),
        (0, 1, 1, "0.0"),
        (5_035_000_000, 3, 10**6, "5035.000"),
        (500, 3, 10**6, "0.001"),
        (499, 3, 10**6, "0.000"),
        (1e21, 1, 1, "1000000000000000000000.0"),
    ],
)
def test_rounding_is_that_of_nsys(value: float, decimals: int, divisor: int, printed: str) -> None:
    assert rounded(Column("", "", decimals, divisor), value) == printed


def test_every_listing_has_its_columns_and_dictionary_texts() -> None:
    rows = [
        *launch("gemm", at=0, start=10, dur=5, call_dur=5),
        copy(9, 5, "d2d", 1, "device", "device"),
        copy(20, 5, "um_h2d", 1),
        os_call(0, 1),
        span("a", 0, 9),
        span("b", 0, 9, kind="start_end"),
    ]
    trace = build_trace(*rows)
    for report in stats.all_reports():
        listing = stats.answer(trace, stats.choose([report.name])[0]).listing
        assert listing is not None
        assert len(listing.columns) == len(listing.values)
        assert {len(values) for values in listing.values} == {listing.rows}
        assert len({column.key for column in listing.columns}) == len(listing.columns)
        assert not any(pa.types.is_string(values.type) for values in listing.values)


def test_no_report_fails_on_an_empty_trace() -> None:
    for report in stats.all_reports():
        answer = stats.answer(build_trace(), stats.choose([report.name])[0])
        assert answer.listing is None
        assert answer.reason == f"no {report.what} in this capture"
