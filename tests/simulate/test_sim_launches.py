"""Launches, streams, queues, graphs: times computed by hand from the costs in conftest.py.

A launch submits after 3,000 of its 4,000 ns and arrives 2,000 ns later: 5,000 ns after the call began.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.simulate import cuda, graphs
from profkit.simulate.host import Host, Instruction, Process, Queue
from profkit.simulate.ops import BLOCKING, NON_BLOCKING, Kernel, Meeting


def test_a_kernel_starts_when_its_launch_has_arrived(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 10_000, after=100)

    bench.run(program())
    assert bench.calls() == [("cudaLaunchKernel", 100, 4_100)]
    assert bench.times() == [(5_100, 15_100)]


def test_kernels_of_a_stream_run_in_order_with_a_gap_between(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        for dur in (10_000, 2_000, 300):
            yield cuda.launch(bench.stream, kernel, dur)

    bench.run(program())
    assert bench.times() == [(5_000, 15_000), (16_000, 18_000), (19_000, 19_300)]


def test_idle_time_of_a_launch_bound_program_is_explained_to_the_nanosecond(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield cuda.launch(bench.stream, kernel, 1_000, after=7_000)

    bench.run(program())
    # The second call is at [11,000, 15,000]; its kernel begins at 16,000, 1,000 ns after the call returned.
    assert bench.times() == [(5_000, 6_000), (16_000, 17_000)]
    assert bench.idle() == [
        (0, 6_000, 11_000, "python"),
        (0, 11_000, 15_000, "launch_call"),
        (0, 15_000, 16_000, "launch_latency"),
    ]


def test_a_kernel_may_begin_before_its_launch_has_returned(machine: Callable[..., Any], kernel: Kernel) -> None:
    bench = machine(launch_latency_ns=300)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 100)
        yield cuda.launch(bench.stream, kernel, 100)

    bench.run(program())
    assert bench.times() == [(3_300, 3_400), (7_300, 7_400)]
    assert bench.idle() == [(0, 3_400, 7_300, "launch_call")]


def test_small_kernels_of_two_streams_run_at_once_up_to_the_whole_device(bench: Any, kernel: Kernel) -> None:
    half, most = replace(kernel, share=50), replace(kernel, share=60)
    a, b, c = (bench.process.stream(NON_BLOCKING) for _ in range(3))

    def program() -> Iterator[Instruction]:
        yield cuda.launch(a, half, 20_000)
        yield cuda.launch(b, half, 20_000)
        yield cuda.launch(c, most, 5_000)

    bench.run(program())
    # The third one needs 60 %: it waits for one of the first two and has 50 % then, so for both.
    assert bench.times() == [(5_000, 25_000), (9_000, 29_000), (29_000, 34_000)]


def test_a_programmatic_dependent_launch_begins_before_its_predecessor_ends(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 40_000)
        yield cuda.launch(bench.stream, kernel, 8_000, pdl=True)
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    # It begins at three quarters of the first and does the last three quarters of its own work after that one's end.
    assert bench.times() == [(5_000, 45_000), (35_000, 51_000), (52_000, 53_000)]
    assert [name for name, _, _ in bench.calls()] == ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchKernel"]


def test_a_late_dependent_launch_begins_like_any_other(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield cuda.launch(bench.stream, kernel, 8_000, pdl=True)

    bench.run(program())
    assert bench.times() == [(5_000, 6_000), (9_000, 17_000)]


def test_a_launch_waits_while_1024_operations_of_its_stream_have_not_begun(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        for _ in range(1_027):
            yield cuda.launch(bench.stream, kernel, 10_000_000)

    bench.run(program())
    calls = bench.calls()
    # The first one has begun, so 1 + 1,024 calls pass; the next waits for the second kernel's start at 10,006,000.
    assert calls[1_024] == ("cudaLaunchKernel", 4_000 * 1_024, 4_000 * 1_025)
    assert calls[1_025] == ("cudaLaunchKernel", 4_000 * 1_025, 10_006_000 + 4_000)
    assert calls[1_026] == ("cudaLaunchKernel", 10_010_000, 20_007_000 + 4_000)
    assert bench.idle()[0] == (0, 10_005_000, 10_006_000, "launch_latency")


def test_the_null_stream_waits_for_blocking_streams_and_they_for_it(bench: Any, kernel: Kernel) -> None:
    side = bench.process.stream(BLOCKING)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(side, kernel, 50_000)
        yield cuda.launch(bench.stream, kernel, 10_000)
        yield cuda.launch(side, kernel, 1_000)

    bench.run(program())
    # Each goes on 900 ns after what it waited for.
    assert bench.times() == [(5_000, 55_000), (55_900, 65_900), (66_800, 67_800)]
    assert bench.idle() == [(0, 55_000, 55_900, "event_wait"), (0, 65_900, 66_800, "event_wait")]


def test_a_non_blocking_stream_does_not_know_the_null_stream(bench: Any, kernel: Kernel) -> None:
    side = bench.process.stream(NON_BLOCKING)
    half = replace(kernel, share=50)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, half, 50_000)
        yield cuda.launch(side, half, 10_000)

    bench.run(program())
    assert bench.times() == [(5_000, 55_000), (9_000, 19_000)]


def test_the_rule_of_the_null_stream_holds_inside_of_a_process(bench: Any, kernel: Kernel) -> None:
    half = replace(kernel, share=50)
    other = Host(Process(bench.simulation, bench.process.device, 200), 200, "other")

    def program(host: Host, stream: Any) -> Iterator[Instruction]:
        yield cuda.launch(stream, half, 10_000)

    blocking = other.process.stream(BLOCKING)
    bench.run(program(bench.host, bench.stream), (other, program(other, blocking)))
    assert bench.times() == [(5_000, 15_000), (5_000, 15_000)]


def test_a_graph_launch_is_one_call_and_one_start_up_for_all_nodes(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield graphs.begin_capture(bench.stream)
        for dur in (5_000, 3_000):
            yield cuda.launch(bench.stream, kernel, dur)
        yield graphs.end_capture(bench.stream)
        graph = bench.host.value
        yield graphs.instantiate(graph)
        yield graphs.launch_graph(bench.stream, graph)
        yield graphs.launch_graph(bench.stream, graph, [1_000, 1_000], after=30_000)

    bench.run(program())
    assert bench.calls() == [
        ("cudaStreamBeginCapture", 0, 2_000),
        ("cudaLaunchKernel", 2_000, 3_000),
        ("cudaLaunchKernel", 3_000, 4_000),
        ("cudaStreamEndCapture", 4_000, 6_000),
        ("cudaGraphInstantiate", 6_000, 28_000),
        ("cudaGraphLaunch", 28_000, 36_200),
        ("cudaGraphLaunch", 66_200, 74_400),
    ]
    # Submitted after three quarters of the call, 6,000 ns of start-up, 700 ns between nodes.
    assert bench.times() == [(40_150, 45_150), (45_850, 48_850), (78_350, 79_350), (80_050, 81_050)]
    ops = bench.rows["kernels"]
    assert [(op.correlation, op.node, op.graph.graph) for op in ops] == [(6, 3, 1), (6, 4, 1), (7, 3, 1), (7, 4, 1)]
    assert [(node, original) for _, _, _, node, original in bench.rows["nodes"]] == [(1, -1), (2, -1), (3, 1), (4, 2)]
    assert bench.idle()[1:] == [
        (0, 48_850, 66_200, "python"),
        (0, 66_200, 74_400, "launch_call"),
        (0, 74_400, 78_350, "graph_startup"),
        (0, 79_350, 80_050, "launch_latency"),
    ]


def test_a_graph_recorded_as_one_piece_is_one_row_without_kernels(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield graphs.begin_capture(bench.stream)
        for _ in range(2):
            yield cuda.launch(bench.stream, kernel, 4_000)
        yield graphs.end_capture(bench.stream)
        graph = bench.host.value
        yield graphs.instantiate(graph, whole=True)
        yield graphs.launch_graph(bench.stream, graph)

    bench.run(program())
    ((start, end, op, run),) = bench.rows["graphs"]
    assert (start, end, op.correlation, run.graph, run.exec_id) == (40_150, 48_850, 6, 1, 2)
    assert "kernels" not in bench.rows
    assert bench.idle() == []


def test_a_collective_ends_everywhere_when_the_last_rank_has_come_and_the_data_has_gone(
    bench: Any, kernel: Kernel
) -> None:
    other = Host(Process(bench.simulation, bench.simulation.device(), 200), 200, "rank 1")
    meeting = Meeting(2, 7_000)

    def program(host: Host, late: int) -> Iterator[Instruction]:
        yield cuda.collective(host.process.default, kernel, meeting, after=late)
        yield cuda.launch(host.process.default, kernel, 1_000)

    bench.run(program(bench.host, 0), (other, program(other, 20_000)))
    assert bench.times() == [(5_000, 32_000), (25_000, 32_000), (33_000, 34_000), (33_000, 34_000)]
    assert bench.idle() == [
        (0, 32_000, 33_000, "launch_latency"),
        (1, 5_000, 25_000, "startup"),
        (1, 32_000, 33_000, "launch_latency"),
    ]


def test_a_device_that_stops_early_has_a_tail(bench: Any, kernel: Kernel) -> None:
    other = Host(Process(bench.simulation, bench.simulation.device(), 200), 200, "other")

    def program(host: Host, dur: int) -> Iterator[Instruction]:
        yield cuda.launch(host.process.default, kernel, dur)

    bench.run(program(bench.host, 10_000), (other, program(other, 4_000)))
    assert bench.simulation.window() == (5_000, 15_000)
    assert bench.idle() == [(1, 9_000, 15_000, "tail")]


def test_a_thread_waits_for_what_another_hands_over(bench: Any, kernel: Kernel) -> None:
    queue = Queue()
    other = Host(bench.process, 101, "other")

    def taker() -> Iterator[Instruction]:
        yield bench.host.get(queue)
        yield cuda.launch(bench.stream, kernel, bench.host.value)

    def giver() -> Iterator[Instruction]:
        yield other.put(queue, 5_000, after=30_000)

    bench.run(taker(), (other, giver()))
    assert bench.times() == [(35_500, 40_500)]
    assert [(start, end, name) for start, end, _, name in bench.rows["os_calls"]] == [(0, 30_500, "pthread_cond_wait")]


def test_a_program_that_waits_for_ever_is_one_clear_line(bench: Any) -> None:
    def program() -> Iterator[Instruction]:
        yield bench.host.get(Queue())

    with pytest.raises(ProfkitError, match="nothing happens any more and these threads wait: main"):
        bench.run(program())


def test_a_launch_without_its_cost_takes_no_time_of_host_or_device(bench: Any, kernel: Kernel) -> None:
    from profkit.simulate.ops import GraphRun

    def program() -> Iterator[Instruction]:
        chain = GraphRun(0, 0, -1, False)
        for _ in range(3):
            yield cuda.launch_free(bench.stream, kernel, 5_000, chain)

    bench.run(program())
    assert bench.times() == [(0, 5_000), (5_700, 10_700), (11_400, 16_400)]
    assert bench.calls() == []
