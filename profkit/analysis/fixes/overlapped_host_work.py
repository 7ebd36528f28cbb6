"""The launching thread's own work that a GPU stood still for, 20 µs or more at a time: done beside the GPU's work.

Waits for nothing but launches are meant by ``cuda-graphs``, synchronisations and allocations by fixes of their own.
"""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.idle_pieces import CODES, HOST_CAUSES
from profkit.analysis.intervals import union
from profkit.analysis.replay.model import Model
from profkit.model import Mask

SHORTEST_GAP_NS = 20_000


def long_gaps(analysis: Analysis) -> Mask:
    """Gaps of ``analysis.idle`` that are long, and not paced by launches alone."""
    mask: Mask = (analysis.idle.length >= SHORTEST_GAP_NS) & ~analysis.launch_paced
    return mask


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    """How much of the host work before each call lies in such gaps that its thread ended."""
    idle, calls = analysis.idle, model.calls
    call = analysis.work.call[idle.ends_at]
    gaps = np.flatnonzero(long_gaps(analysis) & (call >= 0))
    part = np.zeros(len(calls), np.int64)
    if not len(gaps) or not len(calls):
        return None
    some = idle.where(gaps)
    own = np.isin(some.pieces.cause, [CODES[cause] for cause in HOST_CAUSES])
    track = analysis.trace.array("calls", "track")[call[gaps]][some.pieces.gap[own]]
    start, end = some.pieces.start[own], some.pieces.end[own]
    for thread in np.unique(track).tolist():
        mine = track == thread
        covered = union(start[mine], end[mine])
        at = np.flatnonzero((calls.track == thread) & ~calls.fixed)
        part[at] = covered.covered(calls.start[at] - calls.gap[at], calls.start[at])
    return host_gone(model, part, "this host work is done while the GPU works")


FIX = Fix("overlapped-host-work", "PK101", "Do host work beside the GPU's", find)
