"""PK702 requests queue while the batch is low.

What it finds
    Requests that have come (and are tokenized) but wait for their prefill while at least 3 whole decode steps run
    with a batch of at most 75 % of the largest one of this engine. It says so where such steps take at least 2 % of
    the window.

Why it costs time
    A decode step of a small batch takes about as long as one of a larger batch: the weights are read once either
    way. A request that could have been in the batch waits for its first token, and each step makes fewer tokens
    than it could.

How the cost is computed
    cost: the time of these decode steps, each once. No saving: why the scheduler did not admit the request (no free
    blocks of the KV cache, a limit of sequences or tokens, a deliberate delay) is not in the trace.

What to do
    See the engine's log for KV cache use and preemptions. Raise the share of memory for the KV cache, the limit of
    sequences (max_num_seqs) or of tokens a step (max_num_batched_tokens); lower a scheduler delay.

When it is wrong
    Where the largest batch had short contexts, the cache may be full with fewer, longer ones. Engines that compute
    a fixed batch anyway report what they compute, not what is in use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile, union
from profkit.analysis.steps import DECODE
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.rules._evidence import longest_first, of_spans
from profkit.rules._requests import needs_prefills, needs_requests, prefill_of, tokenized_at
from profkit.testing import build_trace, launch, span

LOW_SHARE = 0.75
"""Of the largest batch: below this there was room."""
FEWEST_STEPS = 3
"""A request that comes during a step, or whose step was scheduled ahead, waits for one or two in any case."""
SMALLEST_SHARE = 0.02


def check(analysis: Analysis) -> Iterator[Finding]:
    prefill = prefill_of(analysis)
    requests, steps = analysis.requests, analysis.steps
    for process in distinct(requests.process[prefill >= 0]).tolist():
        mine = np.flatnonzero((requests.process == process) & (prefill >= 0))
        decodes = np.flatnonzero((steps.process == process) & (steps.kind == DECODE) & (steps.batch >= 0))
        if not len(decodes):
            continue
        largest = int(steps.batch[decodes].max())
        low = decodes[(steps.batch[decodes] <= LOW_SHARE * largest) & (steps.host_start[decodes] >= 0)]
        ready, until = tokenized_at(analysis, prefill)[mine], steps.host_start[prefill[mine]]
        begun = np.searchsorted(steps.host_start[low], ready, side="left")
        ended = np.searchsorted(steps.host_end[low], until, side="right")
        waits = np.flatnonzero(ended - begun >= FEWEST_STEPS)
        if len(waits):
            yield from _finding(analysis, mine[waits], low, begun[waits], ended[waits], largest)


def _finding(
    analysis: Analysis, requests: Ints, low: Ints, begun: Ints, ended: Ints, largest: int
) -> Iterator[Finding]:
    steps, window = analysis.steps, analysis.window.dur_ns if analysis.window else 0
    change = np.zeros(len(low) + 1, np.int64)
    np.add.at(change, begun, 1)
    np.add.at(change, ended, -1)
    during = low[np.cumsum(change)[:-1] > 0]
    time = union(steps.host_start[during], steps.host_end[during]).total
    waited = steps.host_end[low[ended - 1]] - steps.host_start[low[begun]]
    if not window or time < SMALLEST_SHARE * window:
        return
    batch = percentile(steps.batch[during], 50) or 0
    process = int(analysis.requests.process[requests[0]])
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:queue:{process}",
        message=(
            f"{len(requests):,} of {text.count(len(analysis.requests), 'request')} queued while decode ran with room: "
            f"{text.count(len(during), 'decode step')} of {text.ns(time)} ({text.percent(time / window)} of "
            f"{text.ns(window)}) had a batch of {batch:,} (median), although {largest:,} was reached; the longest such "
            f"wait took {text.ns(int(waited.max()))}"
        ),
        cause="the scheduler admits no request although the batch is below what it reached before",
        advice=RULE.advice,
        cost_ns=time,
        facts={
            "requests": len(requests),
            "of_requests": len(analysis.requests),
            "decode_steps": len(during),
            "decode_ns": time,
            "batch_p50": batch,
            "batch_max": largest,
            "wait_p50_ns": percentile(waited, 50) or 0,
            "wait_max_ns": int(waited.max()),
            "window_ns": window,
        },
        evidence=of_spans(analysis, analysis.requests.span[requests[longest_first(waited)]]),
    )


def _knows_batches(analysis: Analysis) -> str:
    steps = analysis.steps
    known = (steps.kind == DECODE) & (steps.batch >= 0)
    return "" if known.any() else "the batch of no decode step is known"


def _engine(waits: int) -> Trace:
    """Requests 1 and 2 decode together 10 steps, then 1 alone; 3 comes then and is prefilled ``waits`` steps later."""
    rows, t = [], 0
    marks = {1: 0, 2: 0, 3: 0}
    for i in range(40):
        for number in [1, 2] if i == 0 else [3] if i == 10 + waits else []:
            rows += [span("prefill", t, 990_000, payload=8), *launch("gemm", at=t, start=t + 10_000, dur=900_000)]
            t += 1_000_000
            marks[number] = t
        batch = 2 if i < 10 or i >= 10 + waits else 1
        rows += [span("decode", t, 990_000, payload=batch), *launch("gemm", at=t, start=t + 10_000, dur=900_000)]
        t += 1_000_000
    begin, end = {1: 0, 2: 0, 3: 12_100_000}, {1: t, 2: 12_000_000, 3: t}
    for number, at in marks.items():
        rows.append(span(f"request#{number}", begin[number], end[number] - begin[number], kind="start_end"))
        rows.append(span(f"request#{number} first_token", at, 0, kind="mark"))
    return build_trace(*rows)


def fires() -> Trace:
    """A request waits 10 decode steps of batch 1, although 2 were decoded before."""
    return _engine(10)


def quiet() -> Trace:
    """It is prefilled with the next step but one."""
    return _engine(2)


RULE = Rule(
    code="PK702",
    title="Requests queue while the batch is low",
    unmet=needs_all(needs_gpu_rows, needs_steps, needs_requests, needs_prefills, _knows_batches),
    check=check,
    advice="Find out why the scheduler waits: KV cache full, a limit of sequences or of tokens a step, a delay.",
    fires=fires,
    quiet=quiet,
    record="Record profkit.request(id) with first tokens, and profkit.stage('decode', payload=batch).",
)
