"""Steps: one iteration of one engine process, with the GPU work that it launched.

A step is an outermost ``prefill`` or ``decode`` range of a thread; both after one ``schedule`` that stands outside of
them make one mixed step. Where no such range exists, the first of these that a trace has: PyTorch's ``ProfilerStep#N``,
annotations of an inference engine, CUDA graph launches, kernel sequences that repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from profkit.analysis.intervals import percentile
from profkit.analysis.spans import Ranges, nested_ranges, owners
from profkit.analysis.steps_engines import find_engine_steps
from profkit.analysis.steps_found import Openings, claim_work
from profkit.analysis.steps_graphs import find_graph_steps
from profkit.analysis.steps_kernels import find_sequences, sequence_openings
from profkit.analysis.steps_ranks import share_index
from profkit.analysis.work import Work
from profkit.arrays import inside_any
from profkit.model import Array, Ints, Mask, Trace, Window
from profkit.schema import PAYLOAD_KINDS, SPAN_KINDS, STAGES, STEP_KINDS, TABLES

PREFILL, DECODE, MIXED, OTHER = (STEP_KINDS.index(kind) for kind in ("prefill", "decode", "mixed", "other"))
_PREFILL, _DECODE, _SCHEDULE = (STAGES.index(stage) for stage in ("prefill", "decode", "schedule"))
_INT = PAYLOAD_KINDS.index("int")
_PROFILER_STEP = "ProfilerStep#"

WARM_UP_FACTOR = 2
"""A leading step is warm-up if it took more than this many medians of its kind."""
_FEWEST_FOR_WARM_UP = 4
_DECODE_SHARE = 0.25
"""Of the time of all counted steps: people mean decode steps, also where prefills take longer together."""
_MOST_WORK = 0.5
"""Part of the GPU rows that graph launches must account for to be the steps."""
SOURCES = {
    "": "",
    "stages": "",
    "profiler_steps": "profiler",
    "engine_annotations": "engine",
    "graph_launches": "graph",
    "kernel_sequences": "repeating",
}
"""What steps were found from, and the word for one that neither prefills nor decodes."""


@dataclass(frozen=True)
class Steps:
    """Steps in order of process and host start; arrays have one entry a step, as in the table ``steps``."""

    process: Array
    index: Ints
    kind: Array
    host_start: Ints
    host_end: Ints
    gpu_start: Ints
    gpu_end: Ints
    period: Ints
    batch: Ints
    prefill_tokens: Ints
    decode_tokens: Ints
    warm_up: Mask
    complete: Mask
    span: Ints
    lead: Mask
    """Of a process that is the lowest rank of its engine, or no rank: per-step numbers come from these."""
    of_work: Ints
    """Step of each device row, -1 for none."""
    source: str
    """A key of SOURCES, empty where there are none."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def counted(self) -> Mask:
        """Steps that percentiles use: whole, and no warm-up."""
        mask: Mask = self.complete & ~self.warm_up
        return mask

    def of_processes(self, processes: Array) -> Steps:
        """The steps of some processes; ``of_work`` is not kept."""
        return self._where(np.isin(self.process, processes))

    def inside(self, window: Window, kept: Ints) -> Steps:
        """The steps whose GPU work (without any, whose range) is inside a window, numbered as before.

        ``kept`` are the positions of the device rows that remain, in the rows that ``of_work`` is about.
        """
        start = np.where(self.gpu_start >= 0, self.gpu_start, self.host_start)
        end = np.where(self.gpu_end >= 0, self.gpu_end, self.host_end)
        keep = (start >= window.start_ns) & (end <= window.end_ns)
        number = np.where(keep, np.cumsum(keep) - 1, -1)
        step = self.of_work[kept]
        return replace(
            self._where(keep), of_work=np.where(step >= 0, number[np.maximum(step, 0)], -1) if len(number) else step
        )

    def _where(self, keep: Mask) -> Steps:
        """Some of the steps; ``of_work`` is not kept."""
        columns = {f.name: getattr(self, f.name)[keep] for f in fields(self) if f.name not in ("of_work", "source")}
        return replace(self, **columns, of_work=np.zeros(0, np.int64))

    @property
    def host_ns(self) -> Ints:
        """Length of each step on the host, -1 where no call of it was recorded."""
        return np.where(self.host_start >= 0, self.host_end - self.host_start, -1)

    def word(self, kind: int) -> str:
        """A word for steps of a kind: prefill, decode, mixed, or what they were found from."""
        return STEP_KINDS[kind] if kind != OTHER else SOURCES[self.source] or STEP_KINDS[kind]

    def periods(self, kind: int | None = None) -> Ints:
        """Periods of the counted steps of a kind, or of all, of the lowest rank; ns."""
        keep = self.counted & self.lead & (self.period >= 0)
        return self.period[keep if kind is None else keep & (self.kind == kind)]

    def main_kind(self) -> int | None:
        """The kind that "a step" means: see :func:`main_of`; None without any."""
        return main_of({int(kind): int(self.periods(int(kind)).sum()) for kind in np.unique(self.kind)})

    def table(self) -> pa.Table:
        """The derived table ``steps``."""
        columns = [
            self.process, self.index, self.kind, self.host_start, self.host_end, self.gpu_start, self.gpu_end,
            self.period, self.batch, self.prefill_tokens, self.decode_tokens, self.warm_up, self.complete, self.span,
        ]  # fmt: skip
        schema = TABLES["steps"].schema
        arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


def main_of(totals: Mapping[int, int]) -> int | None:
    """Of kinds with their times, ns: decode where it takes a quarter of all, else what takes most; None without any."""
    if not any(totals.values()):
        return None
    if totals.get(DECODE, 0) >= _DECODE_SHARE * sum(totals.values()):
        return DECODE
    return max(totals, key=lambda kind: (totals[kind], -kind))


def find_steps(trace: Trace, ranges: Ranges, work: Work) -> Steps:
    """Steps of a trace; ``ranges`` are its stage ranges."""
    outer = _outermost(ranges)
    if len(outer):
        return _of_ranges(trace, ranges, outer, work, "stages")
    rows = _profiler_steps(trace)
    if not len(rows):
        for source, found in _found(trace, work):
            return _of_openings(trace, work, found, source)
    ranges = nested_ranges(trace, rows)
    return _of_ranges(trace, ranges, np.arange(len(ranges)), work, "profiler_steps" if len(rows) else "")


def _found(trace: Trace, work: Work) -> Iterator[tuple[str, Openings]]:
    """Steps that were found, by what was looked at: what is likeliest first."""
    engine = find_engine_steps(trace)
    if engine is not None:
        yield "engine_annotations", engine
    graphs = find_graph_steps(trace, work)
    if graphs is not None and int((claim_work(trace, work, graphs).of_work >= 0).sum()) >= _MOST_WORK * len(work):
        yield "graph_launches", graphs
    kernels = sequence_openings(trace, work, find_sequences(trace, work))
    if kernels is not None:
        yield "kernel_sequences", kernels


def _of_ranges(trace: Trace, ranges: Ranges, outer: Ints, work: Work, source: str) -> Steps:
    """Steps from ranges that enclose them."""
    step_of_range, order = _group(trace, ranges, outer)
    steps = _host_side(trace, ranges, outer, step_of_range, order)
    owner = owners(trace, nested_ranges(trace, ranges.row[outer]), work)
    of_work = np.where(owner >= 0, step_of_range[np.maximum(owner, 0)], -1) if len(outer) else owner
    return _finished(trace, work, steps, of_work, source)


def _of_openings(trace: Trace, work: Work, found: Openings, source: str) -> Steps:
    """Steps of which only the beginnings are known."""
    claimed = claim_work(trace, work, found)
    at = claimed.at
    absent = np.full(len(at), -1, np.int64)
    steps = {
        "process": at.process,
        "index": _numbers(at.process),
        "kind": at.kind,
        "host_start": at.start if at.on_host else absent,
        "host_end": claimed.end if at.on_host else absent,
        "batch": at.batch,
        "prefill_tokens": at.prefill_tokens,
        "decode_tokens": at.decode_tokens,
        "span": at.span,
        "whole": claimed.whole,
    }
    return _finished(trace, work, steps, claimed.of_work, source)


def _finished(trace: Trace, work: Work, steps: dict[str, Array], of_work: Ints, source: str) -> Steps:
    """Add what follows from the GPU work of steps."""
    gpu_start, gpu_end = _gpu_side(work, of_work, len(steps["index"]))
    complete = steps.pop("whole") & ((gpu_end >= 0) | ~_kinds_with_work(steps["kind"], gpu_end))
    on_host = steps["host_start"] >= 0
    length = np.where(on_host, steps["host_end"] - steps["host_start"], gpu_end - gpu_start)
    when = np.where(gpu_end >= 0, gpu_end, steps["host_end"])
    steps["index"], lead = share_index(trace, steps["process"], steps["index"], when)
    return Steps(
        **steps,
        gpu_start=gpu_start,
        gpu_end=gpu_end,
        period=_periods(steps["process"], gpu_end),
        complete=complete,
        warm_up=_warm_up(steps["process"], steps["kind"], length, complete),
        lead=lead,
        of_work=of_work,
        source=source,
    )


def _outermost(ranges: Ranges) -> Ints:
    """Positions of prefill and decode ranges that stand in no other of them."""
    is_step = (ranges.stage == _PREFILL) | (ranges.stage == _DECODE)
    return np.flatnonzero(is_step & ~inside_any(ranges.parent, is_step))


def _profiler_steps(trace: Trace) -> Ints:
    is_step = trace.name_rows(lambda name: name.startswith(_PROFILER_STEP), "text")
    name = trace.array("spans", "name")
    mask = (name >= 0) & (trace.array("spans", "kind") != SPAN_KINDS.index("mark"))
    mask &= is_step[np.maximum(name, 0)] if len(is_step) else False
    return np.flatnonzero(mask)


def _group(trace: Trace, ranges: Ranges, outer: Ints) -> tuple[Ints, Ints]:
    """(step of each outermost range, position of the first range of each step)."""
    n = len(outer)
    if not n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    start, track = ranges.start[outer], ranges.track[outer]
    # The schedule that came last before it on its thread, outside of any step.
    schedules = np.flatnonzero(ranges.stage == _SCHEDULE)
    schedules = schedules[_outside(ranges, schedules, outer)]
    schedule = np.full(n, -1, np.int64)
    for lane in np.unique(track).tolist():
        mine, theirs = np.flatnonzero(track == lane), schedules[ranges.track[schedules] == lane]
        schedule[mine] = np.searchsorted(ranges.start[theirs], start[mine], side="right") - 1
    order = np.lexsort((start, track))
    sorted_track, sorted_schedule = track[order], schedule[order]
    new = np.ones(n, bool)
    new[1:] = (sorted_track[1:] != sorted_track[:-1]) | (sorted_schedule[1:] != sorted_schedule[:-1])
    new |= sorted_schedule < 0
    group = np.cumsum(new) - 1
    stage = ranges.stage[outer][order]
    mixed = np.zeros(group[-1] + 1, np.int8)
    np.bitwise_or.at(mixed, group, np.where(stage == _PREFILL, 1, 2).astype(np.int8))
    alone = new | (mixed[group] != 3)  # a schedule with one kind behind it: each range is a step of its own
    by_thread = np.cumsum(alone) - 1
    first = outer[order[alone]]
    # Steps are numbered by process and time, whatever thread they ran on.
    in_order = np.lexsort((ranges.start[first], trace.process_of(ranges.track[first])))
    number = np.empty(len(first), np.int64)
    number[in_order] = np.arange(len(first))
    step = np.empty(n, np.int64)
    step[order] = number[by_thread]
    return step, first[in_order]


def _outside(ranges: Ranges, rows: Ints, outer: Ints) -> Mask:
    """Which rows have none of ``outer`` among their ancestors."""
    is_outer = np.zeros(len(ranges), bool)
    is_outer[outer] = True
    mask: Mask = ~inside_any(ranges.parent, is_outer)[rows]
    return mask


def _host_side(trace: Trace, ranges: Ranges, outer: Ints, step: Ints, first: Ints) -> dict[str, Array]:
    n = len(first)
    process = trace.process_of(ranges.track[first])
    start = np.full(n, np.iinfo(np.int64).max)
    end = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(start, step, ranges.start[outer])
    np.maximum.at(end, step, ranges.end[outer])
    bits = np.zeros(n, np.int8)
    stage = ranges.stage[outer]
    np.bitwise_or.at(bits, step, np.where(stage == _PREFILL, 1, np.where(stage == _DECODE, 2, 0)).astype(np.int8))
    kind = np.asarray([OTHER, PREFILL, DECODE, MIXED], np.int8)[bits]
    whole = np.ones(n, bool)
    np.logical_and.at(whole, step, ranges.whole[outer])
    payload = trace.array("spans", "payload_int")[ranges.row[outer]]
    payload = np.where(trace.array("spans", "payload_kind")[ranges.row[outer]] == _INT, payload, -1)
    decode_batch = _summed(payload, step, stage == _DECODE, n)
    return {
        "process": process,
        "index": _numbers(process),
        "kind": kind,
        "host_start": start,
        "host_end": end,
        "batch": decode_batch,
        "prefill_tokens": _summed(payload, step, stage == _PREFILL, n),
        "decode_tokens": decode_batch,
        "span": ranges.row[first],
        "whole": whole,
    }


def _numbers(process: Array) -> Ints:
    """Number of each step in its process; they are in order of process."""
    return np.arange(len(process)) - np.searchsorted(process, process, side="left")


def _summed(payload: Ints, step: Ints, take: Mask, n: int) -> Ints:
    """Sum of known payloads of each step, -1 where none is known."""
    known = take & (payload >= 0)
    out = np.full(n, -1, np.int64)
    out[step[known]] = 0
    np.add.at(out, step[known], payload[known])
    return out


def _gpu_side(work: Work, of_work: Ints, n: int) -> tuple[Ints, Ints]:
    start, end = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    known = np.flatnonzero(of_work >= 0)
    np.minimum.at(start, of_work[known], work.start[known])
    np.maximum.at(end, of_work[known], work.end[known])
    return np.where(end >= 0, start, -1), end


def _periods(process: Array, gpu_end: Ints) -> Ints:
    period = np.full(len(gpu_end), -1, np.int64)
    both = (gpu_end[1:] >= 0) & (gpu_end[:-1] >= 0) & (process[1:] == process[:-1])
    period[1:][both] = (gpu_end[1:] - gpu_end[:-1])[both]
    return period


def _kinds_with_work(kind: Array, gpu_end: Ints) -> Mask:
    """Whether a step's kind launches GPU work at all: then a step without any was cut off."""
    has = np.asarray([bool(((kind == code) & (gpu_end >= 0)).any()) for code in range(len(STEP_KINDS))])
    mask: Mask = has[kind]
    return mask


def _warm_up(process: Array, kind: Array, length: Ints, complete: Mask) -> Mask:
    """Leading steps of a process that took over twice the median of their kind; position alone proves nothing."""
    out = np.zeros(len(kind), bool)
    for owner in np.unique(process).tolist():
        for code in np.unique(kind).tolist():
            rows = np.flatnonzero((process == owner) & (kind == code) & complete)
            if len(rows) >= _FEWEST_FOR_WARM_UP:
                median = percentile(length[rows], 50) or 0
                slow = length[rows] > WARM_UP_FACTOR * median
                out[rows[: int(np.argmin(slow))]] = True
    return out
