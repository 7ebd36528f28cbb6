"""Fixes of copies: cost and saving of each in five steps, computed by hand."""

from collections.abc import Callable
from typing import Any

from profkit.testing import Row, call, copy, launch

PINNED_BYTES_PER_S = 24_800_000_000
"""PCIe 4, as constants.toml has it: a trace without pinned copies and without the name of its GPU."""
SIZE = 1_240_000
"""50,000 ns at that rate."""


def _upload(name: str, size: int = SIZE, src: str = "pageable") -> Callable[[int], list[Row | list[Row]]]:
    """A call of 100,000 with a copy of 90,000 from 30,000 on, staged; a kernel that needs it; and one after a pause."""

    def step(t: int) -> list[Row | list[Row]]:
        return [
            call(t, 100_000, name, correlation=t + 1),
            copy(t + 30_000, 90_000, "h2d", size, src, "device", correlation=t + 1),
            launch("k", at=t + 110_000, start=t + 121_000, dur=50_000),
            launch("k", at=t + 200_000, start=t + 209_000, dur=10_000),
        ]

    return step


def test_pinned_copies(price_of: Any, steps_of: Any) -> None:
    found = price_of("pinned-copies", *steps_of(5, 300_000, _upload("cudaMemcpyAsync")))
    assert found.count == 5
    # Without: of 300,000 the host has 200,000 left, and waits for nothing.
    assert found.cost[1] == 100_000
    # From pinned memory: the copy takes 50,000, and the call 26,000: what it took until the copy began, less the 4,000
    # that work takes to begin behind a call.
    assert found.saving[1] == 74_000
    rate, call_ = found.assumed
    assert rate.startswith("H2D from pinned memory at 24.8 GB/s (PCIe 4 x16, assumed: NVIDIA nvbandwidth,")
    assert call_ == "the call returns after 26.0 µs and waits for nothing"
    assert price_of("pinned-copies", *steps_of(5, 300_000, _upload("cudaMemcpy"))) is None
    assert price_of("pinned-copies", *steps_of(5, 300_000, _upload("cudaMemcpyAsync", src="pinned"))) is None


def test_async_copies(price_of: Any, steps_of: Any) -> None:
    found = price_of("async-copies", *steps_of(5, 300_000, _upload("cudaMemcpy")))
    assert (found.count, found.cost[1], found.saving[1]) == (5, 100_000, 74_000)
    assert price_of("async-copies", *steps_of(5, 300_000, _upload("cudaMemcpyAsync"))) is None


def test_a_pinned_copy_of_the_trace_says_how_fast_pinned_memory_is(price_of: Any, steps_of: Any) -> None:
    """Four times as fast as published, in copies of another stream: the median of them counts."""

    def step(t: int) -> list[Row | list[Row]]:
        return [
            *_upload("cudaMemcpyAsync")(t),
            call(t + 230_000, 4_000, "cudaMemcpyAsync", correlation=t + 2),
            copy(t + 240_000, 12_500, "h2d", SIZE, "pinned", "device", correlation=t + 2, stream=8),
        ]

    found = price_of("pinned-copies", *steps_of(5, 300_000, step))
    assert "99.2 GB/s (median of 5 pinned copies of this trace)" in found.assumed[0]
    # And the call takes what that of these takes.
    assert found.saving[1] == 96_000


def test_small_copies_are_no_faster_from_pinned_memory(price_of: Any, steps_of: Any) -> None:
    found = price_of("pinned-copies", *steps_of(5, 300_000, _upload("cudaMemcpyAsync", size=64_000)))
    assert found.assumed == ("the call returns after 26.0 µs and waits for nothing",)
    assert found.saving[1] == 74_000


def test_batched_copies(price_of: Any, steps_of: Any) -> None:
    """Five uploads of 1,000 in each step, each a call of 4,000, 6,000 after the one before it; then a kernel."""

    def step(t: int) -> list[Row | list[Row]]:
        rows: list[Row | list[Row]] = []
        for i in range(5):
            at = t + 10_000 * i
            rows.append(call(at, 4_000, "cudaMemcpyAsync", correlation=at + 1))
            rows.append(copy(at + 8_000, 1_000, "h2d", 64, "pinned", "device", correlation=at + 1))
        return [*rows, launch("k", at=t + 50_000, start=t + 59_000, dur=20_000)]

    found = price_of("batched-copies", *steps_of(5, 200_000, step))
    assert (found.count, found.facts) == (25, {"uploads": 25, "steps": 5})
    # The calls and the 6,000 before four of them; the host work before the first one of a step (145,000) stays.
    assert found.cost[1] == 5 * 4_000 + 4 * 6_000
    # One upload stays, with its call.
    assert found.saving[1] == 4 * 4_000 + 4 * 6_000

    def three(t: int) -> list[Row | list[Row]]:
        return [row for row in step(t) if isinstance(row, list) or row.values["start_ns"] < t + 30_000]

    assert price_of("batched-copies", *steps_of(5, 200_000, three)) is None


def test_prefetch(price_of: Any, steps_of: Any) -> None:
    """An upload of 50,000 from pinned memory, then a kernel of 100,000 that needs it; the host is far ahead."""

    def step(t: int) -> list[Row | list[Row]]:
        at = t // 8  # the host takes 20,000 for a step of 160,000
        return [
            call(at, 4_000, "cudaMemcpyAsync", correlation=t + 1),
            copy(t + 8_000, 50_000, "h2d", SIZE, "pinned", "device", correlation=t + 1),
            launch("k", at=at + 6_000, start=t + 60_000, dur=100_000),
        ]

    rows = [row for i in range(5) for row in step(i * 160_000)]
    spans = steps_of(5, 20_000, lambda t: [])
    found = price_of("prefetch", *spans, *rows)
    assert found.count == 4
    # Kernels then follow each other, 2,000 behind each other; the first step has none before it that could upload.
    assert found.cost[1] == found.saving[1] == 58_000
