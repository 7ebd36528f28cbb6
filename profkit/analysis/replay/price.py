"""Prices: the recorded window minus the window of a replay in which something took less time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import union, union_by_group
from profkit.analysis.replay.build import build_model
from profkit.analysis.replay.model import Model, Times
from profkit.analysis.replay.solve import CircleError, replay
from profkit.analysis.replay.trust import Trust, how_far
from profkit.analysis.work import KERNELS, Work
from profkit.arrays import distinct
from profkit.model import Ints, Mask, Window

MOST_OPS = 30_000
"""More device operations than this are replayed as a sample: contiguous steps from the middle of the capture."""

SETTLING = 2
"""Steps until a host that a fix lets run ahead is as far ahead as it can be."""
WAITS_FOR_ITSELF = "with the fix something would wait for itself"

Change = Callable[[Model], Model]


@dataclass(frozen=True)
class Replayed:
    """A model of a trace, or of a sample of it, with its replay as recorded.

    ``step`` is the step of each operation, -1 for none; ``counted`` the steps (positions in ``analysis.steps``) whose
    period is compared; ``scale`` how many times as many such steps the whole trace has.
    """

    model: Model
    times: Times
    trust: Trust
    step: Ints
    counted: Ints
    scale: float
    sampled: str
    """Which part was replayed, in words; empty for all of it."""


@dataclass(frozen=True)
class Difference:
    """What a change gives: ``window_ns`` less over all, ``step_ns`` less a step (None without steps).

    ``steady_ns`` less from the first counted step on (without steps over all): what comes before it happens once.
    """

    window_ns: int
    step_ns: int | None
    steady_ns: int


def start(analysis: Analysis, most: int | None = None) -> Replayed:
    """Build and check the model of a trace, of a sample of ``most`` (MOST_OPS) device operations where it has more."""
    part, words = _part(analysis, MOST_OPS if most is None else most)
    model = build_model(analysis, part)
    steps = analysis.steps
    of = steps.of_work if len(steps) else np.zeros(0, np.int64)
    kept = analysis.clipped[1]
    if len(of) and kept is not None:
        of = np.full(len(analysis.whole_work), -1)
        of[kept] = steps.of_work
    step = of[model.row] if len(of) else np.full(len(model.work), -1)
    compared = _compared(analysis, step)
    return Replayed(
        model=model,
        times=replay(model),
        trust=how_far(model),
        step=step,
        counted=_settled(compared),
        scale=_scale(analysis, len(_compared(analysis, of)), len(compared), len(model.work)) if words else 1.0,
        sampled=words,
    )


def _scale(analysis: Analysis, steps: int, replayed: int, operations: int) -> float:
    """How many times as much as was replayed the trace has: by its steps, without them by its operations."""
    if analysis.selected is not None:
        return 1.0
    if replayed:
        return steps / replayed
    return len(analysis.whole_work) / max(operations, 1)


def difference(analysis: Analysis, replayed: Replayed, change: Change, device: int = -1) -> Difference | None:
    """What a change takes from the window and from a step, ns; negative where it makes things slower.

    With a ``device``: of its work alone, and of the steps of the processes that work on it. None where what the change
    asks for waits for itself.
    """
    try:
        times = replay(change(replayed.model))
    except CircleError:
        return None
    rows = _rows(analysis, replayed, device)
    before, after = (_window(t.start[rows], t.end[rows]) for t in (replayed.times, times))
    crowded = max(_overlap(replayed.model.work, times) - _overlap(replayed.model.work, replayed.times), 0)
    window = before - after - crowded
    steady = window - _earlier(analysis, replayed, times, rows) if len(analysis.steps) else window
    counted = replayed.counted
    if device >= 0:
        counted = counted[np.isin(analysis.steps.process[counted], analysis.processes_of(device))]
    count = len(counted)
    if not count:
        return Difference(round(window * replayed.scale), None, round(steady * replayed.scale))
    saved = int(
        (_periods(analysis, replayed, counted, replayed.times) - _periods(analysis, replayed, counted, times)).sum()
    )
    saved -= crowded * count // max(len(replayed.counted), 1)
    per_step = (2 * saved + count) // (2 * count)
    return Difference(round(window * replayed.scale), per_step, round(steady * replayed.scale))


def _rows(analysis: Analysis, replayed: Replayed, device: int) -> Ints:
    """Operations that the window is of: those of a device, those that begin in what was selected."""
    work = replayed.model.work
    keep = (work.device == device) if device >= 0 else np.ones(len(work), bool)
    if analysis.selected is not None:
        keep &= (work.start >= analysis.selected.start_ns) & (work.start < analysis.selected.end_ns)
    return np.flatnonzero(keep)


def _earlier(analysis: Analysis, replayed: Replayed, times: Times, rows: Ints) -> int:
    """How much less time passes from the first operation to that of the first counted step, ns."""
    counted = np.append(analysis.steps.counted, False)
    mine = rows[counted[replayed.step[rows]]]
    if not len(mine):
        return 0
    before, after = (int(t.start[mine].min()) - int(t.start[rows].min()) for t in (replayed.times, times))
    return before - after


def _overlap(work: Work, times: Times) -> int:
    """How long kernels of different streams of a device run at once, summed over devices, ns.

    A model does not know how much of a device a kernel needs. What runs at once only in the replay may well have to
    wait in truth: then it takes as long as it does one after the other, and no price may count on less.
    """
    total = 0
    for device in distinct(work.device).tolist():
        mine = np.flatnonzero((work.device == device) & (work.table == KERNELS))
        if not len(mine) or work.track[mine].min() == work.track[mine].max():
            continue
        by_stream = union_by_group(times.start[mine], times.end[mine], work.track[mine], int(work.track.max()) + 1)
        total += int(by_stream.sum()) - union(times.start[mine], times.end[mine]).total
    return total


def _window(start: Ints, end: Ints) -> int:
    return int(end.max() - start.min()) if len(start) else 0


def _periods(analysis: Analysis, replayed: Replayed, counted: Ints, times: Times) -> Ints:
    """Period of each of these steps in a replay: from the end of the work of the step before to its own."""
    end = np.full(len(analysis.steps) + 1, -(1 << 60))
    np.maximum.at(end, replayed.step, times.end)
    out: Ints = end[counted] - end[counted - 1]
    return out


def _compared(analysis: Analysis, step: Ints) -> Ints:
    """Counted steps of the main kind, each behind another step of that kind, both with work in the model.

    The period of a decode step behind a prefill is about the prefill, too.
    """
    steps = analysis.steps
    if not len(steps) or not len(step):
        return np.zeros(0, np.int64)
    present = np.zeros(len(steps) + 1, bool)
    present[step] = True
    rows = np.flatnonzero(analysis.counted_steps().mask & present[:-1])
    rows = rows[rows > 0]
    out: Ints = rows[present[rows - 1] & (steps.kind[rows] == steps.kind[rows - 1])]
    return out


def _settled(compared: Ints) -> Ints:
    """These steps but the first ones: until the host is as far ahead as it can be, a replay differs from what lasts."""
    return compared[SETTLING:] if len(compared) >= 5 * SETTLING else compared


def _part(analysis: Analysis, most: int) -> tuple[Window | None, str]:
    """(what of the host's time to replay, in words): all of it where that is not too much."""
    work = analysis.whole_work
    if analysis.selected is not None:
        return _submitting(analysis, analysis.selected), "the window that was selected"
    if len(work) <= most:
        return None, ""
    steps = analysis.steps
    rows = np.flatnonzero(_mask(analysis))
    if len(rows) < 3:
        middle = len(work) // 2
        part = work.where(np.arange(middle - most // 2, middle + most // 2))
        window = part.window
        return window, f"{len(part):,} device operations from the middle of the capture"
    sizes = np.bincount(steps.of_work[steps.of_work >= 0], minlength=len(steps))
    # Work between the steps, and of steps that are not counted, comes along.
    each = max(len(work) / max(len(rows), 1), float(sizes[rows].mean()))
    count = int(min(max(most / each, 2), len(rows)))
    first = (len(rows) - count) // 2
    chosen = rows[first : first + count]
    window = Window(int(steps.host_start[chosen[0]]), int(steps.host_end[chosen[-1]]))
    return window, f"steps {steps.index[chosen[0]]:,} to {steps.index[chosen[-1]]:,}"


def _submitting(analysis: Analysis, selected: Window) -> Window:
    """The selected window, from the first call on that submitted work in it: the host may be far ahead."""
    call = analysis.work.call
    start = analysis.trace.array("calls", "start_ns")[call[call >= 0]]
    return Window(min(int(start.min()), selected.start_ns) if len(start) else selected.start_ns, selected.end_ns)


def _mask(analysis: Analysis) -> Mask:
    """Counted steps of the first process that has any: the lowest rank."""
    steps = analysis.steps
    mask = analysis.counted_steps().mask
    if mask.any():
        mask = mask & (steps.process == steps.process[np.flatnonzero(mask)[0]])
    return mask
