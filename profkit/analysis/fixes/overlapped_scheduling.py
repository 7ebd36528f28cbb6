"""Scheduling and detokenization between steps: done while the device runs, a step ahead."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import in_ranges
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return host_gone(
        model,
        in_ranges(analysis, model, ("schedule", "sample", "detokenize")),
        "scheduling, sampling on the host and detokenization are off the launching thread's path",
    )


FIX = Fix("overlapped-scheduling", "PK102", "Schedule a step ahead", find)
