"""What must not change a price, and what must change it in proportion: no truth is needed to know that much."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from profkit.analysis.fixes import all_fixes
from profkit.testing import Row, build_trace, call, copy, event_record, launch, span
from profkit.whatif import Priced, what_if

KERNEL = 200_000


def _step(t: int, size: int, memory: str = "pageable") -> list[Row]:
    """A step that has it all: an upload, small ones, launches, an allocation, a wait, a read-back, stages."""
    upload = size // 10  # 10 GB/s, and 10,000 for the call
    number = iter(range(t + 1, t + 100))
    rows: list[Row] = []

    def add(start: int, dur: int, name: str, *device: Any) -> int:
        one = next(number)
        rows.append(call(start, dur, name, correlation=one))
        if device:
            begin, length, *what = device
            rows.append(copy(begin, length, *what, correlation=one))
        return start + dur

    at = add(t, upload + 10_000, "cudaMemcpyAsync", t + 8_000, upload, "h2d", size, memory, "device") + 5_000
    for _ in range(5):
        at = add(at, 4_000, "cudaMemcpyAsync", at + 8_000, 1_000, "h2d", 64, "pinned", "device") + 5_000
    for i in range(9):
        rows += launch("k", at=at, start=at + 9_000 if i < 8 else at + 10_000, dur=3_000 if i < 8 else KERNEL)
        at += 10_000
    done = at + KERNEL
    rows.append(call(at, 30_000, "cudaMalloc"))
    rows.append(span("schedule", at + 32_000, 8_000))
    at = add(at + 45_000, done + 6_000 - at - 45_000, "cudaStreamSynchronize") + 2_000
    add(at, 15_000, "cudaMemcpyAsync", at + 4_000, 2_000, "d2h", 8, "device", "pageable")
    rows.append(span("sample", at + 16_000, 4_000))
    rows.append(span("decode", t, at + 22_000 - t, payload=1))
    return rows


def _period(size: int) -> int:
    ends = [row.values["start_ns"] + row.values["dur_ns"] for row in _step(0, size)]
    return int(max(ends)) + 10_000


def _rows(steps: int, size: int = 2_000_000, memory: str = "pageable") -> list[Row]:
    return [row for i in range(steps) for row in _step(i * _period(size), size, memory=memory)]


def _prices(rows: list[Row]) -> dict[str, Priced]:
    result = what_if(build_trace(*rows))
    assert not result.why_not
    return {fix.fix: fix for fix in result.fixes}


def _per_step(rows: list[Row]) -> dict[str, tuple[int | None, int | None]]:
    return {name: (p.cost_ns_per_step, p.saving_ns_per_step) for name, p in _prices(rows).items()}


def test_the_trace_has_what_many_fixes_look_for() -> None:
    found = _prices(_rows(6))
    assert set(found) >= {
        "pinned-copies", "cuda-graphs", "batched-copies", "no-step-sync", "read-later",
        "overlapped-scheduling",
    }  # fmt: skip
    # The device is busy while memory is allocated: that costs nothing. Everything else does.
    assert [name for name, priced in found.items() if not priced.cost_ns] == ["pooled-allocations"]


def test_twice_the_bytes_of_an_exposed_copy_are_twice_its_cost() -> None:
    sizes = [4_000_000, 8_000_000, 16_000_000]
    costs = [_prices(_rows(6, size))["pinned-copies"].cost_ns_per_step for size in sizes]
    for small, large in pairwise(costs):
        assert small is not None
        assert large is not None
        assert large / small == pytest.approx(2, rel=0.05)


def test_the_order_of_the_rows_changes_no_price() -> None:
    rows = _rows(6)
    expected = _prices(rows)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))
        assert _prices([rows[i] for i in order]) == expected


def test_an_idle_stream_changes_no_price() -> None:
    rows = _rows(6)
    idle = [event_record(1_000, 5, stream=20), event_record(2_000, 6, device=0, stream=21)]
    assert _prices([*idle, *rows]) == _prices(rows)


@pytest.mark.parametrize("steps", [20, 24])
def test_a_longer_capture_of_the_same_steps_changes_no_price_per_step(steps: int) -> None:
    """With ten steps or more the first two are left out, in which a fix that works ahead gains once."""
    short, long = _per_step(_rows(14)), _per_step(_rows(steps))
    assert short.keys() == long.keys()
    assert short == long
    # In the last step no upload for a next one is in the way of its own small ones: the cost is the same, all the same.
    ahead = [_per_step(_rows(n, memory="pinned"))["prefetch"] for n in (14, steps)]
    assert ahead[0][0] == ahead[1][0]


AHEAD = ("prefetch", "read-later")
"""Fixes that move work from one step to another."""


@pytest.mark.parametrize("fix", AHEAD)
def test_each_further_step_gives_a_fix_that_works_ahead_the_same(fix: str) -> None:
    memory = "pinned" if fix == "prefetch" else "pageable"  # a pageable upload has to be pinned first
    savings = [_prices(_rows(steps, memory=memory))[fix].saving_ns for steps in (6, 12, 18)]
    assert savings[2] - savings[1] == savings[1] - savings[0] > 0


def test_a_later_capture_changes_no_price() -> None:
    """All times a thousand seconds later."""

    def late(row: Row) -> Row:
        return Row(row.table, row.lane, row.name, {**row.values, "start_ns": row.values["start_ns"] + 10**12})

    assert _prices([late(row) for row in _rows(6)]) == _prices(_rows(6))


def _without(keep: Callable[[Row], bool]) -> list[Row]:
    return [row for row in _rows(6) if keep(row)]


@pytest.mark.parametrize(
    ("fix", "keep"),
    [
        ("pooled-allocations", lambda row: row.name != "cudaMalloc"),
        ("no-step-sync", lambda row: row.name != "cudaStreamSynchronize"),
        ("overlapped-scheduling", lambda row: row.name not in ("schedule", "sample")),
        ("batched-copies", lambda row: row.values.get("bytes") != 64),
    ],
)
def test_without_the_fault_there_is_no_price(fix: str, keep: Callable[[Row], bool]) -> None:
    assert fix in _prices(_rows(6))
    assert fix not in _prices(_without(keep))


def test_no_fix_of_a_part_saves_more_than_the_fault_costs() -> None:
    for name, priced in _prices(_rows(6)).items():
        assert priced.saving_ns <= priced.cost_ns, name
        assert all_fixes()[name].code == priced.code
