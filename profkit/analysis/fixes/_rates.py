"""How fast pinned memory is on this machine: from the trace's own pinned copies, else from published figures."""

from __future__ import annotations

import numpy as np

from profkit.analysis.constants import constants
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._find import LARGE_BYTES, copies, is_pageable
from profkit.analysis.replay.model import Model
from profkit.model import Ints

_EXACT_BYTES = 9_000_000_000
_LONGEST_NS = 1 << 62
_FASTEST = 1 << 60
"""Bytes per second. Times that are damaged give more, and no integer holds it."""


def pinned_rate(analysis: Analysis, model: Model, device: int, kind: int) -> tuple[int, str]:
    """(bytes per second, where the figure is from) of large copies from or to pinned memory."""
    ops, kinds, size = copies(analysis, model)
    mine = (kinds == kind) & (size > LARGE_BYTES) & (model.work.device[ops] == device)
    mine &= ~is_pageable(analysis, model, ops)
    length = model.work.end[ops] - model.work.start[ops]
    mine &= length > 0
    if mine.any():
        rates = size[mine] / length[mine]
        rate = int(min(max(float(np.median(rates)) * 1_000_000_000, 1), _FASTEST))
        return rate, f"median of {int(mine.sum()):,} pinned copies of this trace"
    figures = constants()["pinned_copy"]
    name = analysis.device_name(device)
    if any(gpu in name for gpu in figures["pcie5_gpus"]):
        return int(figures["pcie5_bytes_per_s"]), f"PCIe 5 x16, by the GPU's name: {figures['source']}"
    return int(figures["pcie4_bytes_per_s"]), f"PCIe 4 x16, assumed: {figures['source']}"


def pinned_length(size: Ints, rate: int) -> Ints:
    """How long copies of these sizes take at a rate, ns."""
    exact = np.minimum(size, _EXACT_BYTES) * 1_000_000_000 // rate
    # Of 9.2 GB or more the product exceeds 64 bits.
    large = np.minimum(size / rate * 1_000_000_000, _LONGEST_NS).astype(np.int64)
    return np.where(size <= _EXACT_BYTES, exact, large)
