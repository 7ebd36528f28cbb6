"""Copies, memsets and allocations: times computed by hand from the costs in conftest.py.

Pinned: 10 bytes a ns up, 20 down, 1,000 ns at the start of each copy; staging: 5 bytes a ns, chunks of 1,000,000.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from profkit.simulate import cuda, memory
from profkit.simulate.host import Instruction
from profkit.simulate.ops import NON_BLOCKING, Kernel

MB = 1_000_000


def test_a_pinned_async_copy_returns_at_once(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy_async(bench.stream, memory.H2D, MB)

    bench.run(program())
    assert bench.calls() == [("cudaMemcpyAsync", 0, 4_000)]
    assert bench.times() == [(5_000, 106_000)]
    row = bench.rows["copies"][0].copy
    assert (row.size, row.kind, row.source, row.target) == (MB, 1, 1, 2)


def test_cudamemcpy_from_pinned_memory_returns_when_the_copy_is_done(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy(bench.stream, memory.H2D, MB)
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    # Submitted after 6,000 ns of the call, which ends 500 ns after the copy.
    assert bench.calls() == [("cudaMemcpy", 0, 109_500), ("cudaLaunchKernel", 109_500, 113_500)]
    assert bench.times() == [(8_000, 109_000), (114_500, 115_500)]
    assert bench.idle() == [
        (0, 109_000, 109_500, "copy_call"),
        (0, 109_500, 113_500, "launch_call"),
        (0, 113_500, 114_500, "launch_latency"),
    ]


@pytest.mark.parametrize("size", [64, 64 << 10])
def test_a_small_pageable_upload_travels_in_the_command(bench: Any, kernel: Kernel, size: int) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 500_000)
        yield memory.copy_async(bench.stream, memory.H2D, size, memory.PAGEABLE)

    bench.run(program())
    # It does not wait for the kernel before it.
    assert bench.calls()[1] == ("cudaMemcpyAsync", 4_000, 8_000 + size // 5)
    assert bench.times("copies") == [(505_000 + 1_500, 506_500 + 1_000 + size // 10)]


def test_a_large_pageable_upload_waits_for_its_stream_and_fills_its_buffers(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 100_000)
        yield memory.copy_async(bench.stream, memory.H2D, 2 * MB, memory.PAGEABLE)

    bench.run(program())
    # The stream is done at 105,000, seen 500 later. A chunk takes 200,000 to fill and 100,000 to go. The first leaves
    # at 305,500 + 2,000, the second at 505,500; the call returns when that one is filled: its transfer is outstanding.
    assert bench.calls()[1] == ("cudaMemcpyAsync", 4_000, 505_500)
    assert bench.times("copies") == [(307_500, 505_500 + 100_000 + 1_000)]
    assert bench.idle() == [(0, 105_000, 307_500, "copy_call")]


def test_a_third_chunk_waits_for_the_first_buffer(machine: Callable[..., Any]) -> None:
    bench = machine(staging_bytes_per_us=50_000)

    def program() -> Iterator[Instruction]:
        yield memory.copy_async(bench.stream, memory.H2D, 3 * MB, memory.PAGEABLE)

    bench.run(program())
    # Filled at 24,000, 44,000; gone at 126,000, 226,000, 326,000; the third is filled at 126,000 + 20,000.
    assert bench.calls() == [("cudaMemcpyAsync", 0, 146_000)]
    assert bench.times() == [(26_000, 327_000)]


def test_a_large_pageable_upload_with_nothing_to_wait_for_begins_at_once(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy(bench.stream, memory.H2D, MB, memory.PAGEABLE)

    bench.run(program())
    assert bench.calls() == [("cudaMemcpy", 0, 208_000)]
    assert bench.times() == [(210_000, 311_000)]


def test_a_pageable_download_returns_when_all_has_come(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy_async(bench.stream, memory.D2H, 2 * MB, memory.PAGEABLE)

    bench.run(program())
    # Chunks come at 56,000 and 106,000 and take 200,000 each to empty.
    assert bench.times() == [(5_000, 106_000)]
    assert bench.calls() == [("cudaMemcpyAsync", 0, 456_500)]


def test_a_pinned_download_does_not_wait_unless_asked_to(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy_async(bench.stream, memory.D2H, MB)
        yield memory.copy(bench.stream, memory.D2H, MB)

    bench.run(program())
    assert bench.times() == [(5_000, 56_000), (57_000, 108_000)]
    assert bench.calls() == [("cudaMemcpyAsync", 0, 4_000), ("cudaMemcpy", 4_000, 108_500)]


def test_copies_of_one_direction_share_an_engine_and_the_other_direction_has_its_own(bench: Any) -> None:
    a, b, c = (bench.process.stream(NON_BLOCKING) for _ in range(3))

    def program() -> Iterator[Instruction]:
        yield memory.copy_async(a, memory.H2D, MB)
        yield memory.copy_async(b, memory.H2D, MB)
        yield memory.copy_async(c, memory.D2H, MB)

    bench.run(program())
    assert bench.times() == [(5_000, 106_000), (13_000, 64_000), (106_000, 207_000)]


def test_copies_inside_a_device_and_between_two_leave_the_host_alone(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.copy(bench.stream, memory.D2D, MB)
        yield memory.copy_async(bench.stream, memory.P2P, MB, peer=1)

    bench.run(program())
    assert bench.calls() == [("cudaMemcpy", 0, 8_000), ("cudaMemcpyAsync", 8_000, 12_000)]
    assert bench.times() == [(8_000, 19_000), (20_500, 41_500)]
    assert (bench.rows["copies"][1].copy.source_device, bench.rows["copies"][1].copy.target_device) == (0, 1)


def test_a_memset_waits_only_where_the_memory_is_pinned_and_the_call_is_synchronous(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield memory.memset(bench.stream, MB)
        yield memory.memset_async(bench.stream, MB, memory.PINNED)
        yield memory.memset(bench.stream, MB, memory.PINNED)

    bench.run(program())
    # 5,000 ns on the device; 50,000 over the bus.
    assert bench.times() == [(5_000, 11_000), (12_000, 63_000), (64_000, 115_000)]
    assert bench.calls() == [
        ("cudaMemset", 0, 4_000),
        ("cudaMemsetAsync", 4_000, 8_000),
        ("cudaMemset", 8_000, 115_500),
    ]


def test_cudafree_waits_for_all_streams_and_cudamalloc_for_none(bench: Any, kernel: Kernel) -> None:
    side = bench.process.stream(NON_BLOCKING)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(side, kernel, 500_000)
        yield memory.malloc(1)
        yield memory.free()
        yield memory.free()

    bench.run(program())
    assert bench.calls()[1:] == [
        ("cudaMalloc", 4_000, 104_000),
        ("cudaFree", 104_000, 505_000 + 500 + 60_000),
        ("cudaFree", 565_500, 625_500),
    ]


@pytest.mark.parametrize(
    ("instruction", "cost"),
    [
        (memory.host_alloc(1 << 20), 240_000),
        (memory.host_register(1 << 21), 440_000),
        (memory.host_free(), 30_000),
    ],
)
def test_pinning_memory_waits_for_the_device(bench: Any, kernel: Kernel, instruction: Instruction, cost: int) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 100_000)
        yield instruction
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    returned = 105_000 + 500 + cost
    assert bench.calls()[1][1:] == (4_000, returned)
    assert bench.idle() == [
        (0, 105_000, returned, "allocator"),
        (0, returned, returned + 4_000, "launch_call"),
        (0, returned + 4_000, returned + 5_000, "launch_latency"),
    ]
