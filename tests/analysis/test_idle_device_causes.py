"""Idle time behind the call: launch latency, graph start-up, events of other streams, and what nothing explains."""

import pyarrow as pa

from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import EVERY
from profkit.model import Trace
from profkit.schema import STREAM_KINDS
from profkit.testing import Row, build_trace, call, event_record, kernel, launch, stream_wait

Piece = tuple[int, int, str]


def _pieces(*rows: Row | list[Row], device: int = 0) -> list[Piece]:
    """(start, end, cause) of the idle time of a device between its first and its last row, in order of time."""
    idle = Analysis(build_trace(*rows)).idle
    pieces = idle.pieces
    columns = zip(pieces.device, pieces.gap, pieces.start, pieces.end, pieces.cause, strict=True)
    found = [(int(start), int(end), EVERY[cause]) for d, gap, start, end, cause in columns if d == device and gap >= 0]
    return sorted(found)


def test_without_a_call_the_cause_is_unknown() -> None:
    assert _pieces(kernel(0, 100), call(110, 50, "cudaStreamSynchronize"), kernel(200, 10)) == [(100, 200, "unknown")]


def test_behind_the_call_it_is_launch_latency() -> None:
    pieces = _pieces(kernel(0, 100), launch("b", at=150, start=200, dur=10, call_dur=20))
    assert pieces == [(100, 150, "python"), (150, 170, "launch_call"), (170, 200, "launch_latency")]


def test_work_that_was_queued_before_the_gap_is_the_devices_own_delay() -> None:
    pieces = _pieces(
        launch("a", at=0, start=10, dur=5_000_000, call_dur=5), launch("b", at=20, start=5_002_010, dur=10, call_dur=5)
    )
    assert pieces == [(5_000_010, 5_002_010, "launch_latency")]


def test_a_long_delay_behind_the_call_is_unknown() -> None:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows += launch("k", at=t, start=t + 10_000, dur=500_000, call_dur=5_000)
    # Median latency 5 us: up to 100 us can be launch latency.
    rows += launch("late", at=5_000_000, start=5_105_001, dur=10, call_dur=5_000)
    assert _pieces(*rows)[-1] == (5_005_000, 5_105_001, "unknown")
    rows[-1] = kernel(5_105_000, 10, correlation=int(rows[-2].values["correlation"]))
    assert _pieces(*rows)[-1] == (5_005_000, 5_105_000, "launch_latency")


def test_on_a_slow_machine_launch_latency_is_longer() -> None:
    rows = []
    for i in range(6):
        t, latency = i * 10_000_000, 60_000 if i < 5 else 600_000
        rows += launch("k", at=t, start=t + 5_000 + latency, dur=500_000, call_dur=5_000)
    assert _pieces(*rows)[-1] == (50_005_000, 50_605_000, "launch_latency")
    rows += launch("k", at=60_000_000, start=60_605_001, dur=500_000, call_dur=5_000)
    assert _pieces(*rows)[-1] == (60_005_000, 60_605_001, "unknown")


def test_the_first_operation_of_a_graph_launch_is_graph_startup() -> None:
    rows = [kernel(0, 100), call(150, 20, "cudaGraphLaunch", correlation=5)]
    rows += [kernel(200, 50, correlation=5, graph_node=1), kernel(253, 50, correlation=5, graph_node=2)]
    assert _pieces(*rows) == [
        (100, 150, "python"),
        (150, 170, "launch_call"),
        (170, 200, "graph_startup"),
        (250, 253, "launch_latency"),
    ]


def test_each_first_operation_of_a_graph_launch_on_its_device() -> None:
    rows = [kernel(0, 100), kernel(0, 100, device=1), call(90, 5, "cudaGraphLaunch", correlation=5)]
    rows += [kernel(120, 50, correlation=5, graph_node=1), kernel(130, 50, correlation=5, graph_node=2, device=1)]
    assert _pieces(*rows) == [(100, 120, "graph_startup")]
    assert _pieces(*rows, device=1) == [(100, 130, "graph_startup")]


def test_graph_startup_has_a_limit_too() -> None:
    rows = [kernel(0, 100), call(50, 20, "cudaGraphLaunch", correlation=5), kernel(1_000_101, 50, correlation=5)]
    assert _pieces(*rows) == [(100, 1_000_101, "unknown")]


def _two_devices(*rows: Row, second: int = 500) -> list[Row]:
    """Device 0 works until 100 and again from ``second``; an operation of device 1 takes [20, 400)."""
    return [
        *launch("first", at=0, start=10, dur=90, call_dur=5),
        *launch("other", at=10, start=20, dur=380, call_dur=5, device=1, stream=9),
        *rows,
        *launch("second", at=60, start=second, dur=10, call_dur=5),
    ]


def test_an_event_of_another_device_holds_the_stream() -> None:
    rows = [
        call(20, 3, "cudaEventRecord", correlation=31),
        event_record(20, 1, record=77, correlation=31, device=1, stream=9),
        call(30, 3, "cudaStreamWaitEvent", correlation=32),
        stream_wait(30, 1, record=77, correlation=32),
    ]
    # The event stands for the operation of device 1 that ends at 400; from there it is on its way until 500.
    assert _pieces(*_two_devices(*rows)) == [(100, 500, "event_wait")]
    # What comes long after the end of that operation is no part of the wait.
    assert _pieces(*_two_devices(*rows, second=100_401)) == [(100, 400, "event_wait"), (400, 100_401, "unknown")]


def test_behind_an_event_that_came_to_pass_while_the_host_was_late_it_is_launch_latency() -> None:
    rows = [*launch("first", at=0, start=10, dur=90, call_dur=5)]
    rows += launch("other", at=10, start=20, dur=280, call_dur=5, device=1, stream=9)
    rows += [event_record(20, 1, record=77, device=1, stream=9), stream_wait(30, 1, record=77)]
    rows += launch("second", at=250, start=400, dur=10, call_dur=100)
    assert _pieces(*rows) == [(100, 250, "python"), (250, 350, "launch_call"), (350, 400, "launch_latency")]
    # With a shorter call the device had the operation before the event came to pass at 300.
    rows[-2:] = launch("second", at=250, start=400, dur=10, call_dur=20)
    assert _pieces(*rows) == [(100, 250, "python"), (250, 270, "launch_call"), (270, 400, "event_wait")]


def test_an_event_without_the_id_of_its_record_is_the_last_one_before_the_wait() -> None:
    rows = [
        event_record(5, 1, device=1, stream=9),  # before the operation was submitted: stands for nothing
        event_record(20, 1, device=1, stream=9),
        stream_wait(30, 1),
        event_record(40, 1, device=1, stream=9),
    ]
    assert _pieces(*_two_devices(*rows)) == [(100, 500, "event_wait")]
    assert _pieces(*_two_devices(rows[0], stream_wait(8, 1))) == [(100, 500, "launch_latency")]


def test_an_event_with_a_time_of_the_device_says_itself_when_it_came_to_pass() -> None:
    rows = [event_record(350, 1, record=77, device=1, stream=9, on_device=True), stream_wait(30, 1, record=77)]
    pieces = _pieces(*_two_devices(*rows, second=100_401))
    assert pieces == [(100, 350, "event_wait"), (350, 100_401, "unknown")]


def test_a_wait_before_the_previous_operation_holds_nothing_now() -> None:
    early = [event_record(15, 1, record=77, device=1, stream=9), stream_wait(0, 1, record=77)]
    assert _pieces(*_two_devices(*early)) == [(100, 500, "launch_latency")]


def test_of_an_event_of_the_same_device_what_is_left_is_the_way_to_the_other_stream() -> None:
    rows = [kernel(0, 60), *launch("side", at=1, start=5, dur=95, call_dur=2, stream=8)]
    rows += [event_record(10, 1, record=3, stream=8), stream_wait(15, 1, record=3)]
    rows += launch("after", at=20, start=103, dur=10, call_dur=2)
    assert _pieces(*rows) == [(100, 103, "event_wait")]


def test_an_event_that_came_to_pass_before_the_own_stream_was_free_held_nothing() -> None:
    rows = [*launch("own", at=0, start=2, dur=98, call_dur=1)]
    rows += launch("side", at=1, start=5, dur=50, call_dur=2, stream=8)
    rows += [event_record(10, 1, record=3, stream=8), stream_wait(15, 1, record=3)]
    rows += launch("after", at=20, start=103, dur=10, call_dur=2)
    assert _pieces(*rows) == [(100, 103, "launch_latency")]


def _with_stream_kinds(trace: Trace, kinds: dict[int, str]) -> Trace:
    """The trace with kinds of its streams by their ids."""
    tracks = trace.tables["tracks"]
    codes = [STREAM_KINDS.index(kinds[s]) if s in kinds else -1 for s in tracks.column("stream").to_pylist()]
    at = tracks.column_names.index("stream_kind")
    field = tracks.schema.field("stream_kind")
    changed = tracks.set_column(at, field, pa.chunked_array([pa.array(codes, field.type)]))
    return Trace(trace.meta, {**trace.tables, "tracks": changed}, trace.missing, trace.windows)


def test_the_legacy_default_stream_and_blocking_streams_wait_for_each_other() -> None:
    rows = [*launch("side", at=0, start=5, dur=95, call_dur=2, stream=8)]
    rows += launch("default", at=10, start=103, dur=47, call_dur=2, stream=7)
    rows += launch("side", at=20, start=155, dur=10, call_dur=2, stream=8)
    for kind, cause in (("default", "event_wait"), ("non_blocking", "launch_latency")):
        trace = _with_stream_kinds(build_trace(*rows), {7: "null", 8: kind})
        idle = Analysis(trace).idle
        assert {cause: ns for cause, ns in idle.by_cause().items() if ns} == {cause: 3 + 5}


def test_without_event_tables_a_wait_call_and_an_end_right_before_say_so() -> None:
    wait = call(30, 3, "cudaStreamWaitEvent")
    assert _pieces(*_two_devices(wait)) == [(100, 500, "event_wait")]
    # Long after the end of the other operation it was not that which held the stream.
    assert _pieces(*_two_devices(wait, second=200_401)) == [(100, 200_401, "unknown")]
    # The call of another thread, or one before the previous operation, says nothing of this one.
    for other in (call(30, 3, "cudaStreamWaitEvent", tid=5), call(-8, 3, "cudaStreamWaitEvent")):
        assert _pieces(*_two_devices(other))[0][2] == "launch_latency"
    # Nor does the end of an operation of the same stream, or of another process.
    rows = [*launch("first", at=0, start=10, dur=90, call_dur=5), wait]
    rows += [kernel(20, 380, pid=5, device=1), *launch("second", at=60, start=500, dur=10, call_dur=5)]
    assert _pieces(*rows) == [(100, 500, "launch_latency")]
