"""Whether the steps of a trace settled: from which step on their periods stay about the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.intervals import percentile
from profkit.analysis.steps import Steps
from profkit.model import Ints, Window

TOLERANCE = 0.25
"""Part of the median that a period, and the median of a half, may be away from it."""
FEWEST_PERIODS = 4
_STARTS = (0, 1, 2)
"""Quarters of the steps that may be left out at the start."""


@dataclass(frozen=True)
class Steady:
    """The steady window: ``steps`` counted steps from the one with this ``first`` index on.

    None of it exists where ``window`` is None: the periods never settled.
    """

    first: int
    steps: int
    of: int
    median_ns: int
    window: Window | None


def find_steady(steps: Steps) -> Steady | None:
    """The steady window over the counted steps of the main kind; None with less than four periods: too few to tell.

    Periods are steady if at least half of them are within 25 % of their median, and the medians of their first and of
    their second half, too. The window begins with the first counted step, else behind a quarter of them, else behind
    half, and always lasts to the last one.
    """
    kind = steps.main_kind()
    rows = np.flatnonzero(steps.counted & steps.lead & (steps.period >= 0) & (steps.kind == kind))
    rows = rows[np.argsort(steps.gpu_end[rows], kind="stable")]
    if kind is None or len(rows) < FEWEST_PERIODS:
        return None
    for quarter in _STARTS:
        kept = rows[len(rows) * quarter // 4 :]
        if len(kept) >= FEWEST_PERIODS and _is_steady(steps.period[kept]):
            window = Window(int(steps.gpu_end[kept[0]] - steps.period[kept[0]]), int(steps.gpu_end[kept[-1]]))
            median = percentile(steps.period[kept], 50) or 0
            return Steady(int(steps.index[kept[0]]), len(kept), len(rows), median, window)
    return Steady(-1, 0, len(rows), percentile(steps.period[rows], 50) or 0, None)


def _is_steady(period: Ints) -> bool:
    median = percentile(period, 50) or 0
    near = np.abs(period - median) <= TOLERANCE * median
    half = len(period) // 2
    halves = [percentile(part, 50) or 0 for part in (period[:half], period[half:])]
    return bool(2 * int(near.sum()) >= len(period)) and all(abs(m - median) <= TOLERANCE * median for m in halves)
