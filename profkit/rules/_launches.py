"""What PK201 and PK202 share: sequences of kernels that wait for their launches, and launches as graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Found
from profkit.analysis.fixes.cuda_graphs import find_runs, of_runs
from profkit.analysis.steps import DECODE, MIXED, PREFILL
from profkit.analysis.steps_kernels import KernelSequence, graph_share
from profkit.analysis.work import KERNELS
from profkit.model import Ints, Mask

SMALLEST_SHARE = 0.10
"""Of the window that the gaps inside of the repetitions must take."""
_MOSTLY = 0.5
_BY_NAME = ("stages", "engine_annotations")


@dataclass(frozen=True)
class Waiting:
    """A sequence of kernels that repeats, and the gaps of ``idle`` inside of it that launching explains.

    ``share`` is the part of the device's kernels that its whole repetitions are.
    """

    sequence: KernelSequence
    gaps: Mask
    device: int
    share: float


def sequences_that_wait(analysis: Analysis) -> list[Waiting]:
    """Sequences that no decode steps name, that no graph replays, and whose GPU waits for launches inside of them."""
    return analysis.once(("sequences that wait",), lambda: _sequences_that_wait(analysis))


def _sequences_that_wait(analysis: Analysis) -> list[Waiting]:
    if all(_has_named_steps(analysis, process) for process in np.unique(analysis.work.process).tolist()):
        return []
    window = analysis.window.dur_ns if analysis.window else 0
    out = []
    for sequence in analysis.kernel_sequences:
        if _has_named_steps(analysis, sequence.process):
            continue
        if graph_share(analysis.trace, analysis.work, sequence.rows) >= _MOSTLY:
            continue
        inside = _gaps_inside(analysis, sequence)
        if window and int(analysis.idle.length[inside].sum()) >= SMALLEST_SHARE * window:
            device = int(analysis.work.device[sequence.rows[0]])
            kernels = int(((analysis.work.device == device) & (analysis.work.table == KERNELS)).sum())
            repeated = int(sequence.repeats.whole.sum()) * sequence.repeats.length
            out.append(Waiting(sequence, inside, device, repeated / max(kernels, 1)))
    return out


def _has_named_steps(analysis: Analysis, process: int) -> bool:
    """Whether steps of a process are known by name: PK201 judges its decodes, and prefills are eager on purpose."""
    steps = analysis.steps
    named = (steps.kind == DECODE) | (steps.kind == MIXED) | (steps.kind == PREFILL)
    return steps.source in _BY_NAME and bool((named & (steps.process == process)).any())


def _gaps_inside(analysis: Analysis, sequence: KernelSequence) -> Mask:
    """Gaps that only launching explains and that a kernel inside a repetition ends, not its first one."""
    repeats = sequence.repeats
    inner = np.zeros(len(sequence.rows) + 1, np.int64)
    np.add.at(inner, repeats.starts[repeats.whole] + 1, 1)
    np.add.at(inner, repeats.ends[repeats.whole], -1)
    is_inner = np.zeros(len(analysis.work), bool)
    is_inner[sequence.rows[np.cumsum(inner)[:-1] > 0]] = True
    idle = analysis.idle
    unrecorded = analysis.work.call[idle.ends_at] < 0
    mask: Mask = is_inner[idle.ends_at] & (analysis.launch_paced | unrecorded)
    return mask


def as_graphs(analysis: Analysis, kernels: Ints) -> Found | None:
    """The launches of these kernels, each run of them as one graph launch."""
    model = analysis.replayed.model
    chosen = np.zeros(len(analysis.whole_work) + 1, bool)
    chosen[analysis.whole_row(kernels)] = True
    calls = model.call[chosen[model.row]]
    keep = np.zeros(len(model.calls), bool)
    keep[calls[calls >= 0]] = True
    keep |= ~analysis.launch_calls[model.calls.row]  # what stands between two launches is judged by its kind
    return of_runs(analysis, model, find_runs(analysis, model, keep))
