"""What rules about copies ask of a trace: which copies there are, and how much of them runs beside kernels."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.work import COPIES
from profkit.model import Array, Ints, Mask
from profkit.schema import COPY_KINDS, MEMORY_KINDS

H2D, D2H = (COPY_KINDS.index(kind) for kind in ("h2d", "d2h"))
PINNED = MEMORY_KINDS.index("pinned")


def copies_of_kinds(analysis: Analysis, *kinds: str) -> Ints:
    """Rows of work that are copies of these kinds, in order of start."""
    rows = np.flatnonzero(analysis.work.table == COPIES)
    codes = [COPY_KINDS.index(kind) for kind in kinds]
    return rows[np.isin(column(analysis, "kind", rows), codes)]


def column(analysis: Analysis, name: str, rows: Ints) -> Array:
    """A column of ``copies`` for rows of work that are copies."""
    return analysis.trace.array("copies", name)[analysis.work.row[rows]]


def is_pinned(analysis: Analysis, rows: Ints) -> Mask:
    """Which of these copies have pinned memory on their host side."""
    src, dst = column(analysis, "src_kind", rows), column(analysis, "dst_kind", rows)
    mask: Mask = np.where(column(analysis, "kind", rows) == H2D, src, dst) == PINNED
    return mask


def kernel_time(analysis: Analysis, device: int) -> Intervals:
    """When kernels, or graphs that were recorded as one piece, ran on a device."""
    work = analysis.work
    rows = np.flatnonzero((work.device == device) & (work.table != COPIES))
    return union(work.start[rows], work.end[rows])


def alone(analysis: Analysis, rows: Ints, beside: Intervals) -> Ints:
    """How much of each of these rows lies outside of ``beside`` and of those before it, ns."""
    work = analysis.work
    start, end = work.start[rows], work.end[rows]
    if len(rows):
        start = np.maximum(start, np.append(start[0], np.maximum.accumulate(end)[:-1]))
    length: Ints = np.maximum(end - start, 0)
    return length - beside.covered(start, end)


def step_of(analysis: Analysis, rows: Ints) -> Ints:
    """Step of each of these rows of work, -1 for none."""
    of_work = analysis.steps.of_work
    step: Ints = of_work[rows] if len(of_work) else np.full(len(rows), -1, np.int64)
    return step


def devices_of(analysis: Analysis, rows: Ints) -> list[int]:
    """Devices of these rows of work; without those that the trace does not say."""
    found = np.unique(analysis.work.device[rows])
    return [int(device) for device in found[found >= 0]]
