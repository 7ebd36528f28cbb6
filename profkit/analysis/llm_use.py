"""How much of a GPU's bandwidth and arithmetic the steps of a known model used: MBU of decode, MFU of prefill.

MBU = (bytes of the weights that a decode step reads + bytes of the KV cache that it reads) / (time x peak bandwidth);
MFU = 2 x parameters of the layers that a token is multiplied with x tokens / (time x peak of matrix products). Both are
lower bounds of what the GPU did: activations, scores of attention and experts beyond one token's are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.gpu_peaks import Peaks, peaks_of
from profkit.analysis.intervals import union_by_group
from profkit.analysis.llm import Llm, of_trace
from profkit.analysis.steps import DECODE, PREFILL
from profkit.arrays import distinct
from profkit.model import Ints

_KNOWN = 0.9
"""Part of the decode steps whose requests in flight must be as many as their batch: else contexts are not known."""


@dataclass(frozen=True)
class Use:
    """What steps of one kind on one device used. ``work`` is in bytes (decode) or in operations (prefill)."""

    device: int
    kind: str
    steps: Ints
    work: int
    kv_bytes: int
    """Of ``work``; -1 where the contexts are not known."""
    tokens: int
    busy_ns: int
    period_ns: int
    """Of those steps that have a period, grown to all; -1 where none has."""
    peak_per_s: int
    peak_source: str
    world: int

    @property
    def busy_share(self) -> float:
        """Of the peak, over the time in which the device worked for these steps."""
        return self.work * 1e9 / (self.busy_ns * self.peak_per_s)

    @property
    def period_share(self) -> float | None:
        """Of the peak, over all of the time of these steps."""
        return self.work * 1e9 / (self.period_ns * self.peak_per_s) if self.period_ns > 0 else None


def known_model(analysis: Analysis) -> Llm | None:
    """The model that the user named, else the one that the trace names."""
    return analysis.llm or of_trace(analysis.trace)


def uses(analysis: Analysis, llm: Llm) -> tuple[list[Use], str]:
    """(what each device's decode and prefill steps used, why nothing can be said where that is empty)."""
    world, reason = _world(analysis)
    if reason:
        return [], reason
    out: list[Use] = []
    reason = "no step is known to be a decode or a prefill of a known number of tokens"
    for device in distinct(analysis.work.device).tolist():
        peaks = peaks_of(analysis.trace, device, llm.arithmetic)
        for code, find in ((DECODE, _decode), (PREFILL, _prefill)):
            rows = _steps_of(analysis, device, code)
            if not len(rows):
                continue
            found = find(analysis, llm, device, rows, peaks, world)
            if isinstance(found, Use):
                out.append(found)
            else:
                reason = found
    over = next((use for use in out if use.busy_share > 1), None)
    if over is not None:
        return [], _too_much(over, llm)
    return out, "" if out else reason


def _too_much(use: Use, llm: Llm) -> str:
    what = "MBU of decode" if use.kind == "decode" else "MFU of prefill"
    return (
        f"{what} would be {100 * use.busy_share:,.0f} % of the peak: this was not {llm.name} as described, or it is "
        "split over more GPUs than the trace says"
    )


def _world(analysis: Analysis) -> tuple[int, str]:
    """(GPUs that the model is split over, why that is not known)."""
    processes = np.unique(analysis.steps.process)
    world = np.unique(analysis.trace.array("processes", "world_size")[processes]) if len(processes) else processes
    if len(world) == 1 and world[0] > 0:
        return int(world[0]), ""
    devices = len(distinct(analysis.work.device))
    if devices > 1 or len(world) > 1:
        return 1, f"{devices} GPUs worked, and the trace does not say how the model is split over them (world size)"
    return 1, ""


def _steps_of(analysis: Analysis, device: int, kind: int) -> Ints:
    steps = analysis.steps
    mine = np.isin(steps.process, analysis.processes_of(device))
    return np.flatnonzero(mine & steps.counted & (steps.kind == kind) & (steps.gpu_end >= 0))


def _times(analysis: Analysis, device: int, rows: Ints) -> tuple[int, int]:
    """(time in which a device worked for these steps, their periods), ns."""
    work, steps = analysis.work, analysis.steps
    chosen = np.zeros(len(steps) + 1, bool)
    chosen[rows] = True
    mine = np.flatnonzero((work.device == device) & chosen[steps.of_work])
    busy = int(union_by_group(work.start[mine], work.end[mine], steps.of_work[mine], len(steps)).sum())
    known = steps.period[rows][steps.period[rows] >= 0]
    return busy, int(known.sum()) * len(rows) // len(known) if len(known) else -1


def _decode(analysis: Analysis, llm: Llm, device: int, rows: Ints, peaks: Peaks, world: int) -> Use | str:
    if peaks.memory_bytes_per_s <= 0:
        return "the bandwidth of this GPU is not known: the trace does not say it, and its name is in no table"
    weights = llm.read_bytes if llm.read_bytes > 0 else round(llm.active * llm.bytes_per_parameter)
    busy, period = _times(analysis, device, rows)
    if busy <= 0:
        return "no decode step has GPU work"
    contexts = _contexts(analysis, rows) if llm.kv_bytes_per_token > 0 else -1
    kv = contexts * llm.kv_bytes_per_token // world if contexts >= 0 else -1
    batch = analysis.steps.batch[rows]
    return Use(
        device=device,
        kind="decode",
        steps=rows,
        work=weights * len(rows) // world + max(kv, 0),
        kv_bytes=kv,
        tokens=int(batch.sum()) if (batch >= 0).all() else -1,
        busy_ns=busy,
        period_ns=period,
        peak_per_s=peaks.memory_bytes_per_s,
        peak_source=peaks.memory_source,
        world=world,
    )


def _prefill(analysis: Analysis, llm: Llm, device: int, rows: Ints, peaks: Peaks, world: int) -> Use | str:
    if peaks.flops_per_s <= 0:
        return (
            "the peak of this GPU's matrix products is not known for the weights' type"
            if llm.arithmetic
            else "the weights do not tell in which precision they are multiplied"
        )
    rows = rows[analysis.steps.prefill_tokens[rows] > 0]
    busy, period = _times(analysis, device, rows)
    if busy <= 0:
        return "no prefill step says how many tokens it took"
    tokens = int(analysis.steps.prefill_tokens[rows].sum())
    multiplied = llm.multiplied if llm.multiplied > 0 else llm.active
    return Use(
        device=device,
        kind="prefill",
        steps=rows,
        work=2 * multiplied * tokens // world,
        kv_bytes=-1,
        tokens=tokens,
        busy_ns=busy,
        period_ns=period,
        peak_per_s=peaks.flops_per_s,
        peak_source=peaks.flops_source,
        world=world,
    )


def _contexts(analysis: Analysis, rows: Ints) -> int:
    """Tokens in the KV caches that these decode steps read, summed over steps; -1 where they are not known.

    A request in flight has its prompt and one token for each decode step since its first token.
    """
    requests, steps = analysis.requests, analysis.steps
    process = np.unique(steps.process[rows])
    mine = np.isin(requests.process, process) & (requests.first_token >= 0)
    if len(process) != 1 or not mine.any() or (requests.prompt_tokens[mine] < 0).any():
        return -1
    first, prompt = requests.first_token[mine], requests.prompt_tokens[mine]
    end = np.where(requests.end[mine] >= 0, requests.end[mine], np.iinfo(np.int64).max)
    decodes = np.sort(steps.host_start[(steps.process == process[0]) & (steps.kind == DECODE)])
    at = steps.host_start[rows]
    if (at < 0).any():
        return -1
    before = np.searchsorted(decodes, first, side="left")
    flight, prompts, begun = (
        _running(first, values, at) - _running(end, values, at) for values in (np.ones_like(prompt), prompt, before)
    )
    if float((flight == steps.batch[rows]).mean()) < _KNOWN:
        return -1
    done = np.searchsorted(decodes, at, side="left")
    return int((prompts + flight * (done + 1) - begun).sum())


def _running(time: Ints, values: Ints, at: Ints) -> Ints:
    """Sum of the values whose time has come by each of ``at``."""
    order = np.argsort(time, kind="stable")
    total = np.concatenate(([0], np.cumsum(values[order])))
    out: Ints = total[np.searchsorted(time[order], at, side="right")]
    return out
