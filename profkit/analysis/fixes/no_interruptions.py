"""Time in which the launching thread could not run: off the CPU, waiting for the interpreter's lock or another lock."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.idle_host import HostStates
from profkit.analysis.idle_pieces import CODES
from profkit.analysis.replay.model import Model
from profkit.model import Ints

CAUSES = ("off_cpu", "gil", "os_wait")


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """What of the host's time before each call was recorded as one of these states."""
    return host_gone(model, interrupted(analysis, model, CAUSES), "the launching thread is never kept from running")


def interrupted(analysis: Analysis, model: Model, causes: tuple[str, ...]) -> Ints:
    """How much of the time before each call, since the call before it, its thread was in one of these states, ns."""
    calls = model.calls
    asked = np.flatnonzero(calls.gap > 0)
    query, start, end, cause = HostStates(analysis.trace, analysis.ranges).pieces(
        calls.track[asked], calls.start[asked] - calls.gap[asked], calls.start[asked]
    )
    mine = np.isin(cause, [CODES[name] for name in causes])
    out = np.zeros(len(calls), np.int64)
    np.add.at(out, asked[query[mine]], (end - start)[mine])
    return out


FIX = Fix("no-interruptions", "PK211", "Keep the launching thread running", find)
