"""Events, synchronisation, and what a thread does between its calls: times computed by hand from conftest.py."""

from collections.abc import Callable, Iterator
from typing import Any

from profkit.simulate import cuda, events
from profkit.simulate.causes import GIL, OFF_CPU
from profkit.simulate.host import Instruction
from profkit.simulate.ops import BLOCKING, NON_BLOCKING, Kernel


def syncs(bench: Any) -> list[tuple[int, int, int, int]]:
    """(start, end, type, event)."""
    return [(start, end, kind, event) for start, end, _, _, _, kind, event in bench.rows["syncs"]]


def test_a_stream_synchronisation_ends_after_the_last_work_and_the_wake_up(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 50_000)
        yield events.synchronize_stream(bench.stream)
        yield events.synchronize_stream(bench.stream)
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    # Nothing is left for the second one: it takes what such a call takes.
    assert bench.calls()[1:3] == [
        ("cudaStreamSynchronize", 4_000, 55_500),
        ("cudaStreamSynchronize", 55_500, 58_500),
    ]
    assert syncs(bench) == [(4_000, 55_500, 3, -1), (55_500, 58_500, 3, -1)]
    assert bench.idle() == [
        (0, 55_000, 58_500, "sync"),
        (0, 58_500, 62_500, "launch_call"),
        (0, 62_500, 63_500, "launch_latency"),
    ]


def test_a_device_synchronisation_waits_for_all_streams_and_a_stream_one_for_its_own(
    bench: Any, kernel: Kernel
) -> None:
    side = bench.process.stream(NON_BLOCKING)
    small = Kernel("small", "small", share=10)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, small, 20_000)
        yield cuda.launch(side, small, 90_000)
        yield events.synchronize_stream(bench.stream)
        yield events.synchronize_device()

    bench.run(program())
    assert bench.calls()[2:] == [
        ("cudaStreamSynchronize", 8_000, 25_500),
        ("cudaDeviceSynchronize", 25_500, 99_500),
    ]


def test_a_synchronisation_of_the_null_stream_waits_for_blocking_streams_too(bench: Any, kernel: Kernel) -> None:
    blocking, apart = bench.process.stream(BLOCKING), bench.process.stream(NON_BLOCKING)
    small = Kernel("small", "small", share=10)

    def program() -> Iterator[Instruction]:
        yield cuda.launch(blocking, small, 20_000)
        yield cuda.launch(apart, small, 90_000)
        yield events.synchronize_stream(bench.stream)

    bench.run(program())
    assert bench.calls()[2] == ("cudaStreamSynchronize", 8_000, 25_500)


def test_an_event_stands_for_what_was_before_its_record(bench: Any, kernel: Kernel) -> None:
    event = events.Event()

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 30_000)
        yield events.record_event(bench.stream, event)
        yield cuda.launch(bench.stream, kernel, 500_000)
        yield events.synchronize_event(event)
        yield events.query_event(event)

    bench.run(program())
    assert bench.calls()[3] == ("cudaEventSynchronize", 10_000, 35_500)
    assert bench.host.value is True
    assert [(stream.number, event) for stream, _, _, event in bench.rows["events"]] == [(7, 1)]
    assert syncs(bench) == [(10_000, 35_500, 1, 1)]


def test_a_stream_waits_for_an_event_of_another_one(bench: Any, kernel: Kernel) -> None:
    side = bench.process.stream(NON_BLOCKING)
    event = events.Event()

    def program() -> Iterator[Instruction]:
        yield cuda.launch(side, kernel, 60_000)
        yield events.record_event(side, event)
        yield events.wait_event(bench.stream, event)
        yield cuda.launch(bench.stream, kernel, 5_000)
        yield cuda.launch(bench.stream, kernel, 5_000)

    bench.run(program())
    assert bench.times() == [(5_000, 65_000), (65_900, 70_900), (71_900, 76_900)]
    assert bench.idle() == [(0, 65_000, 65_900, "event_wait"), (0, 70_900, 71_900, "launch_latency")]
    assert syncs(bench) == [(6_000, 7_200, 2, 1)]


def test_an_event_that_has_happened_holds_nothing(bench: Any, kernel: Kernel) -> None:
    side = bench.process.stream(NON_BLOCKING)
    event = events.Event()

    def program() -> Iterator[Instruction]:
        yield cuda.launch(side, kernel, 1_000)
        yield events.record_event(side, event)
        yield events.wait_event(bench.stream, event, after=50_000)
        yield cuda.launch(bench.stream, kernel, 5_000)

    bench.run(program())
    # The wait is at [56,000, 57,200], the launch at [57,200, 61,200].
    assert bench.times() == [(5_000, 6_000), (62_200, 67_200)]
    assert [cause for *_, cause in bench.idle()] == ["python", "launch_call", "launch_latency"]


def test_a_poll_sees_the_event_at_its_next_question(bench: Any, kernel: Kernel) -> None:
    event = events.Event()

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 20_000)
        yield events.record_event(bench.stream, event)
        while True:
            yield events.query_event(event)
            if bench.host.value:
                return
            yield bench.host.os_wait(10_000, "clock_nanosleep")

    bench.run(program())
    # Asked at 6,000, 17,000, 28,000; the event is at 25,000.
    assert [start for name, start, _ in bench.calls() if name == "cudaEventQuery"] == [6_000, 17_000, 28_000]


def test_own_work_has_the_cause_of_its_innermost_stage(bench: Any, kernel: Kernel) -> None:
    host = bench.host

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield host.work(6_000)
        host.push("decode", payload=4)
        yield host.work(1_000)
        host.push("schedule")
        yield host.work(2_000)
        host.push("my own range", domain="")
        yield host.work(3_000)
        host.pop()
        host.pop()
        yield cuda.launch(bench.stream, kernel, 1_000, after=500)
        host.pop()

    bench.run(program())
    # decode is a stage, but not one of the host's own work; a range of another domain changes nothing.
    assert bench.idle() == [
        (0, 6_000, 11_000, "python"),
        (0, 11_000, 16_000, "stage_schedule"),
        (0, 16_000, 16_500, "python"),
        (0, 16_500, 20_500, "launch_call"),
        (0, 20_500, 21_500, "launch_latency"),
    ]
    assert [row[:2] + row[3:6] for row in bench.rows["ranges"]] == [
        (13_000, 16_000, "my own range", "", -1),
        (11_000, 16_000, "schedule", "profkit", -1),
        (10_000, 20_500, "decode", "profkit", 4),
    ]


def test_a_range_takes_time_before_it_and_behind_it(machine: Callable[..., Any], kernel: Kernel) -> None:
    bench = machine(range_ns=80)

    def program() -> Iterator[Instruction]:
        bench.host.push("sample")
        yield cuda.launch(bench.stream, kernel, 1_000)
        bench.host.pop()
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    assert [(row[0], row[1]) for row in bench.rows["ranges"]] == [(80, 4_080)]
    assert [start for _, start, _ in bench.calls()] == [80, 4_160]


def test_waits_of_a_thread_are_causes_of_their_own_where_they_are_recorded(bench: Any, kernel: Kernel) -> None:
    host = bench.host

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield host.os_wait(5_000, "read", after=2_000)
        yield host.off_cpu(4_000)
        yield host.gil_wait(3_000)
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    assert bench.idle() == [
        (0, 6_000, 11_000, "os_wait"),
        (0, 11_000, 15_000, "off_cpu"),
        (0, 15_000, 18_000, "gil"),
        (0, 18_000, 22_000, "launch_call"),
        (0, 22_000, 23_000, "launch_latency"),
    ]
    assert [(time, running) for time, _, running in bench.rows["sched"]] == [(11_000, 0), (15_000, 1)]
    assert [row[:2] + row[3:5] for row in bench.rows["ranges"]] == [(15_000, 18_000, "Waiting for GIL", "Python GIL")]


def test_waits_that_are_not_recorded_look_like_own_work(bench: Any, kernel: Kernel) -> None:
    bench.simulation.recorded_waits = frozenset({OFF_CPU, GIL})

    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield bench.host.os_wait(5_000, "read", after=2_000)
        yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    assert [cause for *_, cause in bench.idle()] == ["python", "launch_call", "launch_latency"]
    assert "os_calls" not in bench.rows


def test_modules_load_in_a_call_of_their_own_or_inside_of_a_launch(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        yield cuda.launch(bench.stream, kernel, 1_000)
        yield cuda.module_load()
        yield cuda.launch_loading(bench.stream, kernel, 1_000, share=0.5)

    bench.run(program())
    assert bench.calls()[1:] == [
        ("cuModuleLoadData", 4_000, 1_004_000),
        ("cuLibraryLoadData", 1_006_000, 1_506_000),
        ("cudaLaunchKernel", 1_004_000, 1_508_000),
    ]
    # Half of the launch's own work is left then, and it submits after three quarters.
    assert bench.times() == [(5_000, 6_000), (1_509_000, 1_510_000)]
    assert bench.idle() == [
        (0, 6_000, 1_004_000, "module_load"),
        (0, 1_004_000, 1_006_000, "launch_call"),
        (0, 1_006_000, 1_506_000, "module_load"),
        (0, 1_506_000, 1_508_000, "launch_call"),
        (0, 1_508_000, 1_509_000, "launch_latency"),
    ]


def test_the_profiler_costs_time_in_each_call_and_when_it_empties_its_buffer(bench: Any, kernel: Kernel) -> None:
    bench.host.overhead_ns, bench.host.flush_every = 400, 2

    def program() -> Iterator[Instruction]:
        for _ in range(2):
            bench.host.begin_step("decode")
            yield cuda.launch(bench.stream, kernel, 1_000)
            yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    assert bench.calls()[:3] == [
        ("cudaLaunchKernel", 0, 4_400),
        ("cudaLaunchKernel", 4_400, 8_800),
        ("cudaLaunchKernel", 78_800, 83_200),
    ]
    assert [(start, end) for start, end, _ in bench.rows["overheads"]] == [(8_800, 78_800)]
    assert (0, 10_700, 78_800, "profiler") in bench.idle()


def test_work_whose_call_is_not_in_the_trace_is_unknown(bench: Any, kernel: Kernel) -> None:
    bench.process.lost_until = 2

    def program() -> Iterator[Instruction]:
        for _ in range(3):
            yield cuda.launch(bench.stream, kernel, 1_000)

    bench.run(program())
    assert bench.idle() == [
        (0, 6_000, 9_000, "unknown"),
        (0, 10_000, 12_000, "launch_call"),
        (0, 12_000, 13_000, "launch_latency"),
    ]


def test_a_step_ends_with_the_last_work_that_its_thread_launched(bench: Any, kernel: Kernel) -> None:
    def program() -> Iterator[Instruction]:
        for _ in range(2):
            bench.host.begin_step("decode")
            yield cuda.launch(bench.stream, kernel, 10_000)
            yield cuda.launch(bench.stream, kernel, 10_000)

    bench.run(program())
    assert [(step.kind, step.gpu_end) for step in bench.host.steps] == [("decode", 26_000), ("decode", 48_000)]
