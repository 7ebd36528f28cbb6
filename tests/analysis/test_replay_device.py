"""What the start of device work waits for: one trace for each kind of constraint, re-timed by hand."""

from typing import Any

from profkit.analysis.replay import edits
from profkit.testing import call, copy, event_record, graph, kernel, launch, stream_wait


def test_a_kernel_starts_as_long_after_the_return_of_its_call_as_recorded(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=10_000),
        launch("b", at=30_000, start=38_000, dur=10_000),
    )
    assert found.edges("launch") == [("call 0 end", "op 0 start", 4_000), ("call 1 end", "op 1 start", 3_000)]
    # 3,000 less in the first call: everything is 3,000 earlier.
    changed = found.own({0: 2_000})
    assert found.calls(changed) == [(0, 2_000), (27_000, 32_000)]
    assert found.ops(changed) == [(6_000, 16_000), (35_000, 45_000)]


def test_a_kernel_that_starts_inside_of_its_call_is_counted_from_the_start_of_the_call(model_of: Any) -> None:
    found = model_of(launch("a", at=0, start=6_000, dur=3_000, call_dur=10_000), call(15_000, 2_000))
    assert found.edges("launch") == [("call 0 start", "op 0 start", 6_000)]
    changed = found.own({0: 20_000})
    assert found.calls(changed) == [(0, 20_000), (25_000, 27_000)]
    assert found.ops(changed) == [(6_000, 9_000)]


def test_kernels_of_a_stream_follow_each_other(model_of: Any) -> None:
    found = model_of(
        launch("a", at=0, start=9_000, dur=100_000),
        launch("b", at=10_000, start=111_000, dur=10_000),
    )
    assert found.edges("stream") == [("op 0 end", "op 1 start", 2_000)]
    # The launch of b allows a start after what is usual on an idle stream here: 4,000 behind its return.
    assert found.edges("launch") == [("call 0 end", "op 0 start", 4_000), ("call 1 end", "op 1 start", 4_000)]
    assert found.ops(found.length({0: 50_000})) == [(9_000, 59_000), (61_000, 71_000)]
    assert found.ops(found.length({0: 0})) == [(9_000, 9_000), (19_000, 29_000)]


def test_a_kernel_that_begins_before_the_one_before_it_ends_is_as_far_through_it_as_recorded(model_of: Any) -> None:
    """Programmatic dependent launch: 91,000 of 100,000 ns."""
    found = model_of(
        launch("a", at=0, start=9_000, dur=100_000),
        launch("b", at=10_000, start=100_000, dur=50_000),
    )
    assert found.edges("stream") == [("op 0 start", "op 1 start", 91_000)]
    assert found.ops(found.own({0: 3_000})) == [(7_000, 107_000), (98_000, 148_000)]
    assert found.ops(found.length({0: 50_000})) == [(9_000, 59_000), (54_500, 104_500)]


def _two_streams_and_an_event(record: int, waited: int) -> list[Any]:
    """b on stream 8 waits for an event that was recorded behind a on stream 7; then c, and the event again."""
    return [
        *launch("a", at=0, start=9_000, dur=100_000),
        call(6_000, 2_000, "cudaEventRecord", correlation=901),
        event_record(6_000, 1, record=record, correlation=901),
        *launch("c", at=9_000, start=110_000, dur=200_000),
        call(15_000, 2_000, "cudaEventRecord", correlation=902),
        event_record(15_000, 1, record=record + 1 if record >= 0 else -1, correlation=902),
        call(18_000, 2_000, "cudaStreamWaitEvent", correlation=903),
        stream_wait(18_000, 1, record=waited, correlation=903, stream=8),
        *launch("b", at=21_000, start=111_000, dur=10_000, stream=8),
    ]


def test_an_event_of_another_stream_holds_the_first_operation_behind_the_wait(model_of: Any) -> None:
    found = model_of(*_two_streams_and_an_event(record=1, waited=1))
    assert found.edges("event") == [("op 0 end", "op 2 start", 2_000)]
    assert found.ops(found.length({0: 50_000})) == [(9_000, 59_000), (60_000, 260_000), (61_000, 71_000)]
    # Without a the launch of b is what it waits for: 26,000, and 4,000 as is usual here.
    assert found.ops(found.length({0: 0}))[2] == (30_000, 40_000)


def test_an_event_without_the_number_of_its_record_is_the_latest_one(model_of: Any) -> None:
    """The latest record is that behind c, which had not ended when b began: then it explains nothing."""
    found = model_of(*_two_streams_and_an_event(record=-1, waited=-1))
    assert found.edges("event") == []
    # Without the second record, the first one is the latest.
    found = model_of(*_two_streams_and_an_event(record=-1, waited=-1)[:4], *_two_streams_and_an_event(-1, -1)[7:])
    assert found.edges("event") == [("op 0 end", "op 1 start", 2_000)]


def _behind(end: int) -> list[Any]:
    """b at 160,000 on stream 8, launched long before; a on stream 7 until ``end``; launches take 4,000 as a rule."""
    return [
        launch("warm", at=0, start=9_000, dur=1_000, stream=8),
        launch("warm", at=20_000, start=29_000, dur=1_000, stream=8),
        launch("a", at=50_000, start=59_000, dur=end - 59_000),
        launch("b", at=60_000, start=160_000, dur=10_000, stream=8),
    ]


def test_what_begins_behind_an_operation_and_is_explained_by_nothing_recorded_waits_for_it(model_of: Any) -> None:
    found = model_of(*_behind(159_000))
    assert found.edges("inferred") == [("op 2 end", "op 3 start", 1_000)]
    assert found.ops(found.length({2: 50_000}))[2:] == [(59_000, 109_000), (110_000, 120_000)]
    # 4,000 behind the return of its call at the soonest.
    assert found.ops(found.length({2: 1_000}))[2:] == [(59_000, 60_000), (69_000, 79_000)]


def test_what_ended_too_long_before_explains_nothing(model_of: Any) -> None:
    found = model_of(*_behind(139_000))
    assert found.edges("inferred") == []
    assert found.edges("stream") == [("op 0 end", "op 1 start", 1_000), ("op 1 end", "op 3 start", 1_000)]
    # Then its own lag behind its call is all that is known: 95,000.
    assert found.edges("launch")[3] == ("call 3 end", "op 3 start", 95_000)
    assert found.ops(found.length({2: 1_000}))[2:] == [(59_000, 60_000), (160_000, 170_000)]


def _two_uploads() -> list[Any]:
    """Two threads with a pinned upload each, on streams of their own: the second one waits for the copy engine."""
    return [
        call(0, 500, "cudaStreamCreate", tid=102),
        call(1_000, 5_000, "cudaMemcpyAsync", correlation=1, tid=101),
        copy(10_000, 50_000, "h2d", 1_000_000, "pinned", "device", correlation=1, stream=8),
        call(7_000, 5_000, "cudaMemcpyAsync", correlation=2, tid=102),
        copy(60_000, 50_000, "h2d", 1_000_000, "pinned", "device", correlation=2, stream=9),
    ]


def test_copies_of_two_streams_share_an_engine(model_of: Any) -> None:
    found = model_of(*_two_uploads())
    assert found.model.shared_engine
    assert found.edges("engine") == [("op 0 end", "op 1 start", 0)]
    assert found.ops(found.length({0: 20_000})) == [(10_000, 30_000), (30_000, 80_000)]
    # Where the engine is free the second one starts 4,000 behind the return of its call, as the first one does.
    assert found.ops(found.length({0: 0})) == [(10_000, 10_000), (16_000, 66_000)]


def test_an_engine_serves_what_is_ready_first(model_of: Any) -> None:
    found = model_of(*_two_uploads())
    # The first call returns at 26,000, its copy is ready at 30,000; that of the second one at 16,000.
    assert found.ops(found.own({0: 25_000})) == [(66_000, 116_000), (16_000, 66_000)]


def test_an_engine_that_was_seen_to_run_two_copies_at_once_holds_nothing(model_of: Any) -> None:
    *rows, _ = _two_uploads()
    found = model_of(*rows, copy(16_000, 50_000, "h2d", 1_000_000, "pinned", "device", correlation=2, stream=9))
    assert found.edges("engine") == []
    assert not found.model.shared_engine
    assert found.ops(found.length({0: 90_000})) == [(10_000, 100_000), (16_000, 66_000)]


def test_directions_have_engines_of_their_own(model_of: Any) -> None:
    *rows, _ = _two_uploads()
    found = model_of(*rows, copy(60_000, 50_000, "d2h", 1_000_000, "device", "pinned", correlation=2, stream=9))
    assert found.edges("engine") == []
    assert found.ops(found.own({0: 25_000}))[0] == (30_000, 80_000)


def test_a_copy_that_nothing_else_holds_stays_and_others_wait_for_it(model_of: Any) -> None:
    """Without a call, and first of its stream: 30,000 behind the copy before it on the engine."""
    found = model_of(*_two_uploads()[:3], copy(90_000, 50_000, "h2d", 1_000_000, "pinned", "device", stream=9))
    assert found.edges("engine") == []
    assert found.ops(found.length({0: 20_000})) == [(10_000, 30_000), (90_000, 140_000)]
    assert found.ops(found.length({0: 85_000})) == [(10_000, 95_000), (90_000, 140_000)]


def test_the_kernels_of_a_collective_end_after_the_last_rank_came(model_of: Any) -> None:
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    found = model_of(
        launch(name, at=0, start=9_000, dur=51_000, pid=1, tid=1),
        call(0, 20_000, "cudaStreamCreate", pid=2, tid=2),
        launch(name, at=30_000, start=40_000, dur=20_000, pid=2, tid=2, device=1),
    )
    assert found.edges("peer") == [("op 0 start", "op 1 end", 20_000), ("op 1 start", "op 0 end", 20_000)]
    # The second rank comes at 25,000 instead of 40,000: the transfer takes 20,000 as recorded, on both.
    assert found.ops(found.own({1: 5_000})) == [(9_000, 45_000), (25_000, 45_000)]
    # And before the first one: then the first one is the last.
    assert found.ops(edits.with_gap(found.own({1: 0}), 2, -5_000)) == [(9_000, 29_000), (5_000, 29_000)]


def test_collectives_that_do_not_meet_keep_their_length(model_of: Any) -> None:
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    found = model_of(
        launch(name, at=0, start=9_000, dur=10_000, pid=1, tid=1),
        launch(name, at=30_000, start=40_000, dur=20_000, pid=2, tid=2, device=1),
    )
    assert found.edges("peer") == []
    assert found.model.dur.tolist() == [10_000, 20_000]


def test_rows_without_calls_follow_their_stream_and_the_first_one_stays(model_of: Any) -> None:
    found = model_of(kernel(10_000, 20_000), kernel(35_000, 5_000), kernel(12_000, 4_000, stream=8))
    assert found.edges("launch") == []
    assert found.edges("stream") == [("op 0 end", "op 2 start", 5_000)]
    assert found.ops(found.length({0: 8_000})) == [(10_000, 18_000), (12_000, 16_000), (23_000, 28_000)]


def test_rows_of_no_length_at_one_instant_keep_their_order(model_of: Any) -> None:
    """At one instant the longest row comes first; what begins before it has ended is counted from its start."""
    found = model_of(
        call(0, 0, correlation=1), kernel(0, 7, correlation=1),
        call(0, 0, correlation=2), kernel(0, 0, correlation=2), kernel(0, 0, correlation=2),
        call(0, 5, "cudaStreamSynchronize"),
    )  # fmt: skip
    assert found.edges("stream") == [("op 0 start", "op 1 start", 0), ("op 1 end", "op 2 start", 0)]
    assert found.ops(found.length({1: 3})) == [(0, 7), (0, 3), (3, 3)]


def test_a_graph_launch_recorded_as_one_piece_is_an_operation_as_others(model_of: Any) -> None:
    found = model_of(
        call(0, 8_000, "cudaGraphLaunch", correlation=1), graph(14_000, 100_000, correlation=1),
        call(20_000, 8_000, "cudaGraphLaunch", correlation=2), graph(115_000, 100_000, correlation=2),
    )  # fmt: skip
    assert found.ops(found.length({0: 40_000})) == [(14_000, 54_000), (55_000, 155_000)]
    assert found.ops(found.own({0: 3_000})) == [(9_000, 109_000), (110_000, 210_000)]


def test_the_nodes_of_a_graph_are_submitted_by_one_call(model_of: Any) -> None:
    """Two branches: n1 and n3 on one stream, n2 beside them; n4 joins them. No table says so."""
    found = model_of(
        call(0, 8_000, "cudaGraphLaunch", correlation=1),
        kernel(14_000, 9_000, "n0", correlation=1, graph_node=0),
        kernel(24_000, 9_000, "n1", correlation=1, graph_node=1),
        kernel(24_000, 30_000, "n2", correlation=1, graph_node=2, stream=8),
        kernel(34_000, 9_000, "n3", correlation=1, graph_node=3),
        kernel(55_000, 5_000, "n4", correlation=1, graph_node=4),
    )  # fmt: skip
    # At one instant the longest comes first: n2 is 1, n1 is 2.
    assert found.edges("inferred") == [("op 0 end", "op 1 start", 1_000), ("op 1 end", "op 4 start", 1_000)]
    moved = [(start - 2_000, end - 2_000) for start, end in found.recorded_ops]
    assert found.ops(found.own({0: 6_000})) == moved
    assert found.ops(found.length({1: 1_000}))[4] == (44_000, 49_000)
