"""PyTorch operators by the host time that is their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.spans import nested_ranges
from profkit.schema import NOT_WHOLE, SPAN_KINDS


@dataclass(frozen=True)
class OperatorTime:
    """One operator name: ``sum_ns`` with what it calls, ``self_ns`` without the operators inside it."""

    name: str
    count: int
    sum_ns: int
    self_ns: int
    median_ns: int | None


def operator_times(analysis: Analysis, most: int) -> list[OperatorTime]:
    """Operators by self time that begin inside what is selected; those not seen whole are not counted."""
    trace = analysis.trace
    whole = (trace.array("spans", "flags") & NOT_WHOLE) == 0
    inside = analysis.begins_inside("spans")
    rows = np.flatnonzero((trace.array("spans", "kind") == SPAN_KINDS.index("op")) & whole & inside)
    if not len(rows):
        return []
    ranges = nested_ranges(trace, rows)
    length = ranges.end - ranges.start
    alone = length.copy()
    inner = ranges.parent >= 0
    np.subtract.at(alone, ranges.parent[inner], length[inner])
    code, group = np.unique(trace.array("spans", "name")[rows], return_inverse=True)
    total, own = np.zeros(len(code), np.int64), np.zeros(len(code), np.int64)
    np.add.at(total, group, length)
    np.add.at(own, group, np.maximum(alone, 0))
    count = np.bincount(group, minlength=len(code))
    return [
        OperatorTime(
            name=trace.name(int(code[i])),
            count=int(count[i]),
            sum_ns=int(total[i]),
            self_ns=int(own[i]),
            median_ns=percentile(length[group == i], 50),
        )
        for i in np.lexsort((code, -own))[:most].tolist()
    ]
