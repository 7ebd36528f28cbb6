"""Times by stage: how long the host was in it, and how long the GPU worked for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import percentile
from profkit.analysis.spans import Ranges, gpu_time_by_group, gpu_time_by_range
from profkit.analysis.work import Work
from profkit.arrays import inside_any
from profkit.model import Array, Mask, Trace
from profkit.schema import NOT_WHOLE, STAGES


@dataclass(frozen=True)
class StageTime:
    """One stage. Percentiles are nearest rank over ranges seen whole; GPU ones over ranges that launched work.

    ``gpu_busy_ns`` is the union of all work launched inside the stage, ``gpu_self_ns`` of the work whose innermost
    stage it is; both per device, summed over devices, whole or not; None where its ranges own no work of their own
    (requests that overlap). ``unclosed`` ranges are not counted in ``count``.
    """

    stage: str
    count: int
    unclosed: int
    host_ns: Array
    gpu_ns: Array
    gpu_busy_ns: int | None
    gpu_self_ns: int | None

    def host(self, percent: int) -> int | None:
        return percentile(self.host_ns, percent)

    def gpu(self, percent: int) -> int | None:
        return percentile(self.gpu_ns, percent)


@dataclass(frozen=True)
class Launched:
    """Device rows and the innermost range around each one's call, as from :func:`spans.owners`."""

    work: Work
    owner: Array


def stage_times(trace: Trace, ranges: Ranges, whole: Launched, cut: Launched, counted: Mask) -> list[StageTime]:
    """One entry a stage that occurs among the ``counted`` spans, in the order of STAGES.

    A range's own GPU time is of the ``whole`` work, a stage's sums are of the work ``cut`` to the window.
    """
    per_range = gpu_time_by_range(whole.work, ranges, whole.owner)
    own = np.flatnonzero(cut.owner >= 0).astype(cut.work.row.dtype)
    innermost = ranges.stage[cut.owner[own]]
    alone = gpu_time_by_group(cut.work, own, innermost, len(STAGES))
    rows_alone = np.bincount(innermost, minlength=len(STAGES))
    span_stage = np.where(counted, trace.array("spans", "stage"), -1)
    is_whole = (trace.array("spans", "flags") & NOT_WHOLE) == 0
    dur = trace.array("spans", "dur_ns")
    out = []
    for code, name in enumerate(STAGES):
        every = span_stage == code
        if not every.any():
            continue
        owns = bool((ranges.stage == code).any())
        inside = own[_around(ranges, code)[cut.owner[own]]] if owns else own[:0]
        busy = int(alone[code])
        if len(inside) > rows_alone[code]:  # stages inside of it have work of their own
            busy = int(gpu_time_by_group(cut.work, inside, np.zeros(len(inside), np.int8), 1)[0])
        mine = (ranges.stage == code) & ranges.whole & (per_range >= 0) & counted[ranges.row]
        out.append(
            StageTime(
                stage=name,
                count=int((every & is_whole).sum()),
                unclosed=int((every & ~is_whole).sum()),
                host_ns=dur[every & is_whole],
                gpu_ns=per_range[mine],
                gpu_busy_ns=busy if owns else None,
                gpu_self_ns=int(alone[code]) if owns else None,
            )
        )
    return out


def _around(ranges: Ranges, stage: int) -> Mask:
    """Which ranges are of a stage or lie inside of one that is."""
    own: Mask = ranges.stage == stage
    return own | inside_any(ranges.parent, own)
