"""Which idle gaps are paced by launches: nothing was queued, and the device waited for the host to submit more.

In such a gap the deciding thread did nothing but launch: no synchronisation, copy, allocation or CPU stage, and no
long stretch of its own code.
"""

from __future__ import annotations

import numpy as np

from profkit.analysis.context import Analysis
from profkit.model import Mask

LONGEST_PYTHON_NS = 100_000
"""More host code than this between two launches is host work, not the price of a launch."""

_OTHER_WORK = (
    "sync", "copy_call", "allocator", "module_load", "os_wait", "unknown",
    "stage_schedule", "stage_tokenize", "stage_sample", "stage_detokenize",
)  # fmt: skip


def launch_paced(analysis: Analysis) -> Mask:
    """A mask over ``analysis.idle``: gaps that a launch ended and that held nothing but launching."""
    idle, work = analysis.idle, analysis.work
    call = work.call[idle.ends_at] if len(idle) else np.zeros(0, np.int64)
    by_launch = (call >= 0) & (analysis.launch_calls[np.maximum(call, 0)] if len(analysis.launch_calls) else False)
    paced: Mask = by_launch & (idle.parts["python"] <= LONGEST_PYTHON_NS)
    for cause in _OTHER_WORK:
        paced &= idle.parts[cause] == 0
    # A call that had returned before the gap began: the device was late, not the host.
    paced &= idle.parts["launch_latency"] < idle.length
    return paced
