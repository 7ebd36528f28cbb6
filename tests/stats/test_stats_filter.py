"""The part of a trace that a filter leaves: by time, by one NVTX range, and what cannot be asked for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from profkit import stats
from profkit.errors import UsageError
from profkit.model import Trace
from profkit.stats._filter import TimeFilter, filter_nvtx, filter_time, parse_time_filter
from profkit.testing import build_trace, call, kernel, launch, os_call, span


def names(trace: Trace, report: str, key: str = "name") -> list[Any]:
    listing = stats.answer(trace, stats.choose([report])[0]).listing
    if listing is None:
        return []
    at = [column.key for column in listing.columns].index(key)
    return list(listing.values[at].to_pylist())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("10/20", TimeFilter(10, 20)),
        ("1.5us/2ms", TimeFilter(1_500, 2_000_000)),
        ("1s/", TimeFilter(10**9, None)),
        ("/350ms", TimeFilter(None, 350_000_000)),
        (":10/20", TimeFilter(10, 20, open_start=True)),
        ("10/20:", TimeFilter(10, 20, open_end=True)),
        (":1.2s/1350ms:", TimeFilter(1_200_000_000, 1_350_000_000, True, True)),
        (" 7 ns / 9 µs ", TimeFilter(7, 9_000)),
        ("9007199.254740993s/", TimeFilter(9_007_199_254_740_993, None)),
        ("/", TimeFilter(None, None)),
    ],
)
def test_a_time_filter_is_two_times_with_units(words: str, wanted: TimeFilter) -> None:
    assert parse_time_filter(words) == wanted


@pytest.mark.parametrize("words", ["", "10", "1/2/3", "a/b", "1h/2h", "20/10", "-5/10", "1:/2"])
def test_what_is_no_time_filter_is_a_usage_error(words: str) -> None:
    with pytest.raises(UsageError, match=r"no time|ends before it starts"):
        parse_time_filter(words)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("100/200", ["inside", "edges"]),
        (":100/200", ["crosses the start", "inside", "edges"]),
        ("100/200:", ["inside", "edges", "crosses the end"]),
        (":100/200:", ["crosses the start", "crosses both", "inside", "edges", "crosses the end"]),
        ("100/", ["inside", "edges", "crosses the end", "after"]),
        ("/200", ["before", "crosses the start", "inside", "edges"]),
    ],
)
def test_events_are_kept_whole_by_their_own_time(words: str, kept: list[str]) -> None:
    times = {
        "before": (10, 20),
        "crosses the start": (50, 150),
        "crosses both": (60, 300),
        "inside": (120, 130),
        "edges": (100, 200),
        "crosses the end": (150, 250),
        "after": (210, 220),
    }
    trace = build_trace(*(kernel(start, end - start, name) for name, (start, end) in times.items()))
    filtered = filter_time(trace, parse_time_filter(words))
    assert sorted(names(filtered, "cuda_gpu_trace")) == sorted(kept)
    whole = dict(zip(names(filtered, "cuda_gpu_trace"), names(filtered, "cuda_gpu_trace", "duration_ns"), strict=True))
    assert whole == {name: times[name][1] - times[name][0] for name in kept}


def test_a_filter_that_leaves_nothing_gives_the_reason() -> None:
    trace = filter_time(build_trace(kernel(0, 10)), parse_time_filter("1s/2s"))
    answer = stats.answer(trace, stats.choose(["cuda_gpu_kern_sum"])[0])
    assert (answer.listing, answer.reason) == (None, "no rows of kernels pass the filter")


def two_steps() -> Trace:
    return build_trace(
        span("epoch", 0, 1_000),
        *(span("step", at, 100) for at in (100, 300)),
        span("step", 100, 100, domain="other"),
        span("step", 110, 100, pid=200),
        span("gather", 300, 50, kind="start_end"),
        *launch("first", at=110, start=150, dur=20, call_dur=5),
        *launch("second", at=310, start=350, dur=20, call_dur=5),
        *launch("other thread", at=312, start=360, dur=20, call_dur=5, tid=101),
        *launch("other process", at=111, start=150, dur=30, call_dur=5, pid=200),
        os_call(120, 5, "poll"),
        os_call(120, 5, "read", tid=101),
        call(500, 5, "cudaFree"),
    )


@pytest.mark.parametrize(
    ("words", "kernels", "calls", "os_calls"),
    [
        ("step", ["first"], 1, ["poll"]),
        ("step/0", ["first"], 1, ["poll"]),
        ("step/1", ["other process"], 1, []),
        ("step/2", ["second", "other thread"], 1, []),
        ("step@other", ["first"], 1, ["poll"]),
        ("step@*/1", ["first"], 1, ["poll"]),
        ("gather", ["second"], 2, []),
    ],
)
def test_one_range_keeps_what_overlaps_it_on_its_thread_and_gpu(
    words: str, kernels: list[str], calls: int, os_calls: list[str]
) -> None:
    filtered = filter_nvtx(two_steps(), words)
    assert names(filtered, "cuda_gpu_trace")[: len(kernels)] == kernels
    assert filtered.rows("calls") == calls
    assert names(filtered, "osrt_sum") == os_calls


def test_ids_of_ranges_survive_a_filter() -> None:
    assert names(filter_nvtx(two_steps(), "step/2"), "nvtx_pushpop_trace", "range_id") == [1, 5]


def test_ranges_around_the_chosen_one_stay_whole() -> None:
    listing = stats.answer(filter_nvtx(two_steps(), "step/2"), stats.choose(["nvtx_sum"])[0]).listing
    assert listing is not None
    assert listing.values[-1].to_pylist() == [":epoch", ":step", ":gather"]
    assert listing.values[1].to_pylist() == [1_000, 100, 50]


def test_a_name_with_a_slash_or_an_at_is_found_as_it_stands() -> None:
    trace = build_trace(span("a/1", 0, 10), span("mail@host", 20, 10), span("a", 40, 10), span("a", 60, 10))
    for words, start in (("a/1", 0), ("mail@host", 20), ("a", 40)):
        spans = filter_nvtx(trace, words).array("spans", "start_ns")
        assert spans.tolist() == [start]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("steps", "no NVTX range 'steps' in this trace"),
        ("step/9", "there are 3 ranges 'step', counted from 0: no number 9"),
        ("hidden", "no NVTX range 'hidden' in this trace; in domain lib there is: hidden@lib"),
    ],
)
def test_a_range_that_is_not_there_is_a_usage_error(words: str, said: str) -> None:
    trace = build_trace(*(span("step", at, 5) for at in (0, 10, 20)), span("hidden", 0, 5, domain="lib"))
    with pytest.raises(UsageError, match=re.escape(said)):
        filter_nvtx(trace, words)
