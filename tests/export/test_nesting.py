"""Sub-lanes: within one, slices nest or do not touch; as few as are needed; none where everything nests."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.arrays import sort_order
from profkit.export._nesting import MOST_LANES, crossing, flat_lanes, nested_lanes, stream_lanes


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, end, group = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    return start, end, group


def crosses(a: tuple[int, int], b: tuple[int, int]) -> bool:
    (s, e), (t, f) = sorted([a, b], key=lambda r: (r[0], -r[1]))
    return t < e < f and s <= t


def test_what_nests_stays_on_one_lane() -> None:
    rows = [(0, 100, 0), (0, 50, 0), (10, 20, 0), (50, 100, 0), (100, 120, 0), (5, 105, 1)]
    assert nested_lanes(*arrays(rows)).tolist() == [0] * 6
    assert stream_lanes(*arrays(rows)).tolist() == [0] * 6


def test_a_range_that_crosses_one_far_above_it() -> None:
    # The last one begins inside the first and ends after it; the rows between are over by then.
    rows = [(0, 50, 0), (5, 40, 0), (10, 20, 0), (45, 60, 0)]
    assert crossing(*arrays(rows)).tolist() == [False, False, False, True]
    assert nested_lanes(*arrays(rows)).tolist() == [0, 0, 0, 1]


def test_a_long_chain_of_overlaps_takes_two_lanes() -> None:
    start = np.arange(0, 100_000, 10)
    lanes = stream_lanes(start, start + 12, np.zeros(len(start), np.int64))
    assert lanes.tolist() == [0, 1] * (len(start) // 2)


def test_lanes_of_one_group_do_not_depend_on_another() -> None:
    rows = [(0, 12, 0), (0, 12, 1), (10, 22, 0), (30, 40, 1), (20, 32, 0)]
    assert stream_lanes(*arrays(rows)).tolist() == [0, 0, 1, 0, 0]


def test_rows_without_length() -> None:
    rows = [(0, 10, 0), (10, 10, 0), (10, 20, 0), (20, 20, 0), (20, 20, 0), (15, 25, 0)]
    lanes = stream_lanes(*arrays(rows))
    assert lanes[2] != lanes[5]


def test_more_at_once_than_there_are_lanes_share_the_last() -> None:
    rows = [(at, 1_000 + at, 0) for at in range(MOST_LANES + 10)]
    assert np.bincount(flat_lanes(*arrays(rows))).tolist() == [1] * (MOST_LANES - 1) + [11]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layout", [nested_lanes, stream_lanes])
def test_no_two_rows_of_a_lane_cross(seed: int, layout) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    n = 60
    start = rng.integers(0, 200, n)
    end = start + rng.integers(0, 40, n)
    group = rng.integers(0, 3, n)
    lanes = layout(start, end, group)
    for i in range(n):
        for j in range(i):
            if group[i] == group[j] and lanes[i] == lanes[j]:
                assert not crosses((start[i], end[i]), (start[j], end[j]))


@pytest.mark.parametrize("seed", range(30))
def test_crossing_finds_some_where_there_are_any(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 12
    start = rng.integers(0, 60, n)
    end = start + rng.integers(0, 12, n)
    group = rng.integers(0, 2, n)
    order = sort_order(start, end - start, group)
    start, end, group = start[order], end[order], group[order]
    every = [any(group[j] == group[i] and start[j] <= start[i] < end[j] < end[i] for j in range(i)) for i in range(n)]
    found = crossing(start, end, group)
    assert found.any() == any(every)
    assert not (found & ~np.asarray(every)).any()


def test_a_row_inside_one_that_moves_moves_too_if_it_crosses() -> None:
    rows = [(0, 50, 0), (10, 100, 0), (40, 60, 0), (60, 70, 0)]
    assert nested_lanes(*arrays(rows)).tolist() == [0, 1, 1, 0]
