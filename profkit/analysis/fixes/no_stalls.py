"""Pauses of the host's own work that most steps do not have (garbage collector, page faults, another program): gone."""

from __future__ import annotations

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import in_ranges, steady_calls
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.replay.model import Model

STALL_NS = 1_000_000
"""Shorter pauses are not told from the host's work."""
_STAGES = ("schedule", "tokenize", "sample", "detokenize")


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """Host work outside of CPU stages that is longer than 1 ms and than ten medians of what stands at its place."""
    own = model.calls.gap - in_ranges(analysis, model, _STAGES)
    usual = int(np.median(own[own > 0])) if (own > 0).any() else 0
    long = steady_calls(analysis, model, np.flatnonzero(own > max(STALL_NS, 10 * usual)))
    part = np.zeros(len(own), np.int64)
    part[long] = own[long] - usual
    return host_gone(model, part, f"the host's own work takes its usual {text.ns(usual)} there")


FIX = Fix("no-stalls", "PK212", "Keep the launching thread from stalling", find)
