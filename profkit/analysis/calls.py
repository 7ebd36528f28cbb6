"""What kind of call a CUDA or HIP function is, by its name without a version suffix."""

from __future__ import annotations

import re

import numpy as np

from profkit.arrays import distinct
from profkit.model import Array, Trace

CALL_KINDS = ("launch", "graph_launch", "copy", "memset", "sync", "allocator", "module_load", "other")
LAUNCH, GRAPH_LAUNCH, COPY, MEMSET, SYNC, ALLOCATOR, MODULE_LOAD, OTHER = range(len(CALL_KINDS))

# The first pattern that fits decides. Queries (cudaStreamQuery, cudaEventQuery) poll and do not block: other.
_PATTERNS = (
    (GRAPH_LAUNCH, r"GraphLaunch"),
    (LAUNCH, r"LaunchKernel|LaunchCooperative|LaunchGrid|^cuLaunch$|^cudaLaunch$|ModuleLaunch|LaunchHostFunc"),
    (MEMSET, r"[Mm]emset"),
    (COPY, r"[Mm]emcpy|MemPrefetch"),
    (SYNC, r"(Stream|Device|Event|Ctx|Thread)Synchronize"),
    (ALLOCATOR, r"Malloc|Free(?!Function)|MemAlloc|MemCreate|MemMap|HostAlloc|HostRegister|HostUnregister|MemHost"),
    (MODULE_LOAD, r"ModuleLoad|LibraryLoad|LinkCreate|LinkComplete|FuncLoad|GraphInstantiate"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)


def kind_of(name: str) -> int:
    """Index in CALL_KINDS of a call by its base name."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), OTHER)


def call_kinds(trace: Trace) -> Array:
    """Kind of each row of ``calls``, int8."""
    name = trace.array("calls", "name")
    table = np.full(trace.rows("names") + 1, OTHER, np.int8)
    for row in distinct(name).tolist():
        table[row] = kind_of(trace.name(row, "base"))
    return table[name]
