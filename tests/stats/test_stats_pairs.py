"""Projections, parents and kernels in ranges, against plain loops that try every pair of a range and a call."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from profkit import stats
from profkit.model import Trace
from profkit.stats._projection import project
from profkit.stats._ranges import Ranges, find_ranges, tree
from profkit.stats._slices import MOST_CHAINS, chains, range_max, range_min
from profkit.testing import Row, build_trace, call, kernel, span


def messy_trace(seed: int) -> Trace:
    """Two threads of nested and of overlapping ranges, calls in calls, several kernels a call, times that coincide."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    correlation = iter(range(1, 10_000))
    for tid in (100, 200):
        for start, end in nested_intervals(random, 0, 60, 4):
            rows.append(
                span(f"r{random.integers(4)}", start, end - start, tid=tid, domain=str(random.choice(["", "d"])))
            )
        for _ in range(12):
            start, end = sorted(random.integers(0, 61, 2).tolist())
            rows.append(span(f"r{random.integers(4)}", start, end - start, kind="start_end", tid=tid))
        for start, end in nested_intervals(random, 0, 60, 3):
            number = next(correlation)
            rows.append(call(start, end - start, correlation=number, tid=tid))
            for _ in range(int(random.integers(0, 4))):
                at, dur = random.integers(0, 500, 2).tolist()
                rows.append(
                    kernel(at, dur, f"k{random.integers(3)}", correlation=number, stream=int(random.integers(2)))
                )
    return build_trace(*rows)


def nested_intervals(random: np.random.Generator, low: int, high: int, depth: int) -> list[tuple[int, int]]:
    if not depth or high - low < 6:
        return []
    out: list[tuple[int, int]] = []
    cuts = sorted(random.choice(np.arange(low, high + 1), 6, replace=False).tolist())
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        out += [(start, end), *nested_intervals(random, start, end, depth - 1)]
    return out


def pairs(trace: Trace) -> tuple[Ranges, list[tuple[int, int]]]:
    """All ranges, and each (range, kernel) of which the range holds the kernel's call, by trying every pair."""
    ranges = find_ranges(trace, one_thread=True)
    calls = {
        (process, number): (start, start + dur, track)
        for process, number, start, dur, track in zip(
            *(trace.array("calls", key).tolist() for key in ("process", "correlation", "start_ns", "dur_ns", "track")),
            strict=True,
        )
    }
    owners = [
        calls[key]
        for key in zip(*(trace.array("kernels", key).tolist() for key in ("process", "correlation")), strict=True)
    ]
    inside = [
        (r, k)
        for r in range(len(ranges))
        for k, (start, end, track) in enumerate(owners)
        if ranges.track[r] == track and ranges.start[r] <= start and end <= ranges.end[r]
    ]
    return ranges, inside


@pytest.mark.parametrize("seed", range(12))
def test_projections_are_those_of_all_pairs(seed: int) -> None:
    trace = messy_trace(seed)
    ranges, inside = pairs(trace)
    found = project(trace)
    start = trace.array("kernels", "start_ns")
    end = start + trace.array("kernels", "dur_ns")
    correlation = trace.array("kernels", "correlation")
    for r in range(len(ranges)):
        mine = [k for owner, k in inside if owner == r]
        assert found.operations[r] == len({int(correlation[k]) for k in mine})
        if mine:
            assert (found.start[r], found.end[r]) == (start[mine].min(), end[mine].max())


@pytest.mark.parametrize("seed", range(12))
def test_parents_are_the_shortest_ranges_around(seed: int) -> None:
    ranges = find_ranges(messy_trace(seed))
    found = tree(ranges)
    for r in range(len(ranges)):
        around = [
            q
            for q in range(r)  # of two ranges with the same ends the earlier one is the outer
            if ranges.track[q] == ranges.track[r]
            and ranges.start[q] <= ranges.start[r]
            and ranges.end[q] >= ranges.end[r]
        ]
        expected = max(around, key=lambda q: (-ranges.dur[q], q), default=-1)
        assert found.parent[r] == expected
        assert found.level[r] == (0 if expected < 0 else found.level[expected] + 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batch", [1, 40, 4_000_000])
def test_kernels_by_range_are_those_of_all_pairs(seed: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.stats.nvtx_kern_sum.PAIRS", batch)
    trace = messy_trace(seed)
    ranges, inside = pairs(trace)
    dur = trace.array("kernels", "dur_ns").tolist()
    names = [trace.name(int(row)) for row in trace.array("kernels", "name")]
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    tids = trace.array("tracks", "tid")
    for r, k in inside:
        style = ("PushPop", "StartEnd")[ranges.style[r]]
        groups[ranges.names[ranges.name[r]], style, int(tids[ranges.track[r]]), names[k]].append((r, k))
    expected = {
        key: (
            len({r for r, _ in found}),
            len({k for _, k in found}),
            sum(dur[k] for _, k in found),
            statistics.median([dur[k] for _, k in found]),
        )
        for key, found in groups.items()
    }
    listing = stats.answer(trace, stats.choose(["nvtx_kern_sum"])[0]).listing
    assert listing is not None
    columns = [values.to_pylist() for values in listing.values]
    titles = [column.key for column in listing.columns]
    rows = [dict(zip(titles, row, strict=True)) for row in zip(*columns, strict=True)]
    got = {
        (row["nvtx_range"], row["style"], row["tid"], row["kernel_name"]): (
            row["nvtx_instances"], row["kernel_instances"], row["total_time_ns"], row["med_ns"],
        )
        for row in rows
        if row["nvtx_range"] is not None
    }  # fmt: skip
    assert got == expected
    outside = sum(row["kernel_instances"] for row in rows if row["nvtx_range"] is None)
    assert outside == len(dur) - len({k for _, k in inside})
    keys = [(row["nvtx_range"] or "", row["pid"], row["tid"], -row["total_time_ns"]) for row in rows]
    assert keys == sorted(keys)


def test_the_extremes_of_slices_are_those_of_plain_loops() -> None:
    random = np.random.default_rng(3)
    values = random.integers(-1_000, 1_000, 300)
    low = random.integers(0, 300, 500)
    high = np.minimum(low + random.integers(1, 300, 500), 300)
    parts = [values[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert range_min(values, low, high).tolist() == [int(part.min()) for part in parts]
    assert range_max(values, low, high).tolist() == [int(part.max()) for part in parts]
    assert range_min(values, low[:0], high[:0]).tolist() == []


def test_chains_hold_every_interval_once_and_grow() -> None:
    start = np.asarray([0, 1, 2, 10, 11, 0, 5])
    end = np.asarray([9, 8, 3, 20, 30, 4, 6])
    group = np.asarray([0, 0, 0, 0, 0, 1, 1])
    found = list(chains(start, end, group))
    assert [chain.rows.tolist() for chain in found] == [[0, 3, 4, 5, 6], [1], [2]]


def test_ranges_nested_without_end_are_cut_off_not_looped_over() -> None:
    depth = MOST_CHAINS + 5
    start = np.arange(depth)
    assert len(list(chains(start, 1_000 - start, np.zeros(depth, np.int64)))) == MOST_CHAINS
    ranges = find_ranges(build_trace(*(span("r", i, 1_000 - 2 * i, kind="start_end") for i in range(depth))))
    assert tree(ranges).level.tolist() == list(range(depth))
