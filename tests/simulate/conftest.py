"""A machine with round costs, and one thread on one device, for programs whose times can be computed by hand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from profkit.simulate.causes import IdleLog
from profkit.simulate.core import Simulation
from profkit.simulate.hardware import Hardware
from profkit.simulate.host import Host, Instruction, Process
from profkit.simulate.ops import Kernel, Op
from profkit.simulate.records import Recorder

COSTS = {
    "launch_kernel_ns": 4_000,
    "memcpy_async_ns": 4_000,
    "memcpy_ns": 8_000,
    "memset_ns": 4_000,
    "event_record_ns": 2_000,
    "stream_wait_event_ns": 1_200,
    "event_query_ns": 1_000,
    "synchronize_ns": 3_000,
    "wake_up_ns": 500,
    "malloc_ns": 100_000,
    "free_ns": 60_000,
    "host_alloc_ns": 40_000,
    "host_alloc_ns_per_mib": 200_000,
    "host_free_ns": 30_000,
    "module_load_ns": 1_000_000,
    "capture_ns": 2_000,
    "captured_launch_ns": 1_000,
    "graph_instantiate_ns": 20_000,
    "graph_instantiate_ns_per_node": 1_000,
    "graph_launch_ns": 8_000,
    "graph_launch_ns_per_node": 100,
    "launch_latency_ns": 2_000,
    "kernel_gap_ns": 1_000,
    "node_gap_ns": 700,
    "engine_gap_ns": 1_500,
    "event_latency_ns": 900,
    "graph_startup_ns": 6_000,
    "pinned_h2d_bytes_per_us": 10_000,
    "pinned_d2h_bytes_per_us": 20_000,
    "staging_bytes_per_us": 5_000,
    "staging_chunk_bytes": 1_000_000,
    "copy_latency_ns": 1_000,
    "d2d_bytes_per_us": 100_000,
    "p2p_bytes_per_us": 50_000,
    "memset_bytes_per_us": 200_000,
    "collective_ns": 5_000,
    "collective_bytes_per_us": 100_000,
    "range_ns": 0,
    "profiler_flush_ns": 70_000,
    "sleep_slack_ns": 50_000,
}
K = Kernel("void k()", "k")


@dataclass
class Bench:
    """One thread of one process on one device; more can be made."""

    simulation: Simulation
    process: Process
    host: Host
    rows: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def stream(self) -> Any:
        return self.process.default

    def run(self, program: Iterator[Instruction], *others: tuple[Host, Iterator[Instruction]]) -> None:
        self.host.run(program)
        for host, other in others:
            host.run(other)
        self.simulation.run()
        assert self.simulation.recorder is not None
        self.simulation.recorder.flush()

    def times(self, *tables: str) -> list[tuple[int, int]]:
        """(start, end) of device rows, in order of start."""
        ops: list[Op] = [op for table in tables or ("kernels", "copies", "memsets") for op in self.rows.get(table, [])]
        return sorted((op.start, op.end) for op in ops)

    def calls(self) -> list[tuple[str, int, int]]:
        """(name without its version, start, end) in the order in which they returned."""
        return [(name.split("_v")[0], start, end) for start, end, _, _, name in self.rows.get("calls", [])]

    def idle(self) -> list[tuple[int, int, int, str]]:
        assert self.simulation.idle is not None
        return list(self.simulation.idle.rows(self.simulation.devices, self.simulation.window()))


def make_bench(**changes: int) -> Bench:
    assert set(COSTS) == {f.name for f in fields(Hardware)}
    rows: dict[str, list[Any]] = {}
    recorder = Recorder(lambda table, found: rows.setdefault(table, []).extend(found))
    simulation = Simulation(Hardware(**(COSTS | changes)), recorder, IdleLog())
    process = Process(simulation, simulation.device(), 100)
    return Bench(simulation, process, Host(process, 100, "main"), rows)


@pytest.fixture
def bench() -> Bench:
    return make_bench()


@pytest.fixture
def kernel() -> Kernel:
    return K


@pytest.fixture
def machine() -> Callable[..., Bench]:
    """Benches with other costs."""
    return make_bench
