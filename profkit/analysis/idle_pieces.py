"""Idle time of devices as pieces, each with one cause: totals, shares of gaps and the table are sums of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profkit.analysis.calls import CALL_CAUSES
from profkit.analysis.intervals import sum_by
from profkit.arrays import index_type
from profkit.model import Array, Ints, Mask

CPU_STAGES = ("schedule", "tokenize", "sample", "detokenize")
"""Stages whose own host work has a name of its own; inside the others it is called python."""

STAGE_CAUSES = tuple(f"stage_{stage}" for stage in CPU_STAGES)
HOST_CAUSES = ("python", *STAGE_CAUSES, "os_wait", "off_cpu", "gil")
"""The host thread was not in a CUDA call."""

DEVICE_CAUSES = ("event_wait", "launch_latency", "graph_startup")
"""The call had returned: the device had its work and was not there yet."""

CAUSES = (*HOST_CAUSES, *CALL_CAUSES, "profiler", *DEVICE_CAUSES, "unknown")
APART = ("not_collected", "startup", "tail")
"""Outside of collection, before the first row of a device, after its last."""

EVERY = (*CAUSES, *APART)
CODES = {cause: code for code, cause in enumerate(EVERY)}


@dataclass(frozen=True)
class Pieces:
    """Pieces of idle time [start, end), ns. ``cause`` indexes EVERY, int8.

    ``gap`` is the gap of :class:`Idle` that a piece is of; -1 for startup and tail, which come first. The others are in
    order of gap and time.
    """

    device: Array
    start: Ints
    end: Ints
    cause: Array
    gap: Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> Ints:
        return self.end - self.start


@dataclass(frozen=True)
class Idle:
    """Gaps between device work, by device and time, and the pieces that they and the edges of the window are cut into.

    The pieces of a device do not overlap, and add up to its idle time inside the window.
    """

    device: Array
    start: Ints
    end: Ints
    ends_at: Array
    """Device row (position in Work) whose start ends the gap."""
    pieces: Pieces

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> Ints:
        return self.end - self.start

    @cached_property
    def _first(self) -> int:
        """Number of pieces that are of no gap."""
        return int(np.searchsorted(self.pieces.gap, 0))

    def part(self, *causes: str) -> Ints:
        """How much of each gap these causes take together, ns."""
        mine = self._of(causes)
        return sum_by(self.pieces.gap[mine], self.pieces.end[mine] - self.pieces.start[mine], len(self))

    def any_of(self, *causes: str) -> Mask:
        """Gaps in which one of these causes occurs."""
        out = np.zeros(len(self), bool)
        out[self.pieces.gap[self._of(causes)]] = True
        return out

    def _of(self, causes: tuple[str, ...]) -> Ints:
        wanted = np.zeros(len(EVERY), bool)
        wanted[[CODES[cause] for cause in causes]] = True
        return np.flatnonzero(wanted[self.pieces.cause[self._first :]]) + self._first

    def by_cause(self, device: int | None = None) -> dict[str, int]:
        """Idle time by cause, ns, of a device or of all; it adds up to their idle time inside the window."""
        sums = self._sums.sum(axis=0) if device is None else self._sums[device + 1 : device + 2].sum(axis=0)
        return dict(zip(EVERY, sums.tolist(), strict=True))

    @cached_property
    def _sums(self) -> Ints:
        """Idle time by device (from -1, where the trace does not say it) and cause."""
        pieces = self.pieces
        devices = int(pieces.device.max(initial=-1)) + 2
        key = (pieces.device.astype(np.int32) + 1) * len(EVERY) + pieces.cause
        return sum_by(key, pieces.length, devices * len(EVERY)).reshape(devices, len(EVERY))

    def where(self, gaps: Ints) -> Idle:
        """Some of the gaps, in order, without startup and tail. Costs what they hold, not what there is."""
        pieces = self.pieces
        low, high = (np.searchsorted(pieces.gap, gaps, side=side) for side in ("left", "right"))
        count = high - low
        mine = np.arange(int(count.sum())) + np.repeat(low - (np.cumsum(count) - count), count)
        number = np.repeat(np.arange(len(gaps), dtype=np.int32), count)
        part = Pieces(pieces.device[mine], pieces.start[mine], pieces.end[mine], pieces.cause[mine], number)
        return Idle(self.device[gaps], self.start[gaps], self.end[gaps], self.ends_at[gaps], part)

    def main_cause(self) -> Array:
        """The cause that takes most of each gap, as an index in EVERY; the first one of those that take the same."""
        first, pieces = self._first, self.pieces
        key = pieces.gap[first:].astype(np.int64) * len(EVERY) + pieces.cause[first:]
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        length = pieces.length[first:]
        total = np.add.reduceat(length[order], starts) if len(starts) else length
        key = key[order][starts]
        by_length = np.lexsort((key, -total, key // len(EVERY)))
        gap = key[by_length] // len(EVERY)
        return (key[by_length] % len(EVERY))[np.diff(gap, prepend=-1) > 0]

    def by_group(self, group: Ints, groups: int) -> dict[str, Ints]:
        """Idle time by cause and group, ns; ``group`` is that of each gap, -1 for none.

        The arrays have one entry a group, and a last one for gaps of no group, for startup and tail: together they add
        up to :meth:`by_cause`.
        """
        first = np.append(np.where(group >= 0, group, groups), groups) * len(EVERY)
        key: Array = first.astype(index_type((groups + 1) * len(EVERY)))[self.pieces.gap]
        key = np.add(key, self.pieces.cause, out=key)
        sums = sum_by(key, self.pieces.length, (groups + 1) * len(EVERY)).reshape(groups + 1, len(EVERY))
        return {cause: sums[:, code] for code, cause in enumerate(EVERY)}
