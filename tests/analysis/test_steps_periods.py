"""The period of a sequence and its repetitions: exact where it is exact, the same with deviations, none in noise."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.analysis.periods import SEARCHED, find_periods, find_repetitions
from profkit.model import Ints


def layered(layers: int, kernels: int, around: int, steps: int) -> Ints:
    """Steps of ``layers`` layers of the same kernels with ``around`` others before and behind them."""
    other = np.arange(1_000, 1_000 + around)
    layer = np.tile(np.arange(kernels), layers)
    return np.tile(np.concatenate((other[: around // 2], layer, other[around // 2 :])), steps)


def found(codes: Ints) -> tuple[int, int] | None:
    """(length, whole repetitions)."""
    repeats = find_repetitions(codes, np.ones(len(codes), np.int64))
    return (repeats.length, int(repeats.whole.sum())) if repeats is not None else None


def test_a_plain_repetition_is_found_exactly() -> None:
    codes = np.tile(np.arange(50), 100)
    repeats = find_repetitions(codes, np.ones(5_000, np.int64))
    assert repeats is not None
    assert repeats.length == 50
    assert repeats.starts.tolist() == list(range(0, 5_000, 50))
    assert repeats.ends.tolist() == list(range(50, 5_001, 50))
    assert repeats.whole.all()


@pytest.mark.parametrize(
    ("layers", "kernels", "around"), [(32, 10, 5), (80, 10, 3), (32, 5, 5), (32, 10, 2), (12, 7, 20)]
)
def test_a_step_of_layers_is_the_step_and_not_the_layer(layers: int, kernels: int, around: int) -> None:
    codes = layered(layers, kernels, around, 40)
    assert found(codes) == (layers * kernels + around, 40)
    assert find_periods(codes)[-1] == kernels


def test_three_repetitions_are_enough_and_two_are_none() -> None:
    assert found(np.tile(np.arange(7), 3)) == (7, 3)
    assert found(np.tile(np.arange(7), 2)) is None


@pytest.mark.parametrize("codes", [[], [1], [5] * 1_000], ids=["nothing", "one-code", "one-name-only"])
def test_nothing_to_tell_apart_has_no_period(codes: list[int]) -> None:
    assert found(np.asarray(codes, np.int64)) is None


@pytest.mark.parametrize("distinct", [2, 50, 3_000])
def test_a_random_order_has_no_period(distinct: int) -> None:
    for seed in range(5):
        assert found(np.random.default_rng(seed).integers(0, distinct, 6_000)) is None


def test_a_dominant_name_is_no_repetition() -> None:
    codes = (np.random.default_rng(0).random(6_000) < 0.05).astype(np.int64)
    assert found(codes) is None


def test_the_same_kernels_in_another_order_each_time_do_not_repeat() -> None:
    order = np.random.default_rng(0)
    assert found(np.concatenate([order.permutation(50) for _ in range(100)])) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_few_additional_kernels_hide_nothing(seed: int) -> None:
    codes = layered(32, 10, 5, 100)
    at = np.random.default_rng(seed).integers(0, len(codes), 5)
    assert found(np.insert(codes, at, 777)) == (325, 100)


@pytest.mark.parametrize("seed", range(5))
def test_a_few_missing_kernels_hide_little(seed: int) -> None:
    codes = layered(80, 10, 4, 40)
    at = np.random.default_rng(seed).integers(0, len(codes), 3)
    length, whole = found(np.delete(codes, at)) or (0, 0)
    assert length == 804
    assert whole >= 38


def test_kernels_that_are_others_now_and_then_hide_little() -> None:
    codes = layered(32, 10, 5, 100)
    codes[np.random.default_rng(0).integers(0, len(codes), 200)] = 999
    length, whole = found(codes) or (0, 0)
    assert length == 325
    assert whole >= 98


def test_one_more_kernel_every_sixteen_steps_makes_no_longer_step() -> None:
    step = layered(4, 3, 1, 1).tolist()
    codes = np.asarray([code for i in range(48) for code in step + [888] * (i % 16 == 15)])
    assert found(codes) == (13, 48)


def test_a_start_that_does_not_repeat_is_left_out() -> None:
    codes = np.concatenate((np.arange(5_000, 5_300), layered(32, 10, 5, 20)))
    repeats = find_repetitions(codes, np.ones(len(codes), np.int64))
    assert repeats is not None
    assert repeats.starts[0] == 300
    assert len(repeats) == 20


def test_a_cut_off_end_is_a_repetition_that_is_not_whole() -> None:
    repeats = find_repetitions(np.tile(np.arange(10), 6)[:55], np.ones(55, np.int64))
    assert repeats is not None
    assert repeats.starts.tolist() == [0, 10, 20, 30, 40, 50]
    assert repeats.whole.tolist() == [True] * 5 + [False]
    assert repeats.ends[-1] == 55


def test_a_repetition_begins_behind_its_longest_pause() -> None:
    codes = np.tile(np.arange(10), 8)[4:]  # the capture began in the middle of a step
    pause = np.where(codes == 0, 500, 10)
    repeats = find_repetitions(codes, pause)
    assert repeats is not None
    assert codes[repeats.starts].tolist() == [0] * len(repeats)
    assert repeats.starts[0] == 6
    even = find_repetitions(codes, np.full(len(codes), 10))
    assert even is not None
    assert even.starts[0] == 0


def test_what_repeats_for_less_than_half_is_no_period_of_the_whole() -> None:
    noise = np.random.default_rng(0).integers(100, 400, 4_000)
    assert found(np.concatenate((np.tile(np.arange(20), 100), noise))) is None


def test_a_long_sequence_is_searched_in_its_middle_and_found_everywhere() -> None:
    codes = np.tile(layered(8, 12, 6, 1), 4_000).astype(np.int32)
    assert len(codes) > SEARCHED
    assert found(codes) == (102, 4_000)


def test_a_pattern_shorter_than_asked_for_is_none() -> None:
    codes = np.tile([1, 2], 50)
    assert find_repetitions(codes, np.ones(100, np.int64), 4) is None
    assert found(codes) == (2, 50)
