"""Tiny traces that several rules about calls in steady state have as their examples."""

from __future__ import annotations

from profkit.model import Trace
from profkit.testing import build_trace, call, launch, span

LAUNCH, GRAPH_LAUNCH = "cudaLaunchKernel", "cudaGraphLaunch"


def called_in_each_step(name: str, api: str = LAUNCH) -> Trace:
    """Five decode steps, each with such a call of 300 us before its launch."""
    return _steps(name, 300_000, api)


def called_before_the_steps(name: str, instead: str = "cudaGetDevice", api: str = LAUNCH) -> Trace:
    """The same steps with a short call of another name, and such a call of 300 us before the first one."""
    return _steps(instead, 3_000, api, before=name)


def _steps(name: str, dur: int, api: str, before: str = "") -> Trace:
    rows = [call(-900_000, 300_000, before)] if before else []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(call(t + 10_000, dur, name))
        rows += launch("gemm", at=t + 320_000, start=t + 330_000, dur=600_000, api=api)
    return build_trace(*rows)
