"""Kernels of collectives: how long they ran, beside which compute, and what calling them cost the host."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import union
from profkit.analysis.work import GRAPHS, KERNELS
from profkit.model import Mask, Trace

_LIBRARIES = ("nccl", "rccl")
_CALL = re.compile(
    r"nccl:|r?nccl[A-Z]|c10d::(all|broadcast|reduce|send|recv|gather|scatter|barrier)|record_param_comms"
)


def communication_facts(analysis: Analysis) -> dict[str, Any] | None:
    """What ``check --json`` says of communication; None without GPU rows.

    ``nccl_ns`` and ``custom_ns`` are sums over kernels, by their names; ``busy_ns`` is their union on each device,
    added over devices; ``overlapped_ns`` is the part in which the same device also ran other kernels. The overlap is
    None without such kernels, and where graphs were recorded as one piece: what ran inside is not known. ``host_ns`` is
    what the calls took on the host, a sum over their ranges: it is no part of the others.
    """
    if not analysis.has_gpu_rows:
        return None
    trace, work = analysis.trace, analysis.work
    collective, library = _by_name(trace)
    kernel = work.table == KERNELS
    name = np.where(kernel, trace.array("kernels", "name")[np.where(kernel, work.row, 0)], -1) if kernel.any() else -1
    mine = (name >= 0) & collective[np.maximum(name, 0)] if collective.any() else np.zeros(len(work), bool)
    length = work.end[mine] - work.start[mine]
    by_library = library[np.broadcast_to(name, len(work))[mine]] if mine.any() else np.zeros(0, bool)
    busy, overlapped = _overlap(analysis, mine, kernel & ~mine)
    hidden = bool((work.table == GRAPHS).any())
    ranges, host = _on_host(analysis)
    return {
        "kernels": int(mine.sum()),
        "nccl_ns": int(length[by_library].sum()),
        "custom_ns": int(length[~by_library].sum()),
        "busy_ns": busy,
        "overlapped_ns": overlapped if busy and not hidden else None,
        "overlap_share": overlapped / busy if busy and not hidden else None,
        "host_calls": ranges,
        "host_ns": host if ranges else None,
    }


def _by_name(trace: Trace) -> tuple[Mask, Mask]:
    """Rows of ``names`` that are kernels of collectives, and those of them of a library for collectives."""
    collective = np.asarray([family == "collective" for family in trace.text("names", "family")], bool)
    library = collective.copy()
    for row in np.flatnonzero(collective).tolist():
        library[row] = any(word in trace.name(row).lower() for word in _LIBRARIES)
    return collective, library


def _overlap(analysis: Analysis, mine: Mask, others: Mask) -> tuple[int, int]:
    """(busy time of some kernels, the part of it in which others ran), each device's own, added."""
    work, busy, overlapped = analysis.work, 0, 0
    for device in np.unique(work.device[mine]).tolist():
        on_device = work.device == device
        some = union(work.start[on_device & mine], work.end[on_device & mine])
        rest = union(work.start[on_device & others], work.end[on_device & others])
        busy += some.total
        overlapped += int(rest.covered(some.start, some.end).sum())
    return busy, overlapped


def _on_host(analysis: Analysis) -> tuple[int, int]:
    """(outermost ranges that are calls of collectives by their name, their summed length) of what is selected."""
    trace = analysis.trace
    name, parent = trace.array("spans", "name"), trace.array("spans", "parent")
    calls = trace.name_rows(lambda text: _CALL.match(text) is not None, "text")
    if not calls.any():
        return 0, 0
    mine = (name >= 0) & calls[np.maximum(name, 0)]
    rows = np.flatnonzero(mine & ~((parent >= 0) & mine[np.maximum(parent, 0)]) & analysis.begins_inside("spans"))
    return len(rows), int(trace.array("spans", "dur_ns")[rows].sum())
