"""NVTX ranges projected onto the GPU: from the first start to the last end of the work that was launched inside.

Work belongs to every range of the launching thread that holds the whole launch call. Only kernels, copies and memsets
count, as in nsys; a graph launch that was recorded as one piece does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.model import Ints, Mask, Trace
from profkit.stats._kernels import calls_of
from profkit.stats._ranges import Ranges, Tree, find_ranges, tree
from profkit.stats._slices import MOST_CHAINS, chains, covered, range_max, range_min, slices
from profkit.stats._summary import whole_rows

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Launches:
    """Calls that launched device work, and when that work ran."""

    call: Ints
    """Row of ``calls``, ascending."""
    first: Ints
    """Start of the earliest operation, ns."""
    last: Ints
    """End of the latest operation, ns."""


@dataclass(frozen=True)
class Projection:
    """Ranges with their projections, in the order of ``ranges``; a range without GPU work has none."""

    ranges: Ranges
    tree: Tree
    start: Ints
    end: Ints
    operations: Ints
    """Launch calls inside: distinct correlation ids, so that a graph launch of many kernels is one."""
    remarks: tuple[str, ...]

    @property
    def projected(self) -> Mask:
        mask: Mask = self.operations > 0
        return mask

    @property
    def children(self) -> Ints:
        """Number of direct children that have a projection of their own."""
        return self.tree.children(self.projected)


def project(trace: Trace) -> Projection:
    """Project all ranges that end on the thread that they began on."""
    ranges = find_ranges(trace, one_thread=True)
    found, remarks = _launches(trace)
    start, end, operations, nested = _inside(trace, ranges, found)
    if nested:
        remarks.append(f"{text.count(nested, 'launch call')} left out: nested in over {MOST_CHAINS} others")
    idle = int((operations == 0).sum())
    if idle:
        remarks.append(f"{text.count(idle, 'range')} without GPU work of its own thread left out")
    elsewhere = _outside(trace, ranges, found)
    if elsewhere:
        remarks.append(
            f"{text.count(elsewhere, 'launch call')} in no range of its own thread: "
            "a range does not own what another thread launches, as autograd does"
        )
    return Projection(ranges, tree(ranges), start, end, operations, (*ranges.remarks, *remarks))


def _launches(trace: Trace) -> tuple[Launches, list[str]]:
    calls: list[Ints] = []
    starts: list[Ints] = []
    ends: list[Ints] = []
    remarks: list[str] = []
    for table in ("kernels", "copies"):
        whole, said = whole_rows(trace, table)
        call = calls_of(trace, table)
        keep = np.flatnonzero(whole & (call >= 0))
        calls.append(call[keep])
        starts.append(trace.array(table, "start_ns")[keep])
        ends.append(starts[-1] + trace.array(table, "dur_ns")[keep])
        remarks += said
        without = int((whole & (call < 0)).sum())
        if without:
            what = ("kernel", "kernels") if table == "kernels" else ("memory operation", "memory operations")
            remarks.append(f"{text.count(without, *what)} in no range: no launch call was recorded")
    if trace.rows("graphs"):
        graphs = text.count(trace.rows("graphs"), "CUDA graph launch", "CUDA graph launches")
        remarks.append(f"{graphs} recorded as one piece not projected: nsys does not, either")
    call = np.concatenate(calls)
    order = np.argsort(call, kind="stable")
    call = call[order]
    head = np.flatnonzero(np.diff(call, prepend=-1))
    if not len(head):
        return Launches(head, head, head), remarks
    first = np.minimum.reduceat(np.concatenate(starts)[order], head)
    last = np.maximum.reduceat(np.concatenate(ends)[order], head)
    return Launches(call[head], first, last), remarks


def _outside(trace: Trace, ranges: Ranges, found: Launches) -> int:
    """Number of launch calls that no range of their thread holds."""
    start, dur, track = (trace.array("calls", name)[found.call] for name in ("start_ns", "dur_ns", "track"))
    held = covered(ranges.start, ranges.end, ranges.track, start, start + dur, track)
    return len(held) - int(held.sum())


def _inside(trace: Trace, ranges: Ranges, found: Launches) -> tuple[Ints, Ints, Ints, int]:
    """(first start, last end, number of launches) of each range, and how many launches nest too deep."""
    first = np.full(len(ranges), _FAR)
    last = np.full(len(ranges), -_FAR)
    count = np.zeros(len(ranges), np.int64)
    rest = len(found.call)
    call_start = trace.array("calls", "start_ns")[found.call]
    call_end = call_start + trace.array("calls", "dur_ns")[found.call]
    for chain in chains(call_start, call_end, trace.array("calls", "track")[found.call]):
        low, high = slices(chain, ranges.start, ranges.end, ranges.track)
        rows = np.flatnonzero(high > low)
        low, high = low[rows], high[rows]
        first[rows] = np.minimum(first[rows], range_min(found.first[chain.rows], low, high))
        last[rows] = np.maximum(last[rows], range_max(found.last[chain.rows], low, high))
        count[rows] += high - low
        rest -= len(chain.rows)
    return first, last, count, rest
