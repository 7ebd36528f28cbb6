"""Which idle gaps are paced by launches: nothing was queued, and the device waited for the host to submit more.

In such a gap the deciding thread did nothing but launch: no synchronisation, copy, allocation or CPU stage, and no
long stretch of its own code.
"""

from __future__ import annotations

from profkit.analysis.idle_pieces import CAUSES, DEVICE_CAUSES, Idle
from profkit.analysis.work import Work
from profkit.model import Mask

LONGEST_PYTHON_NS = 100_000
"""More host code than this between two launches is host work, not the price of a launch."""

_OTHER_WORK = tuple(
    cause for cause in CAUSES if cause not in ("python", "launch_call", "launch_latency", "graph_startup")
)


def launch_paced(idle: Idle, work: Work, launch_calls: Mask) -> Mask:
    """A mask over ``idle``: gaps that a launch ended (``launch_calls`` over calls) and that held nothing but launching.

    Where the call had returned before the gap began, the device was late, not the host.
    """
    call = work.call[idle.ends_at]
    paced: Mask = call >= 0
    paced[paced] = launch_calls[call[paced]]
    paced &= ~idle.any_of(*_OTHER_WORK)
    paced &= idle.part("python") <= LONGEST_PYTHON_NS
    paced &= idle.part(*DEVICE_CAUSES) < idle.length
    return paced
