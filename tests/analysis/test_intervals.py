"""Interval arithmetic against a slow and obvious count of single nanoseconds."""

import numpy as np
import pytest

from profkit.analysis.intervals import (
    Intervals,
    clip,
    merge_by_group,
    percentile,
    percentiles,
    union,
    union_by_group,
)
from profkit.arrays import depths, distinct, first_match, innermost, pack, parents, sort_order


def _points(intervals: Intervals) -> set[int]:
    return {t for s, e in zip(intervals.start.tolist(), intervals.end.tolist(), strict=True) for t in range(s, e)}


def _random(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    start = rng.integers(0, 200, n)
    return start, start + rng.integers(0, 12, n)


@pytest.mark.parametrize("seed", range(30))
def test_union_and_coverage(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = union(*_random(rng, int(rng.integers(0, 40))))
    start, end = _random(rng, 20)
    merged = union(start, end)
    points = {t for s, e in zip(start.tolist(), end.tolist(), strict=True) for t in range(s, e)}
    assert _points(merged) == points
    assert merged.total == len(points)
    assert (merged.start[1:] > merged.end[:-1]).all()
    assert _points(clip(a, 10, 150)) == set(range(10, 150)) & _points(a)
    covered = a.covered(start, end)
    assert covered.tolist() == [
        len(_points(a) & set(range(s, e))) for s, e in zip(start.tolist(), end.tolist(), strict=True)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_union_by_group_never_mixes_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, end = _random(rng, 60)
    group = rng.integers(0, 5, 60)
    expected = [union(start[group == g], end[group == g]).total for g in range(6)]
    assert union_by_group(start, end, group, 6).tolist() == expected


def test_groups_whose_lifted_times_would_overflow() -> None:
    start = np.asarray([0, 5, 0, 1 << 61], np.int64)
    end = np.asarray([10, 20, 4, (1 << 61) + 3], np.int64)
    merged, owner = merge_by_group(start, end, np.asarray([3, 3, 9, 9]))
    assert merged.start.tolist() == [0, 0, 1 << 61]
    assert merged.end.tolist() == [20, 4, (1 << 61) + 3]
    assert owner.tolist() == [3, 9, 9]
    assert union_by_group(start, end, np.asarray([3, 3, 9, 9]), 10).tolist() == [0, 0, 0, 20, 0, 0, 0, 0, 0, 7]


def test_touching_intervals_are_one_and_empty_ones_vanish() -> None:
    merged = union(np.asarray([0, 10, 30]), np.asarray([10, 20, 30]))
    assert (merged.start.tolist(), merged.end.tolist()) == ([0], [20])


def test_percentiles_are_nearest_rank() -> None:
    values = np.arange(1, 11)
    assert percentiles(values[::-1], (50, 90, 99)) == [5, 9, 10]
    assert percentiles(values[:0], (50, 90)) == [None, None]
    assert [percentile(values, p) for p in (1, 50, 90, 91, 99, 100)] == [1, 5, 9, 10, 10, 10]
    assert percentile(np.zeros(0, np.int64), 50) is None


@pytest.mark.parametrize("seed", range(30))
def test_parents_and_innermost_match_a_search_of_all_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    start, group = rng.integers(0, 100, n), rng.integers(0, 3, n)
    dur = rng.integers(0, 60, n)
    order = sort_order(start, dur, group)
    start, dur, group = start[order], dur[order], group[order]
    end = start + dur
    parent = parents(start, end, group)
    for i in range(n):
        earlier = [j for j in range(i) if group[j] == group[i] and end[j] >= end[i]]
        assert parent[i] == (earlier[-1] if earlier else -1)
        chain, at = 0, int(parent[i])
        while at >= 0:
            chain, at = chain + 1, int(parent[at])
        assert depths(parent)[i] == chain
    at, lane = rng.integers(0, 100, 40), rng.integers(0, 3, 40)
    until = at + rng.integers(0, 20, 40)
    found = innermost(start, end, group, parent, at, until, lane)
    for q in range(40):
        around = [j for j in range(n) if group[j] == lane[q] and start[j] <= at[q] and end[j] >= until[q]]
        assert found[q] == (around[-1] if around else -1)


def test_keys_of_huge_and_negative_values_stay_distinct() -> None:
    wide = np.asarray([-(1 << 61), 1 << 61, 0, 0])
    other = np.asarray([5, 5, 1 << 60, -1])
    a, b = pack([[wide, wide[::-1]], [other, other[::-1]]])
    assert len(set(a.tolist())) == 4
    assert a.tolist() == b[::-1].tolist()
    assert first_match(a, b).tolist() == [3, 2, 1, 0]


def test_first_match_takes_the_first_and_says_what_is_missing() -> None:
    assert first_match(np.asarray([7, 5, 7]), np.asarray([7, 6, 5])).tolist() == [0, -1, 1]
    sparse = np.asarray([1 << 50, 3, 1 << 50])
    assert first_match(sparse, np.asarray([3, 1 << 50, 4])).tolist() == [1, 0, -1]


def test_distinct_codes() -> None:
    assert distinct(np.asarray([3, -1, 3, 0], np.int32)).tolist() == [0, 3]
