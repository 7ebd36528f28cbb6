"""Levels of detail against a slow and obvious count of single nanoseconds: nothing is lost, nothing is made up."""

import numpy as np
import pytest

from profkit.analysis.intervals import Intervals
from profkit.model import Window
from profkit.timeline.pack import (
    Lane,
    column_edges,
    covered_shares,
    density,
    dominant,
    runs,
    slices,
    sub_rows,
    ticks,
)

CATEGORIES = ("a", "b", "c")


def _lane(*rows: tuple[int, int, int], kind: str = "stream", depth: tuple[int, ...] = ()) -> Lane:
    """A lane of (start, end, category)."""
    start, end, category = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    row = np.asarray(depth or [0] * len(rows), np.int64)
    return Lane(kind, "GPU 0", "stream 7", start, end, category, CATEGORIES, np.arange(len(rows)), row)


def _random_lane(seed: int, n: int = 60, kind: str = "stream") -> Lane:
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 950, n))
    rows = zip(start.tolist(), (start + rng.integers(0, 60, n)).tolist(), rng.integers(0, 3, n).tolist(), strict=True)
    return _lane(*rows, kind=kind)


def _busy(lane: Lane, window: Window) -> int:
    points = {t for s, e in zip(lane.start.tolist(), lane.end.tolist(), strict=True) for t in range(s, e)}
    return len(points & set(range(window.start_ns, window.end_ns)))


def test_share_of_a_column_is_what_is_covered_of_it() -> None:
    lane = _lane((0, 5, 0), (10, 20, 1), (25, 35, 2))
    shares = density(lane, Window(0, 40), 4)
    assert shares.tolist() == [[0.5, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.5, 0.5]]


def test_what_overlaps_is_covered_once_and_split_in_proportion() -> None:
    lane = _lane((0, 8, 0), (0, 8, 1), (0, 8, 1))
    assert density(lane, Window(0, 10), 1).tolist() == [[0.4], [0.4], [0]]


@pytest.mark.parametrize("seed", range(20))
def test_shares_times_widths_are_the_busy_time(seed: int) -> None:
    lane, window = _random_lane(seed), Window(100, 773)
    edges = column_edges(window, 37)
    shares = density(lane, window, 37)
    assert float((shares.sum(axis=0) * np.diff(edges)).sum()) == pytest.approx(_busy(lane, window))
    assert shares.min() >= 0
    assert shares.sum(axis=0).max() <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_a_slice_is_drawn_or_in_the_shares_and_never_both(seed: int) -> None:
    lane, window = _random_lane(seed), Window(100, 773)
    packed = slices(lane, window, 67, narrowest=2.0, most=15)
    seen = lane.within(window)
    assert len(packed.drawn) + packed.rest == len(seen)
    drawn = set(packed.drawn.name.tolist())
    rest = lane.where(np.asarray([name not in drawn for name in lane.name.tolist()]))
    covered = (packed.shares.sum(axis=(0, 1)) * np.diff(column_edges(window, 67))).sum()
    assert float(covered) == pytest.approx(_busy(rest, window))


@pytest.mark.parametrize("seed", range(20))
def test_slices_of_one_row_do_not_overlap_and_keep_their_own_times(seed: int) -> None:
    lane = _random_lane(seed)
    drawn = slices(lane, Window(100, 773), 500, most=1000, rows=3).drawn
    assert drawn.start.tolist() == lane.start[drawn.name].tolist()
    assert drawn.end.tolist() == lane.end[drawn.name].tolist()
    for row in range(drawn.rows):
        mine = drawn.where(drawn.row == row)
        assert (mine.start[1:] >= mine.end[:-1]).all()


def test_the_longest_are_drawn_where_there_are_too_many() -> None:
    lane = _lane(*((i * 20, i * 20 + 5 + i % 7, 0) for i in range(50)))
    packed = slices(lane, Window(0, 1000), 1000, most=7)
    assert sorted((packed.drawn.end - packed.drawn.start).tolist()) == [11] * 7
    assert packed.rest == 43


def test_what_does_not_fit_the_rows_is_counted_and_stays_in_the_shares() -> None:
    lane = _lane((0, 100, 0), (0, 100, 0), (0, 100, 1))
    packed = slices(lane, Window(0, 100), 10, rows=2)
    assert (len(packed.drawn), packed.crowded, packed.rest) == (2, 1, 1)
    assert packed.shares[0].sum() == pytest.approx(10)


def test_ranges_keep_their_depth() -> None:
    lane = _lane((0, 100, 0), (10, 90, 1), (20, 80, 2), kind="ranges", depth=(0, 1, 2))
    packed = slices(lane, Window(0, 100), 100, rows=2)
    assert packed.drawn.row.tolist() == [0, 1]
    assert packed.shares[1, 2].sum() == pytest.approx(60)


def test_sub_rows_take_the_lowest_that_is_free() -> None:
    start, end = np.asarray([0, 1, 5, 6, 7]), np.asarray([5, 9, 6, 8, 9])
    assert sub_rows(start, end, 2).tolist() == [0, 1, 0, 0, -1]


def test_a_window_shorter_than_its_columns_and_one_of_centuries() -> None:
    assert column_edges(Window(7, 10), 500).tolist() == [7, 8, 9, 10]
    assert column_edges(Window(7, 7), 500).tolist() == [7, 7]
    edges = column_edges(Window(0, 9 * 10**18), 1000)
    assert edges[-1] == 9 * 10**18
    assert (np.diff(edges) > 0).all()
    whole = Intervals(np.asarray([0]), np.asarray([9 * 10**18]))
    assert covered_shares(whole, Window(0, 9 * 10**18), 4).tolist() == [1, 1, 1, 1]


def test_an_empty_lane_has_no_shares() -> None:
    empty = _lane((0, 1, 0)).where(np.zeros(1, bool))
    assert density(empty, Window(0, 10), 5).sum() == 0
    packed = slices(empty, Window(0, 10), 5)
    assert (len(packed.drawn), packed.rest, packed.rows) == (0, 0, 1)


def test_runs_and_dominant() -> None:
    assert runs(np.asarray([3, 3, 5, 3])) == [(0, 2, 3), (2, 3, 5), (3, 4, 3)]
    assert runs(np.asarray([], np.int64)) == []
    code, total = dominant(np.asarray([[0.1, 0.6], [0.4, 0.2]]))
    assert code.tolist() == [1, 0]
    assert total.tolist() == [0.5, pytest.approx(0.8)]


@pytest.mark.parametrize("length", [1, 7, 99, 3_880_000, 1_300_000_000, 3_600 * 10**9, 9 * 10**18])
@pytest.mark.parametrize("start", [0, -150, 5_000_000_003])
def test_ticks_are_round_few_and_inside(start: int, length: int) -> None:
    window = Window(start, start + length)
    found = ticks(window)
    assert 1 <= len(found) <= 11
    assert all(window.start_ns <= time <= window.end_ns for time in found)
    if len(found) > 1:
        step = found[1] - found[0]
        assert str(step).rstrip("0") in ("1", "2", "5")
        assert all(time % step == 0 for time in found)
