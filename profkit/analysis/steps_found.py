"""Steps that nobody marked as such: where each begins, and from that its work and whether it was seen whole.

A step that was found lasts from its beginning to the next one's on its lane (the thread that launches it, or the
process where threads do not tell). The last one of a lane ends with its own range or repetition; it was seen whole if
nothing was ever launched outside of those, else where it ended is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from profkit.analysis.work import Work
from profkit.arrays import pack
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import STEP_KINDS

_OTHER = STEP_KINDS.index("other")


@dataclass(frozen=True)
class Openings:
    """Beginnings of steps, by process and time. Times in ns; -1 is "not known".

    ``track`` is the thread whose launches are meant, -1 for any of the process. ``own_end`` ends the range, graph
    launches or kernels that were recognised, before the next step begins. Where ``on_host`` is False no call is known,
    and times are those of the device.
    """

    process: Array
    track: Array
    start: Ints
    own_end: Ints
    kind: Array
    batch: Ints
    prefill_tokens: Ints
    decode_tokens: Ints
    span: Ints
    whole: Mask
    on_host: bool = True

    def __len__(self) -> int:
        return len(self.start)

    def where(self, rows: Ints) -> Openings:
        """Some of them, or all in another order."""
        columns = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "on_host"}
        return Openings(**columns, on_host=self.on_host)


def openings(
    process: Array, track: Array, start: Ints, own_end: Ints, whole: Mask | None = None, on_host: bool = True
) -> Openings:
    """Beginnings of which nothing but the time is known."""
    n = len(start)
    unknown = np.full(n, -1, np.int64)
    return Openings(
        process=process,
        track=track,
        start=start,
        own_end=own_end,
        kind=np.full(n, _OTHER, np.int8),
        batch=unknown,
        prefill_tokens=unknown,
        decode_tokens=unknown,
        span=unknown,
        whole=np.ones(n, bool) if whole is None else whole,
        on_host=on_host,
    )


@dataclass(frozen=True)
class Found:
    """Openings in order of process and time, the end of each, the step of each device row, and which were whole."""

    at: Openings
    end: Ints
    of_work: Ints
    whole: Mask


def claim_work(trace: Trace, work: Work, found: Openings) -> Found:
    """Give each device row to the step that was on when its lane launched it; -1 where none was."""
    found = found.where(np.lexsort((found.start, found.process)))
    order = np.lexsort((found.start, found.track, found.process))
    lane = found.where(order)
    last = np.ones(len(lane), bool)
    last[:-1] = (lane.process[1:] != lane.process[:-1]) | (lane.track[1:] != lane.track[:-1])
    end = np.append(lane.start[1:], 0)
    end[last] = lane.own_end[last]

    time, thread, known = _launched(trace, work, found)
    key, wanted = pack([[lane.process, work.process], [lane.track, thread], [lane.start, time]])
    at = np.searchsorted(key, wanted, side="right") - 1
    safe = np.maximum(at, 0)
    mine = known & (at >= 0) & (lane.process[safe] == work.process) & (lane.track[safe] == thread)
    # Work outside of what was recognised: then the last step of the lane may have had more of it, too.
    outside = np.zeros(len(lane), bool)
    outside[safe[mine & (time >= lane.own_end[safe])]] = True
    lanes = np.cumsum(last) - last
    spills = np.bincount(lanes, outside) > 0
    whole = lane.whole & ~(last & spills[lanes])
    number = np.where(mine & (time < end[safe]), order[safe], -1)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return Found(found, end[back], number, whole[back])


def _launched(trace: Trace, work: Work, found: Openings) -> tuple[Ints, Array, Mask]:
    """(time, thread as the lanes have it, whether known) of the launch of each device row."""
    anyone = np.full(len(work), -1, np.int64)
    if not found.on_host:
        return work.start, anyone, np.ones(len(work), bool)
    known = work.call >= 0
    call = np.maximum(work.call, 0)
    start = trace.array("calls", "start_ns")
    if not len(start):
        return np.zeros(len(work), np.int64), anyone, known
    by_thread = bool((found.track >= 0).any())
    return start[call], trace.array("calls", "track")[call] if by_thread else anyone, known
