"""Cases H04 and H06: newer launch calls, and first steps that distort averages.

H01 and H03 are in ``test_cases_captures.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from profkit.analysis.context import Analysis
from profkit.ingest import open_trace

US, MS = 1_000, 1_000_000
LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC_v11060",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaLaunchCooperativeKernel",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
)


def seven_launches(source: Any) -> Any:
    for i, name in enumerate(LAUNCHES):
        source.call(name, 1_000 + 20 * i, 5, i + 1)
        source.kernel(1_010 + 20 * i, 8, i + 1)
    return source.write()


def seven_launches_nsys(source: Any) -> Any:
    for i, name in enumerate(LAUNCHES):
        source.call(20 * i * US, (20 * i + 5) * US, name, correlation=i + 1)
        source.kernel((20 * i + 10) * US, (20 * i + 18) * US, correlation=i + 1)
    return source.write()


@pytest.mark.parametrize("source", ["nsys", "kineto"])
def test_H04_newer_launch_calls_are_launches(request: Any, check: Any, source: str) -> None:
    write = seven_launches_nsys if source == "nsys" else seven_launches
    path = write(request.getfixturevalue(source))

    seen = check(path)

    assert seen.summary["counts"]["launch_calls"] == 7
    assert seen.summary["counts"]["kernels"] == 7
    assert seen.summary["launches"]["kernels_without_call"] == 0
    assert {item["kind"] for item in seen.summary["calls"]} == {"launch"}
    assert sorted(Analysis(open_trace(path)).work.call.tolist()) == list(range(7))


def profiler_steps(kineto: Any, first: int, lengths_ms: list[int]) -> Any:
    """``ProfilerStep#N`` ranges, each with a launch in it and a kernel of half its length that ends with it."""
    at = 1_000
    for i, length in enumerate(lengths_ms):
        us = 1_000 * length
        kineto.event("user_annotation", f"ProfilerStep#{first + i}", at, us)
        kineto.launch(at + 10, 5, i + 1)
        kineto.kernel(at + us // 2, us // 2, i + 1)
        at += us
    return kineto.write()


def test_H06_first_steps_do_not_distort_averages(kineto: Any, check: Any, page: Any) -> None:
    path = profiler_steps(kineto, 0, [2_000, 100, 100, 100, 100])

    seen = check(path)

    steps = seen.summary["steps"]["other"]
    assert (steps["period_p50_ns"], steps["host_p50_ns"]) == (100 * MS, 100 * MS)
    assert (steps["count"], steps["counted"], steps["warm_up"], steps["incomplete"]) == (5, 4, 1, 0)
    assert seen.summary["steps_excluded"] == {"of": 5, "excluded": 1, "warm_up": 1, "incomplete": 0}
    assert Analysis(open_trace(path)).steps.warm_up.tolist() == [True, False, False, False, False]
    # Host and GPU sums are over the same four steps.
    assert steps["host_sum_ns"] == 4 * 100 * MS
    assert steps["gpu_sum_ns"] == 4 * 50 * MS
    assert seen.line("excluded") == "1 of 5 steps excluded: warm-up"
    assert "1 of 5 steps excluded: warm-up" in page(path)


def test_H06_no_step_is_dropped_for_its_position(kineto: Any, check: Any) -> None:
    seen = check(profiler_steps(kineto, 7, [100] * 5))

    steps = seen.summary["steps"]["other"]
    assert (steps["count"], steps["counted"], steps["warm_up"], steps["incomplete"]) == (5, 5, 0, 0)
    assert steps["host_sum_ns"] == 5 * 100 * MS
    assert steps["gpu_sum_ns"] == 5 * 50 * MS
    assert seen.summary["steps_excluded"] == {"of": 5, "excluded": 0, "warm_up": 0, "incomplete": 0}
    assert "excluded" not in seen.text


def test_H06_steps_are_left_out_when_asked(kineto: Any, check: Any) -> None:
    seen = check(profiler_steps(kineto, 7, [100] * 5), "--window", "step:1-4")

    assert seen.summary["steps"]["other"]["count"] == 4
