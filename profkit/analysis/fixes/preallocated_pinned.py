"""Pinned memory allocated, registered or freed in steady state: a buffer that was made once."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._calls_gone import calls_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return calls_gone(
        analysis, model, "HostAlloc", "MallocHost", "HostRegister", "HostUnregister", "FreeHost", "MemAllocHost",
        "HostFree", assumed="pinned buffers are made before the first step",
    )  # fmt: skip


FIX = Fix("preallocated-pinned", "PK307", "Make pinned buffers once", find)
