"""Pauses of the host's own work that most steps do not have (garbage collector, page faults, another program): gone."""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH, LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import call_names, in_ranges, steady_calls, step_of_calls
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.fixes.no_interruptions import CAUSES, interrupted
from profkit.analysis.idle_pieces import CPU_STAGES
from profkit.analysis.replay.model import Model
from profkit.arrays import key_of
from profkit.model import Ints

STALL_NS = 200_000
"""Shorter pauses are not told from the host's work."""
MOST = 0.34
"""Pauses that more than this part of the places of their kind, or of the steps, have are the host's work there."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """Host work outside of CPU stages that takes ten medians of what stands between the same two calls elsewhere."""
    # What was recorded as something else is no stall of unknown cause; without the profiler there is no flush of its.
    known = interrupted(analysis, model, ("profiler", *CAUSES))
    own = model.calls.gap - in_ranges(analysis, model, CPU_STAGES) - known
    own[~np.isin(model.calls.track, np.unique(model.calls.track[_launches(model)]))] = 0
    part = np.zeros(len(own), np.int64)
    name = call_names(analysis, model)
    between = key_of(np.concatenate((name[:1], name[:-1])), name, model.calls.track) if len(name) else name
    suspects = np.flatnonzero(own > STALL_NS)
    step = step_of_calls(analysis, model)
    steps = len(np.unique(step[step >= 0]))
    for kind in np.unique(between[suspects]).tolist():
        mine = np.flatnonzero((between == kind) & ~model.calls.fixed)
        usual = int(np.median(own[mine])) if len(mine) else 0
        long = mine[own[mine] > max(STALL_NS, 10 * usual)]
        in_steps = step[long][step[long] >= 0]
        if len(long) <= MOST * len(mine) and len(np.unique(in_steps)) <= MOST * steps:
            part[long] = own[long] - usual
    part[np.setdiff1d(np.arange(len(part)), steady_calls(analysis, model, np.flatnonzero(part > 0)))] = 0
    return host_gone(model, part, "the host's own work takes what it usually takes at the same place")


def _launches(model: Model) -> Ints:
    """Calls that launch: a thread without any that waits for something holds up no GPU by itself."""
    return np.flatnonzero(np.isin(model.calls.kind, (LAUNCH, GRAPH_LAUNCH)))


FIX = Fix("no-stalls", "PK212", "Keep the launching thread from stalling", find)
