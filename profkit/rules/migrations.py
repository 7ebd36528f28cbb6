"""PK312 unified memory migrates.

What it finds
    Migrations of unified (managed) memory between host and GPU that take at least 1 % of the window, in the counted
    steps where there are steps. Migrations that the program asked for (cudaMemPrefetchAsync) are not meant.

Why it costs time
    A page that is not where it is used is fetched when it is touched: the kernel, or the host thread, stands still
    until it is there. In small pieces the link is not even half used.

How the cost is computed
    cost: the time of these migrations, as a union per GPU. saving: the part of it in which the GPU ran no kernel and
    no other copy. What kernels lose that stand still on page faults is inside of their run time, and in no price here.

What to do
    Prefetch what the next step needs (cudaMemPrefetchAsync), advise where it stays (cudaMemAdvise), or use device
    memory and explicit copies. If it does not fit into device memory, it moves in every step: offload less.

When it is wrong
    A time in which the GPU did nothing else may have been idle for another reason: the migration came with it. Where
    access counters or evictions move pages beside running kernels there is little to gain.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import sum_by, union
from profkit.model import Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows
from profkit.rules._copies import alone, column, copies_of_kinds, devices_of
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._price import priced
from profkit.schema import COPY_KINDS
from profkit.testing import build_trace, copy, launch, span

KINDS = ("um_h2d", "um_d2h", "um_d2d")
SMALLEST_SHARE = 0.01
"""Of the window."""
_PREFETCH = 1
_CAUSES = {2: "page_fault", 3: "speculative_prefetch", 4: "eviction", 5: "access_counter"}


def check(analysis: Analysis) -> Iterator[Finding]:
    rows = copies_of_kinds(analysis, *KINDS)
    rows = rows[column(analysis, "cause", rows) != _PREFETCH]
    window = analysis.window.dur_ns if analysis.window else 0
    for device in devices_of(analysis, rows):
        mine = rows[analysis.work.device[rows] == device]
        step = _step_behind(analysis, mine, device)
        if analysis.counted_steps(device).count:
            mine, step = mine[step >= 0], step[step >= 0]
        taken = union(analysis.work.start[mine], analysis.work.end[mine]).total
        if window and taken and taken >= SMALLEST_SHARE * window:
            yield _finding(analysis, device, mine, step, taken)


def _step_behind(analysis: Analysis, rows: Ints, device: int) -> Ints:
    """Step of the next work of the device that a call submitted: no call submits a migration."""
    of_work = analysis.steps.of_work
    known = np.flatnonzero((analysis.work.device == device) & (of_work >= 0)) if len(of_work) else rows[:0]
    at = np.searchsorted(known, rows)
    return np.append(of_work[known], -1)[at] if len(known) else np.full(len(rows), -1, np.int64)


def _finding(analysis: Analysis, device: int, rows: Ints, step: Ints, taken: int) -> Finding:
    work = analysis.work
    mine = np.zeros(len(work), bool)
    mine[rows] = True
    others = np.flatnonzero((work.device == device) & ~mine)
    nothing = union(work.start[:0], work.end[:0])
    cost = alone(analysis, rows, nothing)
    saving = alone(analysis, rows, union(work.start[others], work.end[others]))
    kind, cause = column(analysis, "kind", rows).astype(np.int64), column(analysis, "cause", rows)
    size = np.maximum(column(analysis, "bytes", rows), 0)
    moved = sum_by(kind, size, len(COPY_KINDS))
    words = [
        f"{text.size(int(moved[COPY_KINDS.index(word)]))} {name}"
        for word, name in zip(KINDS, ("to the GPU", "to the host", "between GPUs"), strict=True)
        if moved[COPY_KINDS.index(word)]
    ]
    return priced(
        analysis,
        device=device,
        cost=cost,
        saving=saving,
        step=step,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:migrations:",
        message=(
            f"Unified memory migrates on {analysis.device_name(device)}: "
            f"{text.count(len(rows), 'migration')}, {', '.join(words) or 'of unknown size'}, {text.ns(taken)} at "
            f"{text.rate(int(size.sum()), taken)}; {text.ns(int(saving.sum()))} of it while the GPU did nothing else"
        ),
        cause="pages of managed memory are fetched when they are touched",
        advice=RULE.advice,
        facts={
            "migrations": len(rows),
            "migrated_bytes": int(size.sum()),
            "migration_ns": taken,
            "while_idle_ns": int(saving.sum()),
            **{f"{word}_bytes": int(moved[COPY_KINDS.index(word)]) for word in KINDS},
            **{f"{word}_migrations": int((cause == code).sum()) for code, word in _CAUSES.items()},
        },
        evidence=of_work(analysis, rows[longest_first(cost)]),
    )


def _any_migration(analysis: Analysis) -> str:
    """A capture that does not ask for them looks like one that has none."""
    if len(copies_of_kinds(analysis, *KINDS)):
        return ""
    return "no migrations were recorded: a capture shows them only when asked to"


def _steps(cause: int) -> Trace:
    rows = []
    for i in range(6):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows.append(copy(t + 10_000, 200_000, "um_h2d", 2_000_000, "managed", "managed", cause=cause))
        rows += launch("gemm", at=t + 5_000, start=t + 220_000, dur=700_000)
    return build_trace(*rows)


def fires() -> Trace:
    """Six decode steps, each of which begins with a migration of 200 us after a page fault."""
    return _steps(2)


def quiet() -> Trace:
    """The same memory, prefetched."""
    return _steps(_PREFETCH)


RULE = Rule(
    code="PK312",
    title="Unified memory migrates",
    unmet=needs_all(needs_gpu_rows, _any_migration),
    check=check,
    advice="Prefetch what the next step needs (cudaMemPrefetchAsync), or use device memory and explicit copies.",
    fires=fires,
    quiet=quiet,
    record="Record unified memory: nsys --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true.",
)
