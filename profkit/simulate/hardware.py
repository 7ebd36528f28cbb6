"""Costs of the simulated machine, drawn from ``hardware.toml`` by the seed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from profkit.simulate.chance import Chance

QUEUE_ENTRIES = 1024
"""Operations of one stream that were submitted and have not begun: a call that finds so many waits."""
SMALL_COPY_BYTES = 64 << 10
"""Up to this size a copy from pageable memory travels inside the command (CUDA C++ Programming Guide)."""
STAGING_BUFFERS = 2


@dataclass(frozen=True)
class Hardware:
    """Times in ns, rates in bytes per microsecond, sizes in bytes; what each is stands in ``hardware.toml``."""

    launch_kernel_ns: int
    memcpy_async_ns: int
    memcpy_ns: int
    memset_ns: int
    event_record_ns: int
    stream_wait_event_ns: int
    event_query_ns: int
    synchronize_ns: int
    wake_up_ns: int
    malloc_ns: int
    free_ns: int
    host_alloc_ns: int
    host_alloc_ns_per_mib: int
    host_free_ns: int
    module_load_ns: int
    capture_ns: int
    captured_launch_ns: int
    graph_instantiate_ns: int
    graph_instantiate_ns_per_node: int
    graph_launch_ns: int
    graph_launch_ns_per_node: int
    launch_latency_ns: int
    kernel_gap_ns: int
    node_gap_ns: int
    engine_gap_ns: int
    event_latency_ns: int
    graph_startup_ns: int
    pinned_h2d_bytes_per_us: int
    pinned_d2h_bytes_per_us: int
    staging_bytes_per_us: int
    staging_chunk_bytes: int
    copy_latency_ns: int
    d2d_bytes_per_us: int
    p2p_bytes_per_us: int
    memset_bytes_per_us: int
    collective_ns: int
    collective_bytes_per_us: int
    range_ns: int
    profiler_flush_ns: int
    sleep_slack_ns: int

    def transfer_ns(self, size: int, bytes_per_us: int) -> int:
        """Time of a transfer of ``size`` bytes on the device, at least 1 ns."""
        return max(self.copy_latency_ns + size * 1000 // bytes_per_us, 1)


@cache
def constants() -> dict[str, dict[str, Any]]:
    """The data file: low, high and source of each constant."""
    return tomllib.loads(Path(__file__).with_name("hardware.toml").read_text("utf-8"))


def draw_hardware(chance: Chance) -> Hardware:
    """A machine: each constant evenly between its bounds."""
    table = constants()
    pick = {name: chance.uniform(f"hardware/{name}", entry["low"], entry["high"]) for name, entry in table.items()}
    pick["node_gap_ns"] = pick["kernel_gap_ns"] * pick.pop("node_gap_share")
    return Hardware(**{field.name: int(pick[field.name]) for field in fields(Hardware)})
