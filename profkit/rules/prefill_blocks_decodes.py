"""PK701 prefill blocks decodes.

What it finds
    Prefill steps between two decode steps of an engine while sequences that had their first token stood still: one
    such pause lasts at least as long as 3 median decode steps, and all of them at least 2 % of the window. Also
    mixed steps (a prefill together with decodes) that take 3 times a median decode step or more.

Why it costs time
    Each running request gets no token meanwhile: a spike of its inter-token latency (ITL), which the mean hides. A
    prompt of some thousand tokens takes as long as tens of decode steps.

How the cost is computed
    cost: the periods of these prefill steps; of a mixed step what is beyond a median decode step. No saving: the
    prefill has to be done in any case, what a fix changes is who waits for it. It is a note on latency.

What to do
    Chunked prefill: a budget of tokens a step that decodes and a piece of a prompt share (vLLM
    max_num_batched_tokens, SGLang chunked_prefill_size); a smaller budget where mixed steps are the long ones; or
    prefill on other GPUs.

When it is wrong
    A batch job, in which only throughput counts, does best with whole prefills. Sequences that stand still are known
    from requests (ranges and first tokens) or from the batch of each step; where neither tells that some stood
    still, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.steps import DECODE, MIXED, PREFILL
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.rules._evidence import longest_first, of_spans
from profkit.rules._requests import answered
from profkit.testing import build_trace, launch, span

TIMES = 3
"""Times the median decode step: what a person calls a spike."""
SMALLEST_SHARE = 0.02
FEWEST_DECODES = 5


@dataclass(frozen=True)
class _Pauses:
    """Prefill steps between decode steps (``mixed``: steps of both), the first step, length and waiting sequences."""

    step: Ints
    length: Ints
    waiting: Ints
    """Sequences that stood still, at least."""
    mixed: bool


def check(analysis: Analysis) -> Iterator[Finding]:
    window = analysis.window.dur_ns if analysis.window else 0
    for process in distinct(analysis.steps.process[analysis.steps.lead]).tolist():
        steps = _of_process(analysis, process)
        median = _median_decode(analysis, steps)
        if median is None:
            continue
        pauses = (_between(analysis, steps, process), _mixed(analysis, steps, median))
        long = [np.flatnonzero((each.waiting > 0) & (each.length >= TIMES * median)) for each in pauses]
        total = sum(int(each.length[rows].sum()) for each, rows in zip(pauses, long, strict=True))
        if total and total >= SMALLEST_SHARE * window:
            yield _finding(analysis, process, pauses, long, median, window)


def _finding(
    analysis: Analysis, process: int, pauses: tuple[_Pauses, _Pauses], long: list[Ints], median: int, window: int
) -> Finding:
    alone, mixed = pauses
    step = np.concatenate([each.step[rows] for each, rows in zip(pauses, long, strict=True)])
    length = np.concatenate([each.length[rows] for each, rows in zip(pauses, long, strict=True)])
    total, longest = int(length.sum()), int(length.max())
    parts = []
    if len(long[0]):
        stood = int(alone.length[long[0]].sum())
        most = int(alone.waiting[long[0]].max())
        parts.append(
            f"decode stood still for {text.ns(stood)} ({text.percent(stood / window)} of {text.ns(window)}) in "
            f"{text.count(len(long[0]), 'pause')} with up to {text.count(most, 'running sequence')}"
        )
    if len(long[1]):
        parts.append(
            f"{text.count(len(long[1]), 'mixed step')} took {text.ns(int(mixed.length[long[1]].sum()))} longer than a "
            "decode step"
        )
    spans = analysis.steps.span[step[longest_first(length)]]
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:prefill:{process}",
        message=(
            f"Prefill blocks running requests: {'; '.join(parts)}; the longest {text.ns(longest)}, as long as "
            f"{longest // median:,} decode steps of {text.ns(median)} (median)"
        ),
        cause="a whole prompt is prefilled in one step while other requests wait for their next token",
        advice=RULE.advice,
        cost_ns=total,
        facts={
            "pauses": len(long[0]),
            "mixed_steps": len(long[1]),
            "stood_still_ns": int(alone.length[long[0]].sum()),
            "mixed_longer_ns": int(mixed.length[long[1]].sum()),
            "longest_ns": longest,
            "decode_p50_ns": median,
            "window_ns": window,
        },
        evidence=of_spans(analysis, spans[spans >= 0]),
    )


def _of_process(analysis: Analysis, process: int) -> Ints:
    """Steps of a process that ended on the GPU, in order of their ends."""
    steps = analysis.steps
    mine = np.flatnonzero((steps.process == process) & (steps.gpu_end >= 0) & steps.complete)
    return mine[np.argsort(steps.gpu_end[mine], kind="stable")]


def _median_decode(analysis: Analysis, mine: Ints) -> int | None:
    """Of decode steps that follow each other, ns."""
    steps = analysis.steps
    decodes = mine[1:][(steps.kind[mine[1:]] == DECODE) & (steps.kind[mine[:-1]] == DECODE)]
    period = steps.period[decodes]
    period = period[period > 0]
    return percentile(period, 50) if len(period) >= FEWEST_DECODES else None


def _between(analysis: Analysis, mine: Ints, process: int) -> _Pauses:
    """Runs of prefill steps between two steps that decode."""
    steps = analysis.steps
    kind = steps.kind[mine]
    serves = np.flatnonzero((kind == DECODE) | (kind == MIXED))
    before, after = serves[:-1], serves[1:]
    prefills = np.concatenate(([0], np.cumsum(kind == PREFILL)))
    only = (prefills[after] - prefills[before] == after - before - 1) & (after > before + 1)
    before, after = before[only], after[only]
    first, last, j, k = mine[before + 1], mine[after - 1], mine[before], mine[after]
    length = steps.gpu_end[last] - steps.gpu_end[j]
    waiting = _by_requests(analysis, process, steps.host_start[first], steps.host_end[last])
    if waiting is None:
        waiting = _by_batch(analysis, mine, before, after, j, k)
    return _Pauses(first, length, waiting, mixed=False)


def _by_requests(analysis: Analysis, process: int, start: Ints, end: Ints) -> Ints | None:
    """Requests that had their first token before and ended behind, at least; None without requests of the process."""
    requests = analysis.requests
    told = answered(requests) & (requests.process == process)
    if not told.any():
        return None
    first, done = requests.first_token[told], requests.end[told]
    done = np.where(done < 0, np.iinfo(np.int64).max, done)
    # Whoever ended by the end of the pause is taken to have ended before it.
    began = np.searchsorted(np.sort(first), start, side="right")
    return np.where(start >= 0, began - np.searchsorted(np.sort(done), end, side="right"), 0)


def _by_batch(analysis: Analysis, mine: Ints, before: Ints, after: Ints, j: Ints, k: Ints) -> Ints:
    """Sequences of the next decode step that no prefill in between can have brought; 0 where batches are not known."""
    batch = analysis.steps.batch
    brought = np.where(analysis.steps.kind[mine] == PREFILL, np.maximum(batch[mine], 0), 0)
    unknown = (analysis.steps.kind[mine] == PREFILL) & (batch[mine] < 0)
    sums, unsure = (np.concatenate(([0], np.cumsum(values))) for values in (brought, unknown))
    new = sums[after] - sums[before]
    known = (batch[j] >= 0) & (batch[k] >= 0) & (unsure[after] == unsure[before])
    return np.where(known, np.minimum(batch[j], batch[k] - new), 0)


def _mixed(analysis: Analysis, mine: Ints, median: int) -> _Pauses:
    """Mixed steps with decodes, as far as they are longer than a decode step."""
    steps = analysis.steps
    rows = mine[(steps.kind[mine] == MIXED) & (steps.period[mine] > 0)]
    return _Pauses(rows, np.maximum(steps.period[rows] - median, 0), np.ones(len(rows), np.int64), mixed=True)


def _both_kinds(analysis: Analysis) -> str:
    """Prefills and decodes of one process, and something that says whether sequences ran meanwhile."""
    steps = analysis.steps
    prefills = (steps.kind == PREFILL) | (steps.kind == MIXED)
    both = np.intersect1d(steps.process[prefills], steps.process[steps.kind == DECODE])
    if not len(both):
        return "no process with both prefill and decode steps in this trace"
    tells = np.isin(steps.process, analysis.requests.process[answered(analysis.requests)])
    tells |= (steps.kind == MIXED) | ((steps.kind == PREFILL) & (steps.batch >= 0))
    return "" if tells[prefills].any() else "neither requests nor batches tell which sequences ran during a prefill"


def _serving(second: int) -> Trace:
    """Request 1 decodes 20 steps of 1 ms; request 2 comes at ``second`` ms, its prefill takes 10 ms."""
    rows = [span("request#1", 0, 31_000_000, kind="start_end", payload=1)]
    rows += [span("request#2", second * 1_000_000, 61_000_000, kind="start_end", payload=2)]
    t = 0
    for i in range(40):
        if i in (0, second):
            rows += [span("prefill", t, 9_990_000, payload=512), *launch("gemm", at=t, start=t + 10_000, dur=9_900_000)]
            t += 10_000_000
            rows.append(span(f"request#{1 + (i > 0)} first_token", t, 0, kind="mark"))
        rows += [span("decode", t, 990_000, payload=1), *launch("gemm", at=t, start=t + 10_000, dur=900_000)]
        t += 1_000_000
    return build_trace(*rows)


def fires() -> Trace:
    """A prefill of 10 ms between decode steps of 1 ms, while another request runs."""
    return _serving(10)


def quiet() -> Trace:
    """The same prefill when the first request is done."""
    return _serving(22)


RULE = Rule(
    code="PK701",
    title="Prefill blocks decodes",
    unmet=needs_all(needs_gpu_rows, needs_steps, _both_kinds),
    check=check,
    advice="Turn on chunked prefill, with a budget of tokens a step that decodes can bear.",
    fires=fires,
    quiet=quiet,
    record="Record profkit.request(id) with first tokens, and stages prefill and decode, or the engine's own ranges.",
)
