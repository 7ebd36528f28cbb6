"""Steps that launch the same kernels with the same grids: whose times can be compared, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.work import KERNELS
from profkit.arrays import key_of
from profkit.model import Array, Ints
from profkit.rules._kernels import names_of

FEWEST = 20
"""Steps: with fewer, neither a spread nor a drift is told from chance."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class Repeats:
    """``rows`` are positions in ``analysis.work``: one line a step, in order of time, one column a kernel of it."""

    device: int
    rows: Ints
    steps: Ints
    alike: bool
    """Whether the trace says that they are of one batch, or prefill as many tokens."""

    def __len__(self) -> int:
        return len(self.steps)


def find_repeats(analysis: Analysis, device: int) -> Repeats | None:
    """The counted steps of the main kind that launch the same, of the batch that most of their time went to.

    None where fewer than FEWEST of them are alike.
    """
    return analysis.once(("repeats", device), lambda: _find_repeats(analysis, device))


def _find_repeats(analysis: Analysis, device: int) -> Repeats | None:
    work, steps = analysis.work, analysis.steps
    if not len(steps):
        return None
    counted = np.append(analysis.counted_steps(device).mask, False)
    rows = np.flatnonzero((work.table == KERNELS) & (work.device == device) & counted[steps.of_work])
    step = steps.of_work[rows]
    order = key_of(step, work.track[rows])
    if len(order) > 1 and (order[1:] < order[:-1]).any():
        place = np.argsort(order, kind="stable")  # rows are in order of start
        rows, step = rows[place], step[place]
    first = np.flatnonzero(np.append(True, step[1:] != step[:-1])) if len(step) else step
    if len(first) < FEWEST:
        return None
    count = np.diff(np.append(first, len(step)))
    inside = np.arange(len(step)) - np.repeat(first, count)
    mark = np.add.reduceat(_marks(analysis, rows, inside), first)
    batch, tokens = steps.batch[step[first]], steps.prefill_tokens[step[first]]
    kind = key_of(mark.view(np.int64), count, batch, tokens)
    kinds, kind = np.unique(kind, return_inverse=True)
    if not (np.bincount(kind) >= FEWEST).any():
        return None
    size = np.bincount(kind, minlength=len(kinds))
    total = np.bincount(kind, np.add.reduceat((work.end[rows] - work.start[rows]).astype(float), first), len(kinds))
    chosen = np.flatnonzero(kind == int(np.argmax(np.where(size >= FEWEST, total, -1))))
    chosen = chosen[np.argsort(work.start[rows[first[chosen]]], kind="stable")]
    table = rows[first[chosen][:, None] + np.arange(int(count[chosen[0]]))]
    alike = bool(batch[chosen[0]] >= 0 or tokens[chosen[0]] >= 0)
    return Repeats(device, table, step[first[chosen]], alike)


def _marks(analysis: Analysis, rows: Ints, inside: Ints) -> Array:
    """A number of each kernel by name, grid, block and place in its step: sums of them tell steps apart."""
    at = analysis.work.row[rows]
    mark: Array = names_of(analysis, rows).astype(np.uint64)
    for column in ("grid_x", "grid_y", "block_x"):
        mark *= _ODD
        mark += analysis.trace.array("kernels", column)[at].astype(np.uint64)
    mark ^= mark >> np.uint64(29)
    mark *= _MIX
    mark += inside.astype(np.uint64) * _ODD
    mark ^= mark >> np.uint64(31)
    mark *= _MIX
    return mark
