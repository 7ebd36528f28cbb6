"""What the PyTorch reader makes of pairs, allocations, collectives, overhead, ranks and labels."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest import open_trace
from profkit.ingest.kineto.collectives import message_bytes, operation_of
from profkit.ingest.kineto.pairs import pair_async, pair_threads
from profkit.ingest.kineto.ranks import find_rank, rank_in_name
from profkit.ingest.kineto.records import Args, AsyncBegin, AsyncEnd, End, Half
from profkit.model import Trace


def _open(tmp_path: Path, *items: dict[str, Any], **top: Any) -> Trace:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, **top, "traceEvents": items}))
    return open_trace(path)


def _x(cat: str, name: str, ts: float, dur: float, pid: int = 1, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _half(kind: Any, ts: int, name: str = "", tid: int = 1, **more: Any) -> Any:
    return kind(name=name, pid=1, tid=tid, ts=json.dumps(ts).encode(), **more)


def _stack(halves: list[Any]) -> dict[int, int]:
    """Length by start, with a stack a thread: the plain way."""
    out, stacks = {}, {}
    for half in sorted(halves, key=lambda half: int(half.ts)):
        stack = stacks.setdefault(half.tid, [])
        if not isinstance(half, End):
            stack.append(int(half.ts))
        elif stack:
            start = stack.pop()
            out[start * 1000] = (int(half.ts) - start) * 1000
    return out


def test_pairs_are_those_of_a_stack() -> None:
    chance = random.Random(3)
    halves = [
        _half(chance.choice((Half, End)), ts, tid=chance.randrange(3)) for ts in chance.sample(range(1, 10_000), 2_000)
    ]
    expected = _stack(halves)
    paired = pair_threads(halves)
    found = dict(zip(paired.start_ns.tolist(), paired.dur_ns.tolist(), strict=True))
    assert {start: dur for start, dur in found.items() if dur >= 0} == expected
    assert paired.open == sum(not isinstance(half, End) for half in halves) - len(expected)
    assert paired.ends_alone == sum(isinstance(half, End) for half in halves) - len(expected)


def test_pairs_of_ids_may_cross_threads_and_one_another() -> None:
    halves = [
        _half(AsyncBegin, 10, "a", tid=1, id=1, cat="x"), _half(AsyncBegin, 20, "b", tid=1, id=2, cat="x"),
        _half(AsyncEnd, 30, tid=2, id=1, cat="x"), _half(AsyncEnd, 40, tid=1, id=2, cat="x"),
        _half(AsyncEnd, 50, id=1, cat="y"),
    ]  # fmt: skip
    paired = pair_async(halves)
    assert [begin.name for begin in paired.begins] == ["a", "b"]
    assert paired.dur_ns.tolist() == [20_000, 20_000]
    assert (paired.ends_alone, paired.open, paired.without_time) == (1, 0, 0)


def test_pairs_of_nothing() -> None:
    paired = pair_threads([])
    assert (paired.begins, paired.open, paired.ends_alone, paired.without_time) == ([], 0, 0, 0)


def test_ranges_written_as_pairs_are_stages_too(tmp_path: Path) -> None:
    trace = _open(
        tmp_path,
        {"ph": "B", "name": "decode#4", "pid": 1, "tid": 1, "ts": 10},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 30.5},
    )
    assert trace.stage_rows("decode").tolist() == [0]
    assert (trace.array("spans", "payload_int").tolist(), trace.array("spans", "dur_ns").tolist()) == ([4], [20_500])
    assert trace.meta.resolution_ns == 1000


def test_allocations_of_devices(tmp_path: Path) -> None:
    def memory(ts: int, size: int, device_type: int, device: int) -> dict[str, Any]:
        args = {"Addr": 4096, "Bytes": size, "Device Type": device_type, "Device Id": device, "Total Allocated": 1}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}

    kernel = _x("kernel", "gemm", 5, 1, pid=0, tid=7, device=0, stream=7)
    trace = _open(
        tmp_path, memory(1, 512, 1, 0), memory(2, 100, 0, -1), memory(3, -512, 1, 0), memory(4, 8, 6, 2), kernel,
        {"ph": "i", "name": "Record Window End", "pid": 1, "tid": 1, "ts": 9},
    )  # fmt: skip
    assert trace.text("allocs", "operation") == ["alloc", "free", "alloc"]
    assert trace.array("allocs", "bytes").tolist() == [512, 512, 8]
    assert trace.array("allocs", "address").tolist() == [4096] * 3
    # Device 2 ran nothing: ROCm's numbers of devices differ between allocations and kernels.
    assert trace.array("allocs", "device").tolist() == [0, 0, -1]
    assert trace.rows("devices") == 1
    # What the allocator held in all, where its event says so: a counter of the device.
    assert trace.text("counter_names", "name") == ["Total Allocated"]
    assert trace.array("counters", "value").tolist() == [1.0, 1.0]
    assert trace.array("counters", "time_ns").tolist() == trace.array("allocs", "start_ns").tolist()[:2]


def test_collectives_of_kernels_carry_what_is_moved_and_their_operator(tmp_path: Path) -> None:
    said = {"Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 800, "dtype": "BFloat16",
            "Process Group Name": "3"}  # fmt: skip
    name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    trace = _open(
        tmp_path,
        _x("cpu_op", "nccl:_all_gather_base", 0, 100),
        _x("cpu_op", "record_param_comms", 10, 50, **said),
        _x("cuda_runtime", "cudaLaunchKernelExC", 20, 5, correlation=9),
        _x("kernel", name, 40, 30, pid=0, tid=7, device=0, stream=7, correlation=9, **said),
        _x("kernel", "gemm", 90, 30, pid=0, tid=7, device=0, stream=7),
    )
    (row,) = trace.tables["collectives"].to_pylist()
    track = trace.array("kernels", "track")[0]
    assert row == {
        "id": 0, "start_ns": 40_000, "dur_ns": 30_000, "track": track, "flags": 0, "span": 1, "kernel": 0,
        "name": trace.names.index(name), "operation": "all_gather", "bytes": 1_600, "communicator": "3", "rank": -1,
        "peer": -1,
    }  # fmt: skip


def test_collectives_without_kernels_are_their_operators(tmp_path: Path) -> None:
    trace = _open(tmp_path, _x("cpu_op", "outer", 0, 9), _x("cpu_op", "record_param_comms", 2, 3, Rank=5))
    (row,) = trace.tables["collectives"].to_pylist()
    assert (row["span"], row["kernel"], row["dur_ns"], row["rank"], row["bytes"]) == (1, -1, 3_000, 5, -1)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("record_param_comms", ""),
        ("ncclDevKernel_Generic_1", ""),
    ],
)
def test_names_of_operations(name: str, operation: str) -> None:
    assert operation_of(name) == operation


@pytest.mark.parametrize(("dtype", "size"), [("Float", 40), ("c10::BFloat16", 20), ("Float8_e4m3fn", 10), ("odd", -1)])
def test_sizes_of_messages(dtype: str, size: int) -> None:
    assert message_bytes(Args(elements_in=10, elements_out=5, dtype=dtype)) == size
    assert message_bytes(Args(dtype=dtype)) == -1


def test_overhead_belongs_to_no_process_where_it_names_none(tmp_path: Path) -> None:
    trace = _open(
        tmp_path, _x("cpu_op", "aten::mm", 1, 5), _x("overhead", "Activity Buffer Request", 2, 3, pid=-1, tid=0)
    )
    assert trace.array("overheads", "dur_ns").tolist() == [3_000]
    assert trace.array("overheads", "process").tolist() == [-1]
    assert trace.array("processes", "pid").tolist() == [1]


def test_device_properties_with_an_odd_id(tmp_path: Path) -> None:
    kernel = _x("kernel", "gemm", 5, 1, pid=0, tid=7, device=0, stream=7)
    trace = _open(tmp_path, kernel, deviceProperties=[{"id": [0], "name": "odd"}, {"id": "0", "name": "H200"}, 5])
    assert trace.text("devices", "name") == ["H200"]


def test_devices_that_are_no_gpu_are_said(tmp_path: Path) -> None:
    trace = _open(tmp_path, _x("cpu_op", "aten::mm", 1, 5), _x("mtia_ccp_events", "job", 2, 3))
    (warning,) = trace.meta.warnings
    assert warning == ("events not read: 1 of category mtia_ccp_events; the device is no GPU: profkit reads GPUs only")


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0), ("rank-12.Mar_25.pt.trace.json.gz", 12), ("trace_8_rank_1.json", 1), ("r0-2025.json", 0),
        ("x.RANK_3.json", 3), ("trace.json", -1), ("worker0.pt.trace.json", -1), ("frank5.json", -1), ("r2d2.json", -1),
    ],
)  # fmt: skip
def test_ranks_in_file_names(name: str, rank: int) -> None:
    assert rank_in_name(name) == rank


def test_the_rank_of_the_content_wins_and_a_disagreement_is_said() -> None:
    said = {"distributedInfo": {"rank": 3, "world_size": 8}}
    assert find_rank(said, Path("rank3.json")).note == ""
    found = find_rank(said, Path("rank0.json"))
    assert (found.rank, found.world_size, found.source) == (3, 8, "content")
    assert found.note == "the file name says rank 0, the trace itself rank 3: the trace is right"
    assert find_rank({"distributedInfo": {"rank": "4"}}, Path("a.json")).rank == 4
    assert find_rank({"distributedInfo": [1]}, Path("rank2.json")).source == "file name"
    assert find_rank({}, Path("a.json")).source == "nowhere"


def test_labels_that_contradict_each_other_tie_nothing(tmp_path: Path) -> None:
    labels = [
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "rank 0"}}
        for pid in (1000, 2000)
    ]
    launches = [_x("cuda_runtime", "cudaLaunchKernel", 1, 1, pid=pid, correlation=1) for pid in (1000, 2000)]
    kernel = _x("kernel", "gemm", 5, 1, pid=0, tid=7, device=0, stream=7, correlation=1)
    trace = _open(tmp_path, *labels, *launches, kernel)
    assert trace.array("kernels", "process").tolist() == [-1]


def test_times_of_any_writing_keep_every_nanosecond(tmp_path: Path) -> None:
    times = (("1690000000000000.100", "0.050"), ("1690000000000000.2", "1"), ('"1690000000000000.300"', "1e1"))
    items = [f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}' for ts, dur in times]
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents":[{",".join(items)}]}}')
    trace = open_trace(path)
    assert trace.array("spans", "start_ns").tolist() == [0, 100, 200]
    assert trace.array("spans", "dur_ns").tolist() == [50, 1_000, 10_000]
