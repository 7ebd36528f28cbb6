"""What rules about kernels ask of a trace: busy time, names, whether kernels are visible at all."""

from __future__ import annotations

import re

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import sum_by
from profkit.analysis.work import GRAPHS, KERNELS
from profkit.arrays import distinct
from profkit.model import Ints, Mask
from profkit.text import kernel_family

MOSTLY = 0.5
MOST_OVERLAP = 0.1
"""Of a kernel's length: so much of it may run beside another one, as programmatic launches do by design."""
_VARYING = ("collective", "attention", "moe", "sampling", "kv_cache")
_BY_VALUE = re.compile(r"sort|top_?k|nonzero|unique|scatter|gather|index|embedding|rout|spars|group", re.IGNORECASE)
_LONGEST = 2_000
"""Characters of a name that are looked at."""


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


def runs_alone(analysis: Analysis) -> Mask:
    """Which rows of work run without another kernel or graph on their device, but for a tenth of their length."""
    work = analysis.work
    out = np.zeros(len(work), bool)
    computes = (work.table == KERNELS) | (work.table == GRAPHS)
    for device in distinct(work.device).tolist():
        mine = computes & (work.device == device)
        rows: Ints | slice = slice(None) if mine.all() else np.flatnonzero(mine)
        start, end = work.start[rows], work.end[rows]
        if not len(start):
            continue
        reach = np.maximum.accumulate(end)
        over = np.zeros(len(start), np.int64)
        over[1:] += np.maximum(np.minimum(reach[:-1], end[1:]) - start[1:], 0)
        over[:-1] += np.maximum(end[:-1] - start[1:], 0)
        out[rows] = over <= MOST_OVERLAP * (end - start)
    return out


def dense_names(analysis: Analysis) -> Mask:
    """Kernel names whose work follows from their shapes alone: not from contexts, routing, values or other GPUs."""
    out = np.zeros(analysis.trace.rows("names") + 1, bool)
    for row in distinct(analysis.trace.array("kernels", "name")).tolist():
        short = analysis.trace.name(row, "short")
        out[row] = kernel_family(short) not in _VARYING and not _BY_VALUE.search(short[:_LONGEST])
    return out
