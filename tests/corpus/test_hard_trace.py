"""The hard generated trace: random row order, eight processes that share correlation ids, graphs, deep ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.ingest import open_trace


@pytest.fixture(scope="session")
def made(generate: Callable[..., Any]) -> Any:
    return generate("make_hard_trace.py", "-k", "20000")


def test_the_printed_truth(made: Any, check: Callable[..., dict[str, Any]]) -> None:
    summary = check(made.nsys)["summary"]

    counts = summary["counts"]
    assert (counts["kernels"], counts["launch_calls"], counts["spans"]) == (
        made.truth["kernels"],
        made.truth["launches"],
        made.truth["ranges"],
    )
    assert counts["unclosed_spans"] == 0
    assert summary["launches"]["kernels_without_call"] == 0
    assert summary["launches"]["graph_kernels"] == 40 * summary["launches"]["graph_launches"]
    busy = {device["device"]: device["busy_ns"] for device in summary["devices"]}
    assert sorted(busy.values()) == sorted(made.truth["busy_ns"])
    for device in summary["devices"]:
        assert device["busy_ns"] + device["idle_ns"] == summary["window_ns"]
        assert device["kernel_ns"] == device["busy_ns"] < device["kernel_sum_over_streams_ns"]
    assert sum(summary["idle_by_cause"].values()) == sum(device["idle_ns"] for device in summary["devices"])


def test_each_process_has_a_device_of_its_own(made: Any, check: Callable[..., dict[str, Any]]) -> None:
    trace = open_trace(made.nsys)
    pids = trace.tables["processes"].column("pid").to_pylist()
    pairs = {
        (pids[process], device)
        for process, device in zip(trace.array("tracks", "process"), trace.array("tracks", "device"), strict=True)
        if device >= 0
    }
    assert [pid for pid, _ in sorted(pairs)] == list(range(50_000, 50_008))
    busy = {device["device"]: device["busy_ns"] for device in check(made.nsys)["summary"]["devices"]}
    assert [busy[device] for _, device in sorted(pairs)] == made.truth["busy_ns"]
