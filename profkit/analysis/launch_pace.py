"""Which idle gaps are paced by launches: nothing was queued, and the device waited for the host to submit more.

In such a gap the deciding thread did nothing but launch: no synchronisation, copy, allocation or CPU stage, and no
long stretch of its own code.
"""

from __future__ import annotations

import numpy as np

from profkit.analysis.idle_pieces import CAUSES, DEVICE_CAUSES, Idle
from profkit.analysis.work import Work
from profkit.model import Array, Ints, Mask

USUAL_TIMES = 8
"""More host code than so many times what usually lies between two launches is host work, not the price of a launch."""
SHORTEST_PYTHON_NS, LONGEST_PYTHON_NS = 20_000, 1_000_000
"""Between these borders."""

_OTHER_WORK = tuple(
    cause for cause in CAUSES if cause not in ("python", "launch_call", "launch_latency", "graph_startup")
)


def most_python(start: Ints, end: Ints, track: Array) -> int:
    """The most host code between two launches that is their price, ns; the launches are in order of time."""
    order = np.argsort(track, kind="stable") if len(track) and (track[1:] != track[:-1]).any() else slice(None)
    start, end, track = start[order], end[order], track[order]
    between = (start[1:] - end[:-1])[track[1:] == track[:-1]]
    usual = int(np.median(between)) if len(between) else 0
    return min(max(USUAL_TIMES * usual, SHORTEST_PYTHON_NS), LONGEST_PYTHON_NS)


def launch_paced(idle: Idle, work: Work, launch_calls: Mask, most_python: int = LONGEST_PYTHON_NS) -> Mask:
    """A mask over ``idle``: gaps that a launch ended (``launch_calls`` over calls) and that held nothing but launching.

    Where the call had returned before the gap began, the device was late, not the host.
    """
    call = work.call[idle.ends_at]
    paced: Mask = call >= 0
    paced[paced] = launch_calls[call[paced]]
    paced &= ~idle.any_of(*_OTHER_WORK)
    paced &= idle.part("python") <= most_python
    paced &= idle.part(*DEVICE_CAUSES) < idle.length
    return paced
