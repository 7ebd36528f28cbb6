"""Process and thread numbers of a trace in the trace event format, and their names.

Host processes keep their pid and threads their tid where these are distinct; devices get numbers above every pid that
an operating system gives, so that GPU and CPU never share a lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from profkit.arrays import numbered
from profkit.export._nesting import MOST_LANES
from profkit.model import Array, Ints, Trace

FIRST_GPU = 5_000_000  # Linux gives pids below 2^22
FIRST_FREE = 6_000_000
_SPARE = 100


@dataclass
class Lanes:
    """Numbers by row: ``process[-1]`` and ``track_pid[-1]`` serve rows without one; lanes exist when used."""

    process: Ints
    track_pid: Ints
    track_tid: Ints
    labels: list[str]
    used: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(pid, tid, name, place in the order) of each lane by its number."""
    _numbers: dict[tuple[int, str, int], int] = field(default_factory=dict)

    def place(self, track: Array, sub: Ints, what: str = "") -> Array:
        """Number of the lane of each row: its track's own, or a further one for ``sub`` > 0 or for ``what``; int32."""
        keys, _, back = numbered((track.astype(np.int64) + 1) * MOST_LANES + sub)
        found = [self._lane(key // MOST_LANES - 1, key % MOST_LANES, what) for key in keys.tolist()]
        return np.asarray(found, np.int32)[back] if len(track) else np.zeros(0, np.int32)

    def texts(self) -> pa.Array:
        """``"pid":1,"tid":2`` by number of the lane."""
        return pa.array([f'"pid":{pid},"tid":{tid}' for pid, tid, _, _ in self.used], pa.string())

    def _lane(self, track: int, sub: int, what: str) -> int:
        key = (track, what, sub)
        if key not in self._numbers:
            own = not what and sub == 0
            label = self.labels[track] + (f", {what}" if what else "") + (f" ({sub + 1})" if sub else "")
            tid = int(self.track_tid[track]) if own else FIRST_FREE + len(self.used)
            self._numbers[key] = len(self.used)
            place = _SPARE * (track + 1) + (sub if not what else sub + 1)
            self.used.append((int(self.track_pid[track]), tid, label, place))
        return self._numbers[key]


def number_lanes(trace: Trace) -> Lanes:
    """Numbers for every process, device and track of a trace."""
    pids = _distinct([int(pid) for pid in trace.array("processes", "pid")], FIRST_FREE)
    process = np.asarray([*pids, FIRST_FREE - 1], np.int64)
    track_pid, wanted = [], []
    owners, devices = trace.array("tracks", "process"), trace.array("tracks", "device")
    for row in range(trace.rows("tracks")):
        device = int(devices[row])
        track_pid.append(FIRST_GPU + device if device >= 0 else int(process[owners[row]]))
        wanted.append(int(trace.array("tracks", "stream" if device >= 0 else "tid")[row]))
    tids: list[int] = [0] * len(wanted)
    for pid in sorted(set(track_pid)):
        mine = [row for row in range(len(wanted)) if track_pid[row] == pid]
        numbers = _distinct([wanted[row] for row in mine], 2 * FIRST_FREE)
        for row, number in zip(mine, numbers, strict=True):
            tids[row] = number
    labels = [label or f"track {row}" for row, label in enumerate(trace.text("tracks", "label"))]
    return Lanes(
        process,
        np.asarray([*track_pid, FIRST_FREE - 1], np.int64),
        np.asarray([*tids, 0], np.int64),
        [*labels, "not known"],
    )


def process_names(trace: Trace, lanes: Lanes) -> Iterator[tuple[int, str, int]]:
    """(pid, name, place in the order): devices first, then processes."""
    for row, name in enumerate(trace.text("devices", "name")):
        yield FIRST_GPU + row, f"GPU {row}" + (f": {name}" if name else ""), row
    ranks = trace.array("processes", "rank")
    hosts, of_host = trace.text("hosts", "hostname"), trace.array("processes", "host")
    for row, name in enumerate(trace.text("processes", "name")):
        words = name.replace("\\", "/").rsplit("/", 1)[-1] or "process"
        words += f" {int(trace.array('processes', 'pid')[row])}"
        words += f", rank {int(ranks[row])}" if ranks[row] >= 0 else ""
        words += f", {hosts[of_host[row]]}" if len(hosts) > 1 and of_host[row] >= 0 else ""
        yield int(lanes.process[row]), words, trace.rows("devices") + row
    if any(pid == int(lanes.process[-1]) for pid, *_ in lanes.used):
        yield int(lanes.process[-1]), "not known", 1_000_000


def _distinct(wanted: list[int], free: int) -> list[int]:
    """Each wanted number where it is positive, small and not taken yet; else the next free one."""
    out: list[int] = []
    taken: set[int] = set()
    for number in wanted:
        if not 0 < number < FIRST_GPU or number in taken:
            number, free = free, free + 1
        taken.add(number)
        out.append(number)
    return out
