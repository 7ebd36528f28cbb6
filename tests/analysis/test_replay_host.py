"""What calls of the host wait for: one trace for each kind of wait, re-timed by hand to the nanosecond."""

from typing import Any

import pytest

from profkit.analysis.replay import edits
from profkit.schema import SYNC_KINDS
from profkit.testing import Row, call, copy, event_record, kernel, launch, span, sync


def sync_of(
    kind: str, start: int, dur: int, correlation: int, stream: int = 7, event: int = -1, record: int = -1
) -> Row:
    """A synchronisation record of a stream, as the driver reports it."""
    values = {
        "start_ns": start, "dur_ns": dur, "kind": SYNC_KINDS.index(kind), "correlation": correlation, "event": event,
        "event_sync": record,
    }  # fmt: skip
    return Row("syncs", (100, 0, stream), "", values)


def _two_streams(name: str, end: int, *rows: Row) -> list[Any]:
    """a on stream 7 until 109,000, b on stream 8 until 140,000, a wait of the host until ``end``, and c behind it."""
    return [
        launch("a", at=0, start=9_000, dur=100_000),
        launch("b", at=10_000, start=19_000, dur=121_000, stream=8),
        call(20_000, end - 20_000, name, correlation=900),
        *rows,
        launch("c", at=end + 10_000, start=end + 19_000, dur=10_000),
    ]


def test_a_stream_synchronisation_returns_after_the_last_work_of_its_stream(model_of: Any) -> None:
    found = model_of(*_two_streams("cudaStreamSynchronize", 115_000, sync_of("stream", 20_000, 95_000, 900)))
    assert found.edges("wait") == [("op 0 end", "call 2 end", 6_000)]
    changed = found.length({0: 50_000})
    assert found.calls(changed)[2:] == [(20_000, 65_000), (75_000, 80_000)]
    assert found.ops(changed) == [(9_000, 59_000), (19_000, 140_000), (84_000, 94_000)]
    # A call that waits for nothing takes 3,000, where a trace has none to measure.
    assert found.calls(edits.without_waits(found.model, 2))[2:] == [(20_000, 23_000), (33_000, 38_000)]
    # c is then behind a in its stream: 1,000, where a trace has no two kernels that follow each other.
    assert found.ops(edits.without_waits(found.model, 2))[2] == (110_000, 120_000)
    assert found.calls(edits.without_calls(found.model, 2))[2:] == [(20_000, 20_000), (30_000, 35_000)]


def test_a_stream_synchronisation_without_its_record_is_for_what_ended_last(model_of: Any) -> None:
    """The export holds no row that names the stream: b ended last before the call did."""
    found = model_of(*_two_streams("cudaStreamSynchronize", 146_000))
    assert found.edges("wait") == [("op 1 end", "call 2 end", 6_000)]
    assert found.calls(found.length({1: 21_000}))[2] == (20_000, 46_000)
    # b still runs when the call returns: it was for a.
    found = model_of(*_two_streams("cudaStreamSynchronize", 115_000))
    assert found.edges("wait") == [("op 0 end", "call 2 end", 6_000)]


def test_a_device_synchronisation_waits_for_every_stream(model_of: Any) -> None:
    found = model_of(*_two_streams("cudaDeviceSynchronize", 146_000, sync(20_000, 126_000, "context")))
    assert found.edges("wait") == [("op 0 end", "call 2 end", 6_000), ("op 1 end", "call 2 end", 6_000)]
    assert found.calls(found.length({1: 50_000}))[2:] == [(20_000, 115_000), (125_000, 130_000)]
    assert found.calls(found.length({0: 1_000, 1: 1_000}))[2] == (20_000, 26_000)


def test_other_processes_are_not_waited_for(model_of: Any) -> None:
    other = launch("b", at=10_000, start=19_000, dur=90_000, pid=200, tid=200, device=1)
    found = model_of(
        launch("a", at=0, start=9_000, dur=50_000), other, call(20_000, 45_000, "cudaDeviceSynchronize")
    )  # fmt: skip
    assert found.edges("wait") == [("op 0 end", "call 1 end", 6_000)]


def _event_wait(end: int, records: tuple[int, int], waited: int | None) -> list[Any]:
    """Event 1 behind a (until 59,000), recorded again behind b (until 160,000); the host waits for it until ``end``."""
    row = [] if waited is None else [sync_of("event", 25_000, end - 25_000, 903, event=1, record=waited)]
    return [
        launch("a", at=0, start=9_000, dur=50_000),
        call(6_000, 2_000, "cudaEventRecord", correlation=901),
        event_record(6_000, 1, record=records[0], correlation=901),
        launch("b", at=10_000, start=60_000, dur=100_000),
        call(16_000, 2_000, "cudaEventRecord", correlation=902),
        event_record(16_000, 1, record=records[1], correlation=902),
        call(25_000, end - 25_000, "cudaEventSynchronize", correlation=903), *row,
        launch("c", at=end + 10_000, start=end + 19_000 if end > 100_000 else 170_000, dur=10_000),
    ]  # fmt: skip


def test_an_event_synchronisation_waits_for_the_record_that_it_names(model_of: Any) -> None:
    found = model_of(*_event_wait(64_000, (1, 2), 1))
    assert found.edges("wait") == [("op 0 end", "call 4 end", 5_000)]
    assert found.calls(found.length({0: 30_000}))[4:] == [(25_000, 44_000), (54_000, 59_000)]


def test_an_event_synchronisation_without_numbers_waits_for_the_latest_record(model_of: Any) -> None:
    found = model_of(*_event_wait(165_000, (-1, -1), -1))
    assert found.edges("wait") == [("op 1 end", "call 4 end", 5_000)]
    assert found.calls(found.length({1: 50_000}))[4:] == [(25_000, 115_000), (125_000, 130_000)]


def test_an_event_synchronisation_without_its_event_is_for_what_ended_inside_of_it(model_of: Any) -> None:
    found = model_of(*_event_wait(64_000, (-1, -1), None))
    assert found.edges("wait") == [("op 0 end", "call 4 end", 5_000)]
    found = model_of(*_event_wait(165_000, (-1, -1), None))
    assert found.edges("wait") == [("op 1 end", "call 4 end", 5_000)]


def test_a_synchronisation_that_found_the_work_done_waits_for_nothing(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=11_000),
        call(40_000, 2_000, "cudaStreamSynchronize"),
        launch("b", at=50_000, start=59_000, dur=10_000),
    )
    assert found.calls(found.length({0: 1_000})) == found.recorded_calls
    # It would wait for longer work: 4,000 to wake up, where a trace has no wait to measure.
    assert found.calls(found.length({0: 91_000}))[1:] == [(40_000, 104_000), (112_000, 117_000)]


def test_a_download_into_pageable_memory_returns_when_it_is_done(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=100_000),
        call(10_000, 120_000, "cudaMemcpyAsync", correlation=1),
        copy(110_000, 15_000, "d2h", 8, "device", "pageable", correlation=1),
        launch("b", at=140_000, start=149_000, dur=10_000),
    )
    assert found.edges("wait") == [("op 1 end", "call 1 end", 5_000)]
    changed = found.length({0: 50_000})
    assert found.ops(changed) == [(9_000, 59_000), (60_000, 75_000), (99_000, 109_000)]
    assert found.calls(changed)[1:] == [(10_000, 80_000), (90_000, 95_000)]


def test_a_copy_whose_kind_of_call_once_returned_before_it_was_done_waits_for_nothing(model_of: Any) -> None:
    """Eight bytes to pinned memory on an idle device are there before the call returns, by chance."""
    download = ("d2h", 8, "device", "pinned")
    found = model_of(
        call(0, 9_000, "cudaMemcpyAsync", correlation=1), copy(4_000, 1_000, *download, correlation=1),
        call(20_000, 9_000, "cudaMemcpyAsync", correlation=2), copy(60_000, 1_000, *download, correlation=2),
    )  # fmt: skip
    assert found.edges("wait") == []
    assert found.calls(found.length({0: 50_000})) == found.recorded_calls


def test_a_pageable_upload_returns_when_it_is_staged(model_of: Any) -> None:
    """The call returns 70,000 of 90,000 ns into the copy, which began inside of the call."""
    found = model_of(
        call(10_000, 100_000, "cudaMemcpyAsync", correlation=1),
        copy(40_000, 90_000, "h2d", 1_000_000, "pageable", "device", correlation=1),
        launch("a", at=120_000, start=140_000, dur=10_000),
    )
    assert found.edges("launch")[0] == ("call 0 start", "op 0 start", 30_000)
    assert found.edges("wait") == [("op 0 start", "call 0 end", 70_000)]
    changed = found.length({0: 45_000})
    assert found.ops(changed)[0] == (40_000, 85_000)
    assert found.calls(changed) == [(10_000, 75_000), (85_000, 90_000)]
    # From pinned memory: the call takes 4,000 and waits for nothing, the copy starts 5,000 behind it.
    pinned = edits.with_own(edits.without_waits(found.model, 0), 0, 4_000)
    pinned = edits.without_staging(pinned, [0], 5_000)
    assert found.ops(pinned)[0] == (19_000, 109_000)
    assert found.calls(pinned) == [(10_000, 14_000), (24_000, 29_000)]


def test_a_large_pageable_upload_is_staged_when_its_stream_has_run_empty(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=50_000),
        call(10_000, 90_000, "cudaMemcpyAsync", correlation=1),
        copy(105_000, 45_000, "h2d", 1_000_000, "pageable", "device", correlation=1),
    )
    assert found.edges("wait") == [("op 0 end", "call 1 end", 41_000)]
    changed = found.length({0: 25_000})
    assert found.calls(changed)[1] == (10_000, 75_000)
    assert found.ops(changed) == [(9_000, 34_000), (80_000, 125_000)]


@pytest.mark.parametrize("size", [1_000, 64 * 1024])
def test_a_small_pageable_upload_is_in_the_command(model_of: Any, size: int) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=50_000),
        call(10_000, 5_000, "cudaMemcpyAsync", correlation=1),
        copy(60_000, 5_000, "h2d", size, "pageable", "device", correlation=1),
    )
    assert found.edges("wait") == []
    assert found.ops(found.length({0: 25_000}))[1] == (35_000, 40_000)


def test_a_free_that_drains_the_device_waits_for_all_of_it(model_of: Any) -> None:
    found = model_of(*_two_streams("cudaFree", 200_000))
    # What it does behind the wait takes 60,000, whichever stream was last.
    assert found.edges("wait") == [("op 0 end", "call 2 end", 60_000), ("op 1 end", "call 2 end", 60_000)]
    assert found.calls(found.length({1: 100_000}))[2] == (20_000, 179_000)
    assert found.calls(found.length({1: 50_000}))[2] == (20_000, 169_000)
    assert found.calls(edits.without_calls(found.model, 2))[2:] == [(20_000, 20_000), (30_000, 35_000)]


def test_a_free_that_returned_while_the_device_ran_waits_for_nothing(model_of: Any) -> None:
    found = model_of(*_two_streams("cudaFree", 90_000))
    assert found.edges("wait") == []
    assert found.calls(found.length({0: 1_000, 1: 1_000})) == found.recorded_calls


def test_one_free_that_did_not_wait_speaks_for_all_of_its_name(model_of: Any) -> None:
    found = model_of(*_two_streams("cudaFree", 200_000), launch("d", at=300_000, start=309_000, dur=90_000),
                     call(310_000, 5_000, "cudaFree"))  # fmt: skip
    assert found.edges("wait") == []


def test_queries_in_a_row_end_when_the_work_is_done(model_of: Any) -> None:
    """However often the host asked: only the last query has a time, 5,000 behind the end of a."""
    found = model_of(
        launch("a", at=0, start=9_000, dur=100_000),
        [call(at, 2_000, "cudaEventQuery") for at in (20_000, 40_000, 60_000, 80_000, 100_000, 112_000)],
        launch("b", at=120_000, start=129_000, dur=10_000),
        asking=(1, 2, 3, 4, 5, 6),
    )
    assert found.edges("poll") == [("op 0 end", "call 6 end", 5_000)]
    assert found.calls()[6:] == [(20_000, 114_000), (120_000, 125_000)]
    changed = found.length({0: 50_000})
    assert found.calls(changed)[6:] == [(20_000, 64_000), (70_000, 75_000)]
    assert found.ops(changed) == [(9_000, 59_000), (79_000, 89_000)]


def test_one_query_alone_asks_and_goes_on(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=21_000),
        call(20_000, 12_000, "cudaEventQuery"),
        launch("b", at=40_000, start=49_000, dur=10_000),
    )
    assert found.edges("poll") == []
    assert found.calls(found.length({0: 1_000})) == found.recorded_calls


def _threads(*extra: Row | list[Row]) -> list[Any]:
    """Thread 101 launches a, then is silent until thread 102 has launched b, 52,000 after it."""
    return [
        call(0, 2_000, "cudaGetDevice", tid=102), call(3_000, 2_000, "cudaGetDevice", tid=102),
        call(6_000, 2_000, "cudaGetDevice", tid=102),
        call(10_000, 2_000, "cudaGetDevice", tid=101), call(13_000, 2_000, "cudaGetDevice", tid=101),
        launch("a", at=16_000, start=24_000, dur=5_000, call_dur=2_000, tid=101),
        launch("b", at=70_000, start=79_000, dur=5_000, tid=102), call(76_000, 2_000, "cudaGetDevice", tid=102),
        call(130_000, 2_000, "cudaGetDevice", tid=101),
    ]  # fmt: skip


def test_threads_that_take_turns_wait_for_each_other(model_of: Any) -> None:
    found = model_of(*_threads())
    # Calls by thread: 0 to 3 of thread 101, 4 to 8 of thread 102.
    assert ("call 2 end", "call 7 start", 52_000) in found.edges("handoff")
    assert ("call 8 end", "call 3 start", 52_000) in found.edges("handoff")
    changed = found.own({0: 12_000})
    assert found.calls(changed)[:4] == [(10_000, 22_000), (23_000, 25_000), (26_000, 28_000), (140_000, 142_000)]
    assert found.calls(changed)[7:] == [(80_000, 85_000), (86_000, 88_000)]
    assert found.ops(changed) == [(34_000, 39_000), (89_000, 94_000)]


def test_threads_that_work_at_the_same_time_take_no_turns(model_of: Any) -> None:
    busy = [call(at, 2_000, "cudaGetDevice", tid=101) for at in range(20_000, 128_000, 6_000)]
    found = model_of(*_threads(), *busy)
    assert [row for row in found.edges("handoff") if row[1] == f"call {len(found.recorded_calls) - 2} start"] == []


def test_calls_inside_of_calls_are_one(model_of: Any) -> None:
    found = model_of(
        call(0, 10_000, "cudaLaunchKernel", correlation=1),
        call(2_000, 6_000, "cuLaunchKernel", correlation=2, api="driver"),
        call(3_000, 2_000, "cuCtxGetCurrent", api="driver"), kernel(14_000, 5_000, correlation=2),
        call(20_000, 3_000, "cudaGetDevice"),
    )  # fmt: skip
    assert found.recorded_calls == [(0, 10_000), (20_000, 23_000)]
    assert found.model.calls.of.tolist() == [0, 0, 0, 1]
    assert found.edges("launch") == [("call 0 end", "op 0 start", 4_000)]
    changed = found.own({0: 7_000})
    assert found.calls(changed) == [(0, 7_000), (17_000, 20_000)]
    assert found.ops(changed) == [(11_000, 16_000)]


def test_calls_that_overlap_without_nesting_are_one(model_of: Any) -> None:
    found = model_of(
        call(0, 10_000, correlation=1), call(5_000, 10_000, correlation=2), kernel(20_000, 1, correlation=2)
    )
    assert found.recorded_calls == [(0, 15_000)]
    assert found.ops(found.own({0: 12_000})) == [(17_000, 17_001)]


def test_calls_without_device_work_are_a_trace_too(model_of: Any) -> None:
    found = model_of(call(0, 5, "cudaStreamSynchronize"), call(10, 0, "cudaFree"), span("decode", 0, 20))
    assert found.ops() == []
    assert found.calls(found.own({0: 3})) == [(0, 3), (8, 8)]
