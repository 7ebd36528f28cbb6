"""PK207 padding to the graph's bucket.

What it finds
    Decode steps that replay CUDA graphs, whose batches are on average at least 10 % smaller than the largest batch
    that the same graphs were replayed for in this trace, over at least 10 steps. A graph that was captured for 32
    sequences computes 32, however many of them are there. Steps that replay the same set of graphs, by the ids of the
    capture, are of one bucket.

Why it costs time
    The sequences that fill a batch up are computed and thrown away: matrix products by rows, attention by sequences,
    the sampler by rows of logits.

How the cost is computed
    No price: decode is mostly bound by reading the weights, and a smaller graph may take as long. The share of padded
    sequences is at least what is said: the bucket may be larger than the largest batch seen.

What to do
    Capture more batch sizes (steps of 4 or 8 between the large ones) where the padding is large; let the scheduler
    fill a batch to a captured size.

When it is wrong
    Kernels that read the number of sequences from device memory skip padded ones: then only the grid is too large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.steps import DECODE
from profkit.analysis.work import GRAPHS, KERNELS
from profkit.arrays import key_of
from profkit.model import Array, Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._names import used_names
from profkit.testing import Row, build_trace, call, graph, span

SMALLEST_SHARE = 0.10
FEWEST_STEPS = 10
_MOST_BUCKETS = 4
_UPDATES = re.compile(r"GraphExec(Update|\w*SetParams|\w*SetAttribute|NodeSetEnabled)|GraphNodeSetEnabled")
"""Calls that change what a graph computes: then its id does not tell its bucket."""


def check(analysis: Analysis) -> Iterator[Finding]:
    step, graphs = _replays(analysis)
    batch, process = analysis.steps.batch[step], analysis.steps.process[step]
    if len(step) < FEWEST_STEPS:
        return
    _, bucket = np.unique(key_of(process, graphs), return_inverse=True)
    largest = np.zeros(int(bucket.max()) + 1, np.int64)
    np.maximum.at(largest, bucket, batch)
    padded = largest[bucket] - batch
    share = float(padded.sum() / largest[bucket].sum())
    if share >= SMALLEST_SHARE:
        yield _finding(analysis, step, bucket, largest, padded, share)


def _replays(analysis: Analysis) -> tuple[Ints, Ints]:
    """(whole decode steps of a known batch that replay graphs, a number for the set of graphs of each)."""
    work, steps = analysis.work, analysis.steps
    known = (steps.kind == DECODE) & (steps.batch > 0) & (steps.batch < 1 << 20) & steps.complete
    found_step, found_graph = [], []
    for table, name in ((KERNELS, "kernels"), (GRAPHS, "graphs")):
        ids = analysis.trace.array(name, "graph")
        if not (ids >= 0).any():
            continue
        rows = np.flatnonzero((work.table == table) & (steps.of_work >= 0))
        rows = rows[ids[work.row[rows]] >= 0]
        step, ident = steps.of_work[rows], ids[work.row[rows]]
        new = np.ones(len(rows), bool)  # of the nodes of one launch one is enough
        new[1:] = (step[1:] != step[:-1]) | (ident[1:] != ident[:-1])
        new &= known[step]
        found_step.append(step[new])
        found_graph.append(ident[new])
    if not found_step:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pairs = np.unique(np.stack([np.concatenate(found_step), np.concatenate(found_graph)]), axis=1)
    step, first = np.unique(pairs[0], return_index=True)
    if not len(step):
        return step, step
    return step, np.add.reduceat(_mixed(pairs[1]), first).astype(np.int64)


def _mixed(ids: Ints) -> Array:
    """Spread ids over 64 bits, so that the sum over a step tells its set of graphs."""
    mixed: Array = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(0xBF58476D1CE4E5B9)


def _finding(analysis: Analysis, step: Ints, bucket: Ints, largest: Ints, padded: Ints, share: float) -> Finding:
    by_bucket = np.bincount(bucket, padded)
    count = np.bincount(bucket)
    worst = np.argsort(-by_bucket, kind="stable")[:_MOST_BUCKETS]
    said = ", ".join(
        f"{int(largest[i]):,} for {int(largest[i]) - by_bucket[i] / count[i]:.1f} sequences "
        f"({text.count(int(count[i]), 'step')})"
        for i in worst.tolist()
        if by_bucket[i]
    )
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:graphs:",
        message=(
            f"At least {text.percent(share)} of the sequences that {text.count(len(step), 'decode step')} compute in "
            f"graphs are padding: graphs of at least {said} on average"
        ),
        cause="the graphs were captured for larger batches than they are replayed for",
        advice=RULE.advice,
        facts={
            "padded_share": share,
            "padded_sequences": int(padded.sum()),
            "sequences_in_graphs": int(largest[bucket].sum()),
            "steps": len(step),
            "buckets": len(largest),
        },
    )


def _judged(analysis: Analysis) -> str:
    trace = analysis.trace
    if not any((trace.array(name, "graph") >= 0).any() for name in ("kernels", "graphs")):
        return "no graph ids were recorded"
    if not ((analysis.steps.kind == DECODE) & (analysis.steps.batch > 0)).any():
        return "no decode steps with a known number of sequences"
    if len(used_names(analysis, "calls", _UPDATES)):
        return "graphs are updated: an id does not tell what a graph computes"
    return ""


def _steps(sizes: tuple[int, ...]) -> Trace:
    rows: list[Row] = []
    for i in range(20):
        t, batch = i * 1_000_000, 5 + i % 4
        number = next(n for n, size in enumerate(sizes) if size >= batch) + 1
        rows.append(span("decode", t, 990_000, payload=batch if i % 5 else sizes[number - 1]))
        rows.append(call(t + 5_000, 5_000, "cudaGraphLaunch", correlation=i + 1))
        rows.append(graph(t + 20_000, 900_000, correlation=i + 1, number=number))
    return build_trace(*rows)


def fires() -> Trace:
    """Twenty decode steps of 5 to 8 sequences, replayed by a graph that was made for 16."""
    return _steps((4, 16))


def quiet() -> Trace:
    """The same steps, with a graph for each size."""
    return _steps((4, 5, 6, 7, 8))


RULE = Rule(
    code="PK207",
    title="Padding to the graph's bucket",
    unmet=needs_all(needs_gpu_rows, needs_steps, needs_joined_work, _judged),
    check=check,
    advice="Capture more batch sizes where padding is large, or fill batches up to a captured size.",
    fires=fires,
    quiet=quiet,
    record="Give decode steps their number of sequences: profkit.stage('decode', payload=sequences); trace graphs.",
)
