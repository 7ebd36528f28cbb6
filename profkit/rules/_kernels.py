"""What rules about kernels ask of a trace: busy time, names, whether kernels are visible at all."""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import sum_by
from profkit.analysis.work import GRAPHS, KERNELS
from profkit.model import Ints

MOSTLY = 0.5


def no_kernels(analysis: Analysis) -> str:
    """Why kernels cannot be judged, "" if they can: none was recorded, or most time is inside graphs kept as one."""
    if not (analysis.work.table == KERNELS).any():
        return analysis.trace.why_missing("kernels") or "no kernels were recorded"
    graph = sum(device.graph_ns for device in analysis.devices)
    busy = sum(device.busy_ns for device in analysis.devices)
    if (analysis.work.table == GRAPHS).any() and graph > MOSTLY * busy:
        return "most busy time is inside CUDA graphs that were recorded as one piece"
    return ""


def busy_of(analysis: Analysis, device: int) -> int:
    """Busy time of a device, ns; 0 where it has none."""
    return next((times.busy_ns for times in analysis.devices if times.device == device), 0)


def names_of(analysis: Analysis, rows: Ints) -> Ints:
    """Row of ``names`` of each of these rows of work, which are kernels."""
    return analysis.trace.array("kernels", "name")[analysis.work.row[rows]]


def length_of(analysis: Analysis, rows: Ints) -> Ints:
    """Length of each of these rows of work, ns."""
    return analysis.work.end[rows] - analysis.work.start[rows]


def heaviest_name(analysis: Analysis, rows: Ints) -> str:
    """Short name of the kernel that takes most of the time of these rows."""
    names = names_of(analysis, rows)
    total = sum_by(names + 1, length_of(analysis, rows), analysis.trace.rows("names") + 1)
    return analysis.trace.name(int(np.argmax(total)) - 1, "short")
