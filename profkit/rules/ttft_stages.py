"""PK704 TTFT by stage.

What it finds
    Where the time to the first token went, for the request with the median TTFT: queue, tokenize, h2d, prefill,
    sample, other. The parts are times of this one request and add up to its TTFT exactly. It is a note; a warning
    where a part in which the GPU does nothing for anybody takes more than half of the TTFT of half of the requests
    (3 or more): tokenize, other, or a queue during which the GPU was idle. Nothing is said where h2d, prefill and
    sample are 90 % of it: that is what a TTFT is made of.

Why it costs time
    A faster prefill does not help a request that waits for its tokenizer or for the scheduler.

How the cost is computed
    tokenize: from arrival to the end of its own tokenize range, as far as its process tokenizes, for it or for those
    before it. queue: the rest until its prefill begins. prefill: from there to the end of the step's range or of its
    GPU work, less h2d and sample. h2d and sample: ranges of that name; a sample that waits for the prefill's kernels
    begins with the end of those. other: the rest until the first token. No price: the parts say where to look.

What to do
    Queue: more replicas, a larger batch, shorter prefills in front (PK701, PK702). Tokenize: a pool of threads
    (PK208). Other: the path from the sampled token to the client.

When it is wrong
    Which prefill and which tokenize range is whose is known by order, where there is one for each request: an
    engine that reorders requests mixes them up. Requests of unknown prefill, or in pieces, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import EMPTY, Intervals, union
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_steps
from profkit.rules._evidence import of_spans
from profkit.rules._requests import answered, needs_prefills, needs_requests, prefill_of, tokenized_at
from profkit.schema import STAGES
from profkit.testing import Row, build_trace, launch, span

PARTS = ("queue", "tokenize", "h2d", "prefill", "sample", "other")
WORK = ("h2d", "prefill", "sample")
MOSTLY_WORK = 0.9
DOMINATES = 0.5
FEWEST = 3
"""Requests from which on a part is said to dominate."""
_CAUSES = {
    "tokenize": "requests wait for their tokenizer",
    "other": "the way from the prefill to the first token takes longer than the prefill",
    "queue": "requests wait although the GPU does nothing",
}


@dataclass(frozen=True)
class _Split:
    """TTFTs in parts, ns, for the requests of these rows; ``idle_queue`` is the queue in which the GPU was idle."""

    row: Ints
    ttft: Ints
    parts: dict[str, Ints]
    idle_queue: Ints


def check(analysis: Analysis) -> Iterator[Finding]:
    split = _split(analysis, prefill_of(analysis))
    n = len(split.row)
    at = int(np.argsort(split.ttft, kind="stable")[(n + 1) // 2 - 1])
    mine = {part: int(values[at]) for part, values in split.parts.items()}
    asked = int(analysis.requests.request[split.row[at]])
    of = int(answered(analysis.requests).sum())
    guilty, count = _dominating(split)
    if not guilty and sum(mine[part] for part in WORK) >= MOSTLY_WORK * int(split.ttft[at]):
        return
    said = f"; {guilty} is more than half of it for {count:,} of {n:,} requests" if guilty else ""
    if guilty == "queue":
        said = f"; a queue with an idle GPU is more than half of it for {count:,} of {n:,} requests"
    left = f" ({of - n:,} more have no known prefill)" if of > n else ""
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:ttft:",
        severity="warning" if guilty else "info",
        message=(
            f"TTFT of the median of {text.count(n, 'request')}{left}"
            + (f", request {asked}" if asked >= 0 else "")
            + f": {text.ns(int(split.ttft[at]))} = "
            + " + ".join(f"{part} {text.ns(value)}" for part, value in mine.items() if value)
            + said
        ),
        cause=_CAUSES.get(guilty, "nothing that is no work for the request takes most of it"),
        advice=RULE.advice,
        facts={
            "requests": n,
            "not_split": of - n,
            "ttft_ns": int(split.ttft[at]),
            **{f"{part}_ns": value for part, value in mine.items()},
            "dominates": guilty,
        },
        evidence=of_spans(analysis, analysis.requests.span[split.row[np.argsort(-split.ttft, kind="stable")]]),
    )


def _dominating(split: _Split) -> tuple[str, int]:
    """The part that is more than half of the TTFT of half of the requests and no work for them, and of how many."""
    for part, values in (
        ("tokenize", split.parts["tokenize"]),
        ("other", split.parts["other"]),
        ("queue", split.idle_queue),
    ):
        count = int((values > DOMINATES * split.ttft).sum())
        if len(values) >= FEWEST and 2 * count >= len(values):
            return part, count
    return "", 0


def _split(analysis: Analysis, prefill: Ints) -> _Split:
    row = np.flatnonzero(prefill >= 0)
    requests, steps = analysis.requests, analysis.steps
    step = prefill[row]
    arrival, first = requests.arrival[row], requests.first_token[row]
    begin = np.clip(steps.host_start[step], arrival, first)
    end = np.clip(np.maximum(steps.host_end[step], steps.gpu_end[step]), begin, first)
    computed = np.clip(_computed_until(analysis, step)[step], begin, end)
    tokenized = np.minimum(tokenized_at(analysis, prefill)[row], begin)
    parts = {part: np.zeros(len(row), np.int64) for part in PARTS}
    idle = np.zeros(len(row), np.int64)
    for process in distinct(requests.process[row]).tolist():
        mine = np.flatnonzero(requests.process[row] == process)
        tokenize, h2d, either = (_ranges(analysis, process, *stages) for stages in _WANTED)
        a, t, b, c, e, f = (times[mine] for times in (arrival, tokenized, begin, computed, end, first))
        sampled = either.covered(c, f) - h2d.covered(c, f)
        parts["tokenize"][mine] = tokenize.covered(a, t)
        parts["queue"][mine] = b - a - tokenize.covered(a, t)
        parts["h2d"][mine] = h2d.covered(b, f)
        parts["sample"][mine] = sampled
        parts["prefill"][mine] = c - b - h2d.covered(b, c) + (e - c) - either.covered(c, e)
        parts["other"][mine] = f - e - either.covered(e, f)
        runs = analysis.whole_process_runs.get(process)
        busy = Intervals(runs.start, runs.end) if runs is not None else EMPTY
        idle[mine] = b - t - busy.covered(t, b)
    return _Split(row, first - arrival, parts, idle)


_WANTED = (("tokenize",), ("h2d",), ("h2d", "sample"))


def _ranges(analysis: Analysis, process: int, *stages: str) -> Intervals:
    """When a process was in ranges of some stages."""
    trace = analysis.trace
    rows = np.concatenate([trace.stage_rows(stage) for stage in stages])
    rows = rows[trace.process_of(trace.array("spans", "track")[rows]) == process]
    start = trace.array("spans", "start_ns")[rows]
    return union(start, start + trace.array("spans", "dur_ns")[rows])


def _computed_until(analysis: Analysis, wanted: Ints) -> Ints:
    """End of the GPU work of these steps that was not launched by sampling, ns; -1 for others and without any."""
    out = np.full(len(analysis.steps), -1, np.int64)
    asked = np.zeros(len(out) + 1, bool)  # the last one is for work of no step
    asked[wanted] = True
    sampling = np.append(analysis.ranges.stage == STAGES.index("sample"), False)
    rows = np.flatnonzero(asked[analysis.steps.of_work])
    rows = rows[~sampling[analysis.owner[rows]]]
    np.maximum.at(out, analysis.steps.of_work[rows], analysis.work.end[rows])
    return out


def _served(tokenize: int, apart: int) -> Trace:
    """Four requests, ``apart`` ns from each other, each tokenized for so many ns and then prefilled for 1 ms."""
    rows: list[Row] = []
    for i in range(4):
        arrival, t = i * apart, max(tokenize * (i + 1) + 1_100_000 * i, i * apart + tokenize)
        rows.append(span("tokenize", t - tokenize, tokenize))
        rows.append(span("prefill", t, 1_000_000, payload=8))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=900_000)
        rows.append(span("sample", t + 930_000, 60_000))
        rows.append(span(f"request#{i}", arrival, t + 1_000_000 - arrival, kind="start_end"))
        rows.append(span(f"request#{i} first_token", t + 1_000_000, 0, kind="mark"))
    return build_trace(*rows)


def fires() -> Trace:
    """All come at once, and tokenizing takes 20 ms a request on one thread."""
    return _served(20_000_000, 0)


def quiet() -> Trace:
    """They come one by one, and tokenizing takes 10 us."""
    return _served(10_000, 2_000_000)


RULE = Rule(
    code="PK704",
    title="TTFT by stage",
    unmet=needs_all(needs_gpu_rows, needs_steps, needs_requests, needs_prefills),
    check=check,
    advice="Look at the largest part first: a faster prefill does not shorten a queue or a tokenizer.",
    fires=fires,
    quiet=quiet,
    record="Record profkit.request(id) with first_token(), and the stages tokenize, prefill and sample.",
)
