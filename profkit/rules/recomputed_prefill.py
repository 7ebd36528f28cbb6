"""PK703 prefill made again.

What it finds
    Prefill steps that ran when no request waited for its first token: all requests of the engine at that time had
    theirs, as its own marks say, so that a running one was preempted and its tokens were computed again.

Why it costs time
    Preemption by recompute frees a request's blocks of the KV cache and prefills its prompt and all its tokens again
    later. The work was done once; the request stands still from its preemption on.

How the cost is computed
    cost and saving: the periods of these steps, of a step that also decodes what is beyond a median decode step.
    Without preemption they would not run: a lower bound of the fault, since prefills made again while others waited
    for their first token are not told apart; a ceiling of the saving, since fewer requests at a time take longer.

What to do
    More memory for the KV cache (gpu_memory_utilization, a quantised cache, more GPUs), or fewer sequences at a time
    (max_num_seqs). Preempted at short contexts: the limit of sequences is too high for this memory.

When it is wrong
    Prefills of something else than requests (a cache that is warmed, a draft model) in ranges called prefill, while
    requests run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.requests import find_requests
from profkit.analysis.steps import DECODE, MIXED, PREFILL
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.rules._evidence import longest_first, of_spans
from profkit.rules._price import priced
from profkit.rules._requests import first_token_marks, needs_requests, open_at
from profkit.testing import Row, build_trace, launch, span


def check(analysis: Analysis) -> Iterator[Finding]:
    again = _made_again(analysis)
    if not len(again):
        return
    steps = analysis.steps
    usual = steps.periods(DECODE)
    usual_ns = int(np.median(usual)) if len(usual) else 0
    took = np.maximum(steps.period[again] - np.where(steps.kind[again] == MIXED, usual_ns, 0), 0)
    tokens = steps.prefill_tokens[again]
    known = int(np.maximum(tokens, 0).sum())
    of = int(((steps.kind == PREFILL) | (steps.kind == MIXED)).sum())
    spans = steps.span[again[longest_first(took)]]
    yield priced(
        analysis,
        cost=took,
        saving=took,
        step=again,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:prefill:",
        message=(
            f"{len(again):,} of {text.count(of, 'prefill')} ran when no request waited for its first token: running "
            f"requests were preempted and computed again, {text.ns(int(took.sum()))}"
            + (f", {text.count(known, 'token')}" if known else "")
        ),
        cause="the KV cache had no room for all running requests",
        advice=RULE.advice,
        facts={"prefills": len(again), "of_prefills": of, "recompute_ns": int(took.sum()), "tokens": known or -1},
        evidence=of_spans(analysis, spans[spans >= 0]),
    )


def _made_again(analysis: Analysis) -> Ints:
    """Prefill steps at whose start some requests of the process ran, and none waited for its first token."""
    requests, steps = find_requests(analysis.trace), analysis.steps  # also those that came before what is selected
    never = np.iinfo(np.int64).max
    found = np.zeros(len(steps), bool)
    prefills = ((steps.kind == PREFILL) | (steps.kind == MIXED)) & (steps.host_start >= 0) & (steps.period >= 0)
    for process in distinct(requests.process).tolist():
        mine = requests.process == process
        first, end = requests.first_token[mine], requests.end[mine]
        end = np.where(end < 0, never, end)
        seen = first >= 0
        at = np.flatnonzero(prefills & (steps.process == process))
        time = steps.host_start[at]
        waiting = open_at(requests.arrival[mine], np.where(seen, first, end), time)
        found[at] = (waiting == 0) & (open_at(first[seen], end[seen], time) > 0)
    return np.flatnonzero(found)


def _says_first_tokens(analysis: Analysis) -> str:
    """Without marks the first token is that of the first prefill, and the next piece of a prompt looks like another.

    A request that came before the capture has no arrival: its prefill would look like one made again.
    """
    marks = first_token_marks(analysis.trace)
    if not len(marks):
        return "the engine does not mark the first tokens of requests"
    requests, steps = find_requests(analysis.trace), analysis.steps
    prefills = (steps.kind == PREFILL) | (steps.kind == MIXED)
    if not np.isin(steps.process[prefills], requests.process).any():
        return "no prefill in a process that has requests"
    if not np.isin(marks, requests.first_token).all():
        return "some requests came before the capture began"
    for process in distinct(requests.process).tolist() if analysis.selected is None else []:
        early = steps.host_start[(steps.process == process) & (steps.host_start >= 0)]
        if len(early) and int(early.min()) < int(requests.arrival[requests.process == process].min()):
            return "the engine ran before the first request of this capture came"
    return ""


def _engine(again: bool) -> Trace:
    rows: list[Row] = []
    t, numbers = 0, {0: 1, 1: 2}
    for i in range(30):
        if i < 2 or (again and i == 20):
            rows += [span("prefill", t, 4_990_000, payload=64), *launch("gemm", at=t, start=t + 10_000, dur=4_900_000)]
            t += 5_000_000
            if i in numbers:
                rows.append(span(f"request#{numbers[i]} first_token", t, 0, kind="mark"))
        rows += [span("decode", t, 990_000, payload=1), *launch("gemm", at=t, start=t + 10_000, dur=900_000)]
        t += 1_000_000
    rows += [span(f"request#{number}", 0, t, kind="start_end") for number in numbers.values()]
    return build_trace(*rows)


def fires() -> Trace:
    """Two requests decode; a third prefill of 5 ms runs although both have their first token."""
    return _engine(again=True)


def quiet() -> Trace:
    """The same with one prefill each."""
    return _engine(again=False)


RULE = Rule(
    code="PK703",
    title="Prefill made again",
    unmet=needs_all(needs_gpu_rows, needs_steps, needs_requests, _says_first_tokens),
    check=check,
    advice="Give the KV cache more memory, or run fewer sequences at a time, so that none is preempted.",
    fires=fires,
    quiet=quiet,
    record="Record profkit.request(id) with first_token(), and profkit.stage('prefill', payload=tokens).",
)
