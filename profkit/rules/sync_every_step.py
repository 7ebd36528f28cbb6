"""PK303 host synchronisation every step.

What it finds
    Steps in which the host waits for the GPU, step after step: ``.item()``, ``.cpu()``, ``.tolist()``, a copy into
    pageable memory, cudaStreamSynchronize. Fires where at least four of five steps hold such a wait, of three steps
    or more.

Why it costs time
    While it waits the host cannot prepare the next step. When the GPU is done it has nothing queued, and stands
    still until the host has woken up, done its own work and launched again.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies. cost: the waits and the
    read-backs that they are for take no time. saving: read-backs are made from pinned memory and looked at a step
    later (the host still runs no more than a step ahead), other synchronisations are gone. Beside it the facts say
    how long the host waited, and what of that the GPUs stood still with nothing submitted: removing the wait alone,
    without the host's own work behind it, cannot give back more than that.

What to do
    Keep the token on the GPU and feed it to the next step; copy it into a pinned buffer with non_blocking=True and
    look at it one step later; check stop conditions every few steps; avoid boolean indexing and nonzero in the
    step.

When it is wrong
    Where the GPU is busy during the whole wait and the host has nothing else to do, the wait is harmless: the
    saving says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.replay.price import Difference, difference
from profkit.analysis.steps import DECODE, MIXED, PREFILL
from profkit.analysis.waits import Waits, callers, find_waits, is_pageable, wait_time
from profkit.model import Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_many_steps, needs_owned_work, needs_steps
from profkit.rules._price import Priced, found_by, priced_by_replay
from profkit.testing import build_trace, call, launch, span

MOST_STEPS = 0.8
FEWEST_STEPS = 3
"""What one or two steps hold may be the end of the capture."""
FIXES = ("read-later", "no-step-sync")
"""Read-backs looked at a step later; other synchronisations gone."""
TOGETHER = 1.1
"""Both fixes are named where they save so many times what the better one saves alone."""


def waits_of_every_step(analysis: Analysis) -> Waits | None:
    """The waits inside steps, where at least four of five steps hold one; else None."""
    if needs_steps(analysis) or needs_calls(analysis):
        return None
    waits, steps = find_waits(analysis), analysis.steps
    kind = steps.main_kind()
    counted = np.flatnonzero(steps.complete & ((steps.kind == kind) if kind is not None else True))
    inside = waits.step >= 0
    has_wait = np.isin(counted, waits.step[inside])
    keep = np.zeros(len(waits), bool)
    for process in np.unique(steps.process[counted]).tolist():  # another engine says nothing of this one
        mine = steps.process[counted] == process
        if has_wait[mine].sum() >= MOST_STEPS * mine.sum():
            keep |= inside & (waits.process == process)
    return waits.where(keep) if keep.any() else None


def check(analysis: Analysis) -> Iterator[Priced]:
    waits = waits_of_every_step(analysis)
    if waits is None:
        return
    fixes, saving = _fixes(analysis)
    if fixes or not analysis.replayed.trust.holds:
        yield _finding(analysis, waits, fixes, saving)


def _advice(analysis: Analysis) -> str:
    kinds = analysis.steps.kind
    if np.isin(kinds, (PREFILL, DECODE, MIXED)).any():
        return RULE.advice
    return "Read results back through pinned memory and look at them a step later, or every few steps."


def _fixes(analysis: Analysis) -> tuple[tuple[str, ...], Difference | None]:
    """What takes these waits away: one fix where that is nearly all of it, both where either one still blocks.

    With what that saves, if it was replayed.
    """
    replayed = analysis.replayed
    found = tuple(fix for fix in FIXES if analysis.found(fix) is not None)
    if len(found) < 2 or not replayed.trust.holds:
        return found, None
    saved = {}
    for fixes in (*((fix,) for fix in found), found):
        change = found_by(analysis, fixes)
        saved[fixes] = difference(analysis, replayed, change.fixed) if change is not None else None
    alone = {fix: _of(saved[fix,]) for fix in found}
    best = max(found, key=lambda fix: alone[fix])
    chosen = found if _of(saved[found]) > TOGETHER * alone[best] else (best,)
    return chosen, saved[chosen]


def _of(saved: Difference | None) -> int:
    if saved is None:
        return 0
    return saved.step_ns if saved.step_ns is not None else saved.window_ns


def _finding(analysis: Analysis, waits: Waits, fixes: tuple[str, ...], saving: Difference | None) -> Priced:
    trace = analysis.trace
    steps = len(np.unique(waits.step))
    syncs = int(waits.is_sync.sum())
    time = wait_time(analysis, waits)
    read_backs = np.unique(waits.copy[waits.copy >= 0])
    pageable = int(is_pageable(trace, read_backs).sum())
    size = int(np.maximum(trace.array("copies", "bytes")[read_backs], 0).sum())
    names = Counter(trace.name(int(n), "base") for n in trace.array("calls", "name")[waits.call])
    who = _callers(trace, waits.call)
    outside = int((find_waits(analysis).step < 0).sum())
    longest = waits.call[np.argsort(waits.start - waits.end, kind="stable")]
    first = int(longest[0])
    by = f" from {', '.join(who)}" if who else ""
    return priced_by_replay(
        analysis,
        found_by(analysis, fixes),
        measured=time.drained,
        fixes=fixes,
        saving=saving,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:steps:",
        message=(
            f"The host waits for the GPU in {steps:,} of {len(analysis.steps):,} steps: "
            f"{_counted(syncs, len(waits))} ({text.ratio(syncs or len(waits), steps)} a step, "
            f"{', '.join(name for name, _ in names.most_common(3))}){by}"
            f"{_read_back_words(trace, read_backs)}; it waited {text.ns(time.waited)}, "
            f"the GPU was busy {text.ns(time.busy) if time.busy else 'for none'} of it: of the waiting alone "
            f"{f'at most {text.ns(time.drained)}' if time.drained else 'nothing'} can be given back, beside it the "
            "host's own work that then overlaps"
        ),
        cause=(
            "the host reads a result of the step before it can go on"
            if len(read_backs)
            else "the host waits for the device, and reads nothing back"
        ),
        advice=_advice(analysis)
        if len(read_backs)
        else f"Remove {names.most_common(1)[0][0]}: the step reads nothing back.",
        facts={
            "steps_with_wait": steps,
            "steps": len(analysis.steps),
            "syncs": syncs,
            "waits": len(waits),
            "waits_outside_steps": outside,
            "wait_ns": time.waited,
            "gpu_busy_meanwhile_ns": time.busy,
            "gpu_idle_between_queued_rows_ns": time.queued,
            "recoverable_ns": time.drained,
            "read_backs": len(read_backs),
            "pageable_read_backs": pageable,
            "read_back_bytes": size,
            "called_from": ", ".join(who),
        },
        evidence=(
            evidence(
                "calls",
                longest,
                tracks=tuple(np.unique(trace.array("calls", "track")[longest[:100]]).tolist()),
                window=Window(int(trace.array("calls", "start_ns")[first]), int(analysis.call_end[first])),
            ),
        ),
    )


def _callers(trace: Trace, calls: Ints) -> list[str]:
    """Who made the calls, as far as it was recorded: the operator first, then the line of Python, most frequent."""
    out = []
    for kinds, outermost in ((("op",), True), (("python",), False)):
        rows = callers(trace, calls, kinds, outermost)
        names = trace.array("spans", "name")[rows[rows >= 0]]
        if len(names):
            code = int(np.bincount(names).argmax())
            out.append(text.clip(trace.name(code), 80))
    return out


def _read_back_words(trace: Trace, read_backs: Ints) -> str:
    """What the waits are for: ``, for 276 pageable read-backs of 64 B each (D2H)``; nothing where no copy is."""
    count = len(read_backs)
    if not count:
        return ""
    pageable = int(is_pageable(trace, read_backs).sum())
    memory = "pageable " if pageable == count else f"{pageable} of them pageable, " if pageable else ""
    mean = int(np.maximum(trace.array("copies", "bytes")[read_backs], 0).sum()) // count
    each = " each" if count > 1 else ""
    return f", for {text.count(count, memory + 'read-back')} of {text.size(mean)}{each} (D2H)"


def _counted(syncs: int, waits: int) -> str:
    return text.count(syncs, "synchronisation") if syncs else text.count(waits, "blocking read-back")


def _several(analysis: Analysis) -> str:
    return needs_many_steps(int(analysis.steps.counted.sum()), FEWEST_STEPS)


def _rows(sync: str) -> Trace:
    rows = []
    for i in range(5):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=1))
        rows += launch("gemm", at=t + 10_000, start=t + 20_000, dur=700_000)
        rows.append(call(t + 30_000, 710_000 if sync.endswith("Synchronize") else 1_000, sync))
    return build_trace(*rows)


def fires() -> Trace:
    """Five decode steps, each with cudaStreamSynchronize until its kernel is done."""
    return _rows("cudaStreamSynchronize")


def quiet() -> Trace:
    """The same steps with a query in place of the wait."""
    return _rows("cudaEventQuery")


RULE = Rule(
    code="PK303",
    title="Host synchronisation every step",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_owned_work, needs_steps, _several),
    check=check,
    advice="Keep the sampled token on the GPU; read it back through pinned memory one step later, or every few steps.",
    fires=fires,
    quiet=quiet,
)
