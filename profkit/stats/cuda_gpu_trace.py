"""Every kernel, copy and memset in order of its start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from profkit.late_ends import late_end_remark
from profkit.model import Array, Ints, Trace
from profkit.schema import NOT_WHOLE
from profkit.stats import KERNEL_NAMES, Arguments, Column, Listing, Report
from profkit.stats._memory_ops import KIND_LABELS, MEMSET, operations
from profkit.stats._summary import by_label, graphs_recorded_whole, known, words

_NS_PER_S = 1_000_000_000


def build(trace: Trace, arguments: Arguments) -> Listing:
    tracks = _both(trace, "track")
    order = np.argsort(_both(trace, "start_ns"), kind="stable")
    columns = [*_time_columns(trace), *_launch_columns(trace), *_copy_columns(trace)]
    columns += [*_place_columns(trace, tracks), _name_column(trace, arguments)]
    if not _has_green_contexts(trace, tracks):
        columns = [
            _before_green_contexts(column, values) for column, values in columns if column.key != "green_context"
        ]
    take = pa.array(order)
    doubt = late_end_remark(trace)
    return Listing(
        columns=tuple(column for column, _ in columns),
        values=tuple(values.take(take) for _, values in columns),
        remarks=(*graphs_recorded_whole(trace), *([doubt] if doubt else [])),
    )


def _both(trace: Trace, column: str) -> Array:
    """A column that kernels and copies share: kernels first, then copies."""
    return np.concatenate([trace.array(table, column) for table in ("kernels", "copies")])


def _time_columns(trace: Trace) -> list[tuple[Column, Any]]:
    open_ended = (_both(trace, "flags") & NOT_WHOLE) != 0
    return [
        (Column("Start (ns)", "start_ns"), pa.array(_both(trace, "start_ns"))),
        (Column("Duration (ns)", "duration_ns"), known(_both(trace, "dur_ns"), open_ended)),
        (Column("CorrId", "corr_id"), known(_both(trace, "correlation"))),
    ]


def _launch_columns(trace: Trace) -> list[tuple[Column, Any]]:
    copies = trace.rows("copies")
    sizes = [
        (f"{short}{axis.upper()}", f"{key}_{axis}")
        for short, key in (("Grd", "grid"), ("Blk", "block"))
        for axis in "xyz"
    ]
    columns = [(Column(title, key), key) for title, key in sizes]
    columns += [
        (Column("Reg/Trd", "registers_per_thread"), "registers"),
        (Column("StcSMem (MB)", "static_smem_bytes", 3, 10**6), "static_smem_bytes"),
        (Column("DymSMem (MB)", "dynamic_smem_bytes", 3, 10**6), "dynamic_smem_bytes"),
    ]
    out = []
    for column, source in columns:
        values = trace.array("kernels", source)
        out.append((column, known(np.concatenate([values, np.full(copies, -1, values.dtype)]))))
    return out


def _copy_columns(trace: Trace) -> list[tuple[Column, Any]]:
    kernels = np.full(trace.rows("kernels"), -1, np.int64)
    num_bytes = np.concatenate([kernels, trace.array("copies", "bytes")])
    src, dst = (trace.array("copies", column).astype(np.int64) for column in ("src_kind", "dst_kind"))
    # A memset has one end only, and it stands in the first column.
    is_memset = trace.array("copies", "kind") == MEMSET
    src, dst = np.where(is_memset, dst, src), np.where(is_memset, -1, dst)
    return [
        (Column("Bytes (MB)", "bytes", 3, 10**6), known(num_bytes)),
        (
            Column("Throughput (MB/s)", "throughput_bytes_per_s", 3, 10**6),
            _throughput(num_bytes, _both(trace, "dur_ns")),
        ),
        (Column("SrcMemKd", "src_mem_kind"), words(np.concatenate([kernels, src]), KIND_LABELS)),
        (Column("DstMemKd", "dst_mem_kind"), words(np.concatenate([kernels, dst]), KIND_LABELS)),
    ]


def _throughput(num_bytes: Ints, dur_ns: Ints) -> Any:
    """Bytes times the whole number of such operations in a second: coarse for long copies, 0 beyond a second.

    That cut is what nsys prints (a copy of 200 MB in 20,912,712 ns is 9,400 MB/s); null where there is no length.
    """
    per_s = _NS_PER_S // np.maximum(dur_ns, 1)
    return pa.array(num_bytes.astype(np.float64) * per_s, mask=(num_bytes < 0) | (dur_ns <= 0))


def _place_columns(trace: Trace, tracks: Array) -> list[tuple[Column, Any]]:
    ordinal = trace.array("tracks", "ordinal")
    names = trace.text("devices", "name")
    device = trace.array("tracks", "device")
    labels = [
        f"{names[row] if row >= 0 else ''} ({number})".strip()
        for row, number in zip(device.tolist(), ordinal.tolist(), strict=True)
    ]
    green = trace.array("tracks", "green_context")[tracks]
    return [
        (Column("Device", "device"), words(tracks, labels)),
        (Column("Ctx", "context"), known(trace.array("tracks", "context")[tracks])),
        # 0 stands for "no green context" in the exports.
        (Column("GreenCtx", "green_context"), known(green, green <= 0)),
        (Column("Strm", "stream"), known(trace.array("tracks", "stream")[tracks])),
    ]


def _name_column(trace: Trace, arguments: Arguments) -> tuple[Column, Any]:
    kernel_codes, kernel_names = by_label(trace, trace.array("kernels", "name"), column=arguments.kernel_name)
    copy_codes, copy_names = operations(trace)
    codes = np.concatenate([kernel_codes, copy_codes + len(kernel_names)])
    return Column("Name", "name"), words(codes, kernel_names + copy_names)


def _has_green_contexts(trace: Trace, tracks: Array) -> bool:
    """Whether the source has a green context column at all: nsys prints one since then."""
    used = np.unique(tracks)
    return bool((trace.array("tracks", "green_context")[used] >= 0).any())


def _before_green_contexts(column: Column, values: Any) -> tuple[Column, Any]:
    """The same column as nsys printed it before it knew green contexts: another unit's spelling, None for absent."""
    if column.key == "throughput_bytes_per_s":
        return Column("Throughput (MBps)", column.key, column.decimals, column.divisor), values
    return Column(column.title, column.key, column.decimals, column.divisor, absent="None"), values


REPORT = Report(
    name="cuda_gpu_trace",
    former_name="gputrace",
    title="CUDA GPU Trace",
    what="GPU kernels or memory operations",
    tables=("kernels", "copies", "graphs"),
    build=build,
    arguments=KERNEL_NAMES,
)
