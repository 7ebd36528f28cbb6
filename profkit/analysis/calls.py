"""What kind of call a CUDA or HIP function is, by its name without a version suffix."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from profkit.arrays import distinct
from profkit.model import Array, Mask, Trace

CALL_KINDS = ("launch", "graph_launch", "copy", "memset", "sync", "allocator", "module_load", "other")
LAUNCH, GRAPH_LAUNCH, COPY, MEMSET, SYNC, ALLOCATOR, MODULE_LOAD, OTHER = range(len(CALL_KINDS))

# The first pattern that fits decides. Queries (cudaStreamQuery, cudaEventQuery) poll and do not block: other.
_PATTERNS = (
    (GRAPH_LAUNCH, r"GraphLaunch"),
    (LAUNCH, r"LaunchKernel|LaunchCooperative|LaunchGrid|^cuLaunch$|^cudaLaunch$|ModuleLaunch|LaunchHostFunc"),
    (MEMSET, r"[Mm]emset"),
    (COPY, r"[Mm]emcpy|MemPrefetch"),
    (SYNC, r"(Stream|Device|Event|Ctx|Thread)Synchronize"),
    (
        ALLOCATOR,
        r"Malloc|Free(?!Function)|Mem(Alloc|Create|Map|Unmap|Release|Address|PoolTrim|Host)|Host(Alloc|Register|Unreg)",
    ),
    (MODULE_LOAD, r"ModuleLoad|LibraryLoad|LinkCreate|LinkAdd|LinkComplete|FuncLoad|GraphInstantiate|GraphExecUpdate"),
)
_SUBMITS = re.compile(r"EventRecord|StreamWaitEvent|StreamWaitValue|StreamWriteValue|GraphUpload")
"""Calls that put something on a stream that is no work of the device: they cost the host what a launch costs."""

_WAITS_FOR_EVENT = re.compile(r"StreamWaitEvent")

CALL_CAUSES = ("launch_call", "copy_call", "sync", "allocator", "module_load")
"""What a host thread does in a call, for idle time by cause."""

# Calls that neither submit work nor wait for it (creating a stream, asking for a property) are the host's own work.
_CAUSE_OF_KIND = {
    LAUNCH: "launch_call",
    GRAPH_LAUNCH: "launch_call",
    SYNC: "sync",
    COPY: "copy_call",
    MEMSET: "copy_call",
    ALLOCATOR: "allocator",
    MODULE_LOAD: "module_load",
}
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)


def kind_of(name: str) -> int:
    """Index in CALL_KINDS of a call by its base name."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), OTHER)


def cause_of(name: str) -> int:
    """Index in CALL_CAUSES of a call by its base name, -1 for the host's own work."""
    cause = "launch_call" if _SUBMITS.search(name) else _CAUSE_OF_KIND.get(kind_of(name))
    return -1 if cause is None else CALL_CAUSES.index(cause)


def call_kinds(trace: Trace) -> Array:
    """Kind of each row of ``calls``, int8."""
    return _by_name(trace, kind_of, OTHER)


def call_causes(trace: Trace) -> Array:
    """What the thread of each row of ``calls`` does in it: index in CALL_CAUSES or -1, int8."""
    return _by_name(trace, cause_of, -1)


def event_waits(trace: Trace) -> Mask:
    """Which rows of ``calls`` make a stream wait for an event."""
    mask: Mask = _by_name(trace, lambda name: int(bool(_WAITS_FOR_EVENT.search(name))), 0) == 1
    return mask


def _by_name(trace: Trace, code: Callable[[str], int], default: int) -> Array:
    name = trace.array("calls", "name")
    table = np.full(trace.rows("names") + 1, default, np.int8)  # the last one is for calls without a name
    for row in distinct(name).tolist():
        table[row] = code(trace.name(row, "base"))
    return table[name]
