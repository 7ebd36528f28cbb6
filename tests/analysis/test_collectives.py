"""Clocks brought together by the ends of collectives, and who came last to each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from profkit.analysis.collectives import (
    APART,
    NOT_ALIGNED,
    UNEVEN,
    Arrivals,
    Straggler,
    collective_facts,
    find_arrivals,
    member_name,
    stragglers,
)
from profkit.analysis.context import Analysis
from profkit.builder import Builder
from profkit.clocks import MOST_SPREAD_NS, Alignment, Ends, align, ends_of
from profkit.collective_order import number_collectives
from profkit.merge import Part, merge_traces
from profkit.model import RunMeta, Trace, Window
from profkit.schema import TRACK_KINDS

MS = 1_000_000


def ends(base: int, **series: list[int]) -> Ends:
    """What one clock saw: ends by communicator."""
    keys = [f"{name}\x1fall_reduce\x1f" for name, times in series.items() for _ in times]
    times = [time for values in series.values() for time in values]
    return Ends(base, pa.chunked_array([pa.array(keys, pa.string())]), np.asarray(times, np.int64))


def compare(first: Ends, other: Ends) -> Alignment:
    return align([first, other])[1]


def ranks(
    *members: list[tuple[int, int]], communicator: str = "77", operation: str = "all_reduce", utc: int = -1,
    first_rank: int = 0,
) -> Trace:  # fmt: skip
    """One host with a process and a GPU a rank; each has kernels (start, end) of one collective after the other."""
    builder = Builder()
    row = builder.dimension("hosts", "host", clock="realtime")
    count = 0
    for rank, rows in enumerate(members, first_rank):
        process = builder.dimension("processes", rank, host=row, pid=100 + rank, rank=rank)
        device = builder.dimension("devices", rank, host=row)
        track = builder.dimension(
            "tracks", rank, kind=TRACK_KINDS.index("stream"), host=row, process=process, device=device, stream=7
        )
        start, end = (np.asarray([times[i] for times in rows]) for i in (0, 1))
        name = builder.names.kernel("ncclDevKernel_AllReduce")
        times = {"start_ns": start, "dur_ns": end - start, "track": track, "name": name}
        builder.add("kernels", **times, process=process)
        numbers = np.arange(count, count + len(rows))
        builder.add("collectives", **times, kernel=numbers, operation=operation, communicator=communicator, rank=rank)
        count += len(rows)
    return builder.finish(RunMeta(source="built", utc_ns=utc))


def one_rank(rank: int, ends: list[int], dur: int = 100, utc: int = -1) -> Trace:
    return ranks([(end - dur, end) for end in ends], first_rank=rank, utc=utc)


def together(*traces: Trace) -> Trace:
    return merge_traces([Part(Path(f"{i}.json"), trace, rank=i) for i, trace in enumerate(traces)], "built", "all")


def offsets(trace: Trace) -> list[tuple[int, int]]:
    columns = (trace.array("hosts", column).tolist() for column in ("offset_ns", "offset_error_ns"))
    return list(zip(*columns, strict=True))


def straggling() -> Trace:
    """F06: four ranks with one clock, rank 3 comes 50 ms late ten times."""
    late = [0, 0, 0, 50 * MS]
    return ranks(*([(at + i * 100 * MS, 51 * MS + i * 100 * MS) for i in range(10)] for at in late))


def test_F06_which_rank_is_the_straggler() -> None:
    trace = straggling()

    found = find_arrivals(trace)

    assert len(found) == 10
    assert stragglers(found) == [Straggler(member=3, count=10, of=10)]
    assert member_name(trace, found, 3) == "rank 3"
    assert found.members.tolist() == [4] * 10
    assert found.wait_ns.tolist() == [50 * MS] * 10
    assert found.waited_ns.tolist() == [150 * MS] * 10
    assert found.transfer_ns.tolist() == [MS] * 10
    assert found.error_ns.tolist() == [0] * 10
    waits = [found.member_wait_ns[found.member == member].tolist() for member in range(4)]
    assert waits == [[50 * MS] * 10] * 3 + [[0] * 10]
    assert found.left_out == {}
    kernels = trace.array("kernels", "dur_ns")
    shortest = np.flatnonzero(kernels == kernels.min())
    assert (trace.array("kernels", "process")[shortest] == 3).all()  # the shortest kernel is the last to come


def test_a_window_takes_collectives_by_their_last_arrival() -> None:
    found = find_arrivals(straggling())
    assert found.within(Window(0, 150 * MS)).tolist() == [True, *[False] * 9]
    assert stragglers(found, found.within(Window(0, 151 * MS))) == [Straggler(3, 2, 2)]


def test_clocks_that_differ_by_seconds_are_brought_together() -> None:
    first = one_rank(0, [5 * MS + i * MS for i in range(10)], utc=10**18)
    other = one_rank(1, [5 * MS + i * MS for i in range(10)], utc=10**18 + 11_560 * MS)

    trace = together(first, other)

    assert offsets(trace) == [(0, 0), (-11_560 * MS, 0)]
    assert trace.meta.notes == (
        "rank 1: clock moved by -11.56 s to agree with the first rank's, ±0 ns, by the ends of 10 collectives",
    )
    assert trace.meta.warnings == ()
    assert trace.meta.utc_ns == 10**18
    assert trace.array("kernels", "start_ns")[[0, 1]].tolist() == [5 * MS - 100] * 2
    found = find_arrivals(trace)
    assert (found.wait_ns.tolist(), found.last.tolist()) == ([0] * 10, [-1] * 10)


def test_the_offset_is_the_median_and_its_error_half_of_the_range() -> None:
    first = ends(0, a=[1_000, 2_000, 3_000, 4_000, 5_000])
    other = ends(7 * MS, a=[1_000, 2_003, 2_990, 4_000, 4_998])
    # differences 0, -3, 10, 0, 2: median 0, range 13
    assert compare(first, other) == Alignment(offset_ns=-7 * MS, error_ns=7, matched=5)


def test_a_clock_within_the_error_is_not_moved() -> None:
    first = ends(0, a=[1_000, 2_000, 3_000])
    near = ends(0, a=[1_002, 1_997, 3_004])
    # differences -2, 3, -4: median -2, half of the range 3.5
    assert compare(first, near) == Alignment(offset_ns=0, error_ns=4, matched=3)
    wide = ends(0, a=[101_000, 152_000, 203_000])
    # differences -100,000, -150,000 and -200,000: median -150,000, half of the range 50,000
    assert compare(first, wide) == Alignment(offset_ns=-150_000, error_ns=50_000, matched=3)


def test_what_ranks_differ_by_is_no_offset() -> None:
    """Clocks of one machine are not shifted because its ranks leave collectives one after the other."""
    first = ends(0, a=[20_000, 30_000, 40_000])
    other = ends(0, a=[30_000, 40_000, 50_001])
    assert compare(first, other) == Alignment(offset_ns=0, error_ns=10_001, matched=3)
    beyond = ends(0, a=[30_001, 40_001, 50_001])
    assert compare(first, beyond) == Alignment(offset_ns=-10_001, error_ns=0, matched=3)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([5, 6], "2 collectives match, 3 are needed"),
        ([5, 6, 7, 8], "one recorded 2 and the other 4 collectives (all_reduce): which of them belong together"),
    ],
)
def test_too_few_matches_are_refused(others: list[int], reason: str) -> None:
    found = compare(ends(0, a=[5, 6]), ends(0, a=others))
    assert (found.error_ns, found.offset_ns) == (-1, 0)
    assert found.reason.startswith(reason)


def test_a_spread_that_is_not_credible_is_refused() -> None:
    first = ends(0, a=[0, 10 * MS, 20 * MS])
    edge = 20 * MS + 2 * MOST_SPREAD_NS
    within = compare(first, ends(0, a=[0, 10 * MS, edge]))
    assert within == Alignment(0, 2 * MOST_SPREAD_NS, 3)  # the median is 0
    beyond = compare(first, ends(0, a=[0, 10 * MS, edge + 1]))
    assert beyond.error_ns == -1
    assert beyond.reason.startswith("the offsets that 3 collectives give lie 2.00 ms apart, and no more than 2.00 ms")


def test_a_clock_is_reached_through_another() -> None:
    clocks = [
        ends(0, row=[10, 20, 30]),
        ends(0, column=[5, 6, 7], row=[50_010, 50_020, 50_032]),
        ends(0, column=[25_005, 25_006, 25_009]),
        ends(0),
    ]
    found = align(clocks)
    assert [(a.offset_ns, a.error_ns) for a in found] == [(0, 0), (-50_000, 1), (-75_000, 2), (0, -1)]
    assert found[3].reason == "no collective of a communicator that both recorded"


def test_nothing_is_said_of_clocks_that_are_not_aligned() -> None:
    first, other = one_rank(0, [MS, 2 * MS], utc=10**18), one_rank(1, [MS, 2 * MS], utc=10**18 + 7)

    trace = together(first, other)

    assert offsets(trace) == [(0, -1), (0, -1)]
    (warning,) = trace.meta.warnings
    assert warning == (
        "clocks of the ranks are not aligned (each trace's own absolute times are used): times of different ranks are "
        "not comparable (rank 1: 2 collectives match, 3 are needed)"
    )
    found = find_arrivals(trace)
    assert (len(found), found.left_out) == (0, {NOT_ALIGNED: 2})


def test_a_rank_that_cannot_be_aligned_is_named() -> None:
    times = [MS, 2 * MS, 3 * MS]
    traces = [one_rank(0, times), one_rank(1, times), one_rank(2, times[:2])]
    trace = together(*traces)
    assert offsets(trace) == [(0, 0), (0, 0), (0, -1)]
    (warning,) = trace.meta.warnings
    assert warning.startswith("clocks of some ranks are not aligned (each trace begins at 0)")
    assert "(rank 2: one recorded 3 and the other 2 collectives (all_reduce)" in warning
    assert find_arrivals(trace).left_out == {NOT_ALIGNED: 3}


def test_no_time_below_the_error_is_said() -> None:
    first = ranks([(10_000, 50_000), (110_000, 150_000), (210_000, 250_000)])
    # The ends differ by 100,000, 99,000 and 96,000 ns: the second clock is 99,000 ns ahead, known to 2,000.
    other = ranks([(110_500, 150_000), (211_000, 249_000), (330_000, 346_000)], first_rank=1)

    found = find_arrivals(together(first, other))

    assert found.error_ns.tolist() == [2_000] * 3
    # It came 1,500, 2,000 and 21,000 ns after the first.
    assert found.wait_ns.tolist() == [-1, 2_000, 21_000]
    assert found.last.tolist() == [-1, -1, 1]
    assert found.transfer_ns.tolist() == [39_500, 38_000, 19_000]


def test_uneven_and_impossible_matches_are_left_out() -> None:
    found = find_arrivals(ranks([(0, 10), (20, 30)], [(0, 10)]))
    assert (len(found), found.left_out) == (0, {UNEVEN: 2})
    found = find_arrivals(ranks([(0, 10), (20, 30)], [(0, 10), (40, 50)]))
    assert (len(found), found.left_out) == (1, {APART: 1})


def test_several_gpus_of_one_capture() -> None:
    """The first stands for all; what they hold in different numbers is of no use."""
    even = ends_of(ranks([(0, 10), (20, 30)], [(5, 11), (25, 31)]), 7)
    assert (even.base_ns, even.end.tolist()) == (7, [10, 30])
    assert len(ends_of(ranks([(0, 10), (20, 30)], [(5, 11)]), 0).end) == 0


def test_two_captures_of_a_rank_have_one_clock() -> None:
    first, later = (replace(one_rank(0, [MS, 2 * MS]), meta=RunMeta("built", origin_ns=at)) for at in (0, 10 * MS))
    other = one_rank(1, [3 * MS, 4 * MS, 13 * MS, 14 * MS])
    parts = [Part(Path("a"), first, rank=0), Part(Path("b"), later, 0, rank=0), Part(Path("c"), other, rank=1)]
    trace = merge_traces(parts, "built", "all")
    assert offsets(trace) == [(0, 0), (-2 * MS, 0)]
    found = find_arrivals(trace)
    assert (found.end_ns - found.end_ns[0]).tolist() == [0, MS, 10 * MS, 11 * MS]
    assert found.wait_ns.tolist() == [0] * 4


def test_an_id_of_each_collective_matches_what_both_recorded() -> None:
    """PyTorch has one for all ranks of a collective: here each rank recorded one that the other lacks."""

    def rank(number: int, ids: range, clock: int) -> Trace:
        trace = one_rank(number, [i * MS + clock for i in ids])
        table = trace.tables["collectives"]
        at = table.schema.get_field_index("communicator")
        texts = pa.array([str(9_000 + i) for i in ids], pa.string())
        made = table.set_column(at, table.schema.field(at), texts)
        return replace(trace, tables={**trace.tables, "collectives": made})

    trace = together(rank(0, range(1, 7), 0), rank(1, range(2, 8), 500_000))
    assert offsets(trace) == [(0, 0), (-500_000, 0)]
    found = find_arrivals(trace)
    assert (len(found), found.wait_ns.tolist(), found.left_out) == (5, [0] * 5, {})


def test_as_a_plain_loop_would_measure_them() -> None:
    rng = np.random.default_rng(11)
    members = []
    for _ in range(5):
        arrival = np.arange(40) * 1_000 + rng.integers(0, 300, 40)
        members.append([(int(at), int(i * 1_000 + 400 + rng.integers(0, 50))) for i, at in enumerate(arrival)])
    found = find_arrivals(ranks(*members))
    for i in range(40):
        starts, ended = zip(*(rows[i] for rows in members), strict=True)
        at = int(np.flatnonzero(found.number == i)[0])
        last = [member for member in range(5) if starts[member] == max(starts)]
        assert found.wait_ns[at] == max(starts) - min(starts)
        assert found.waited_ns[at] == sum(max(starts) - start for start in starts)
        assert found.transfer_ns[at] == max(ended) - max(starts)
        assert found.last[at] == (last[0] if len(last) == 1 else -1)
        mine = found.of == at
        assert dict(zip(found.member[mine].tolist(), found.member_wait_ns[mine].tolist(), strict=True)) == {
            member: max(starts) - start for member, start in enumerate(starts)
        }


def test_messages_and_broadcasts_match_nothing() -> None:
    for operation in ("broadcast", "send", "recv", "send_recv", "reduce", ""):
        trace = ranks([(0, 10)], [(0, 10)], operation=operation)
        assert len(number_collectives(trace)) == 0
        assert len(ends_of(trace, 0).end) == 0


def test_without_a_communicator_the_name_stands_for_it() -> None:
    trace = ranks([(0, 10), (20, 30)], [(5, 10), (20, 30)], communicator="")
    assert number_collectives(trace).labels.to_pylist() == [
        {"communicator": "", "operation": "all_reduce", "name": "ncclDevKernel_AllReduce"}
    ]
    found = find_arrivals(trace)
    assert (found.wait_ns.tolist(), found.last.tolist()) == ([5, 0], [1, -1])


def test_a_trace_without_collectives_has_no_arrivals() -> None:
    found: Arrivals = find_arrivals(ranks([], []))
    assert (len(found), found.left_out, stragglers(found)) == (0, {}, [])


def test_a_wait_for_peers_is_a_part_of_the_busy_time_of_each_device() -> None:
    facts = collective_facts(Analysis(straggling()))
    assert facts is not None
    # Three devices are busy 51 ms a collective and wait 50 of them; the last one to come is busy for 1 ms.
    assert [(w["number"], w["wait_ns"]) for w in facts["waits"]] == [(d, 500 * MS) for d in range(3)] + [(3, 0)]
    assert [w["share_of_busy"] for w in facts["waits"]] == [pytest.approx(50 / 51)] * 3 + [0.0]
