"""PK301 pageable copy through an async call.

What it finds
    Copies between pageable host memory and the GPU that were issued through an asynchronous call (cudaMemcpyAsync,
    ``non_blocking=True``), by direction. Read-backs on which every step waits are PK303's.

Why it costs time
    The driver has to stage pageable memory through a pinned buffer of its own. The copy is slower, and the call may not
    return before the data are staged (H2D) or there (D2H): asynchronous in name only, it stops the host.

How the cost is computed
    Both prices are the recorded window minus a replay of the trace's own dependencies. cost: the copies and their calls
    take no time. saving: a copy of more than 64 kB takes its bytes over the rate of the trace's own large pinned
    copies, or over the published rate (PCIe 5 or 4 by the GPU's name, see the facts), never longer than recorded, and
    its call waits for nothing. Whether a call blocked is read from its end against the end of the copy.

What to do
    Allocate the host side once, pinned (pin_memory=True), and reuse it; pinning a fresh buffer for each copy costs more
    than it saves. For small read-backs copy into a pinned buffer and look at it a step later, or read less often.

When it is wrong
    A few kilobytes take the same time either way; then only the waiting counts. On GPUs that share memory with the
    host the rates do not apply.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.calls import SYNC
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Found
from profkit.analysis.fixes._find import copies
from profkit.analysis.fixes._rates import pinned_rate
from profkit.analysis.fixes.pinned_copies import of_copies
from profkit.analysis.waits import is_pageable
from profkit.analysis.work import COPIES
from profkit.model import Ints, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_copies, needs_gpu_rows
from profkit.rules._price import Priced, priced_by_replay
from profkit.rules.sync_every_step import waits_of_every_step
from profkit.schema import COPY_KINDS, MEMORY_KINDS
from profkit.testing import Row, build_trace, call, copy

_UNKNOWN = MEMORY_KINDS.index("unknown")
_SMALL_BYTES = 64_000
NEXT_TO_NOTHING = 0.0005
"""Of the window: copies and calls that take less together have no price worth a replay."""


def check(analysis: Analysis) -> Iterator[Priced]:
    trace, work = analysis.trace, analysis.work
    rows = np.flatnonzero((work.table == COPIES) & (work.call >= 0))
    rows = rows[is_pageable(trace, work.row[rows])]
    name = trace.array("calls", "name")[work.call[rows]]
    is_async = trace.name_rows(lambda name: "Async" in name or "WithStream" in name, among=name)
    rows = rows[is_async[name]]
    taken = waits_of_every_step(analysis)
    rows = rows[~np.isin(work.row[rows], taken.copy if taken is not None else [])]
    kind = trace.array("copies", "kind")[work.row[rows]]
    for word in ("h2d", "d2h"):
        every = rows[kind == COPY_KINDS.index(word)]
        for device in np.unique(work.device[every]).tolist():
            yield _finding(analysis, int(device), word, every[work.device[every] == device], every)


def _finding(analysis: Analysis, device: int, word: str, rows: Ints, every: Ints) -> Priced:
    """The copies of one device; ranks wait for each other, so that the fix is priced as made on ``every`` device."""
    trace, work = analysis.trace, analysis.work
    length = work.end[rows] - work.start[rows]
    size = np.maximum(trace.array("copies", "bytes")[work.row[rows]], 0)
    calls = work.call[rows]
    host = analysis.call_end[calls] - trace.array("calls", "start_ns")[calls]
    blocked = int((analysis.call_end[calls] >= work.end[rows]).sum())
    kind = COPY_KINDS.index(word)
    rate, source = pinned_rate(analysis, analysis.replayed.model, device, kind)
    followed = _synced(analysis, calls)
    names = sorted({trace.name(int(n), "base") for n in np.unique(trace.array("calls", "name")[calls])})
    total_bytes, total = int(size.sum()), int(length.sum())
    measured = int(np.maximum(host, length).sum())
    window = analysis.window.dur_ns if analysis.window else 0
    small = word == "d2h" and int(size.max()) <= _SMALL_BYTES
    what = f"small read-back{'s' if len(rows) > 1 else ''}" if small else ("upload" if word == "h2d" else "download")
    longest = rows[np.argsort(-length, kind="stable")]
    first = int(longest[0])
    return priced_by_replay(
        analysis,
        _pinned(analysis, every) if measured >= NEXT_TO_NOTHING * window else None,
        fixes=("pinned-copies",),
        measured=measured,
        device=device,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:{word}:",
        message=(
            f"Pageable {word.upper()} ×{len(rows):,} ({what}) through {', '.join(names)}: {text.size(total_bytes)} in "
            f"{text.ns(total)}, {text.rate(total_bytes, total)} on {analysis.device_name(device)}, "
            f"{_stream_words(analysis, rows)}, the longest at {int(work.start[first]):,} ns; "
            f"the host was in {'the call' if len(rows) == 1 else 'these calls'} for {text.ns(int(host.sum()))}"
            + (f"; {followed:,} have a synchronisation right behind them" if followed else "")
        ),
        cause="the host side is pageable memory, which the driver stages through a buffer of its own",
        advice=(
            "Read back into a pinned buffer and look at it a step later, or read less often."
            if word == "d2h"
            else RULE.advice
        ),
        facts={
            "copies": len(rows),
            "bytes": total_bytes,
            "copy_ns": total,
            "bytes_per_s": total_bytes * 1_000_000_000 // total if total else -1,
            "host_in_call_ns": int(host.sum()),
            "blocking_calls": blocked,
            "followed_by_sync": followed,
            "pinned_bytes_per_s": rate,
            "pinned_rate_source": source,
        },
        evidence=(
            evidence(
                "copies",
                work.row[longest],
                tracks=tuple(np.unique(work.track[rows[:100]]).tolist()),
                window=Window(int(work.start[first]), int(work.end[first])),
            ),
        ),
    )


def _pinned(analysis: Analysis, rows: Ints) -> Found | None:
    """These copies from pinned memory; None where they are not in what is replayed."""
    model = analysis.replayed.model
    chosen = np.zeros(len(analysis.whole_work), bool)
    chosen[analysis.whole_row(rows)] = True
    ops, kind, size = copies(analysis, model)
    mine = chosen[model.row[ops]]
    return of_copies(analysis, model, ops[mine], kind[mine], size[mine]) if mine.any() else None


def _stream_words(analysis: Analysis, rows: Ints) -> str:
    tracks = np.unique(analysis.work.track[rows])
    labels = [str(analysis.trace.tables["tracks"].column("label")[int(track)].as_py()) for track in tracks[:3]]
    return ", ".join(labels) + (f" and {len(tracks) - 3} more" if len(tracks) > 3 else "")


def _synced(analysis: Analysis, calls: Ints) -> int:
    """How many of the calls have a synchronisation as the next call of their thread."""
    trace = analysis.trace
    track = trace.array("calls", "track")
    following = np.full(len(calls), -1, np.int64)
    for one in np.unique(track[calls]).tolist():
        of_thread = np.flatnonzero(track == one)
        mine = np.flatnonzero(track[calls] == one)
        following[mine] = np.append(of_thread, -1)[np.searchsorted(of_thread, calls[mine], side="right")]
    return int(((following >= 0) & (analysis.call_kind[np.maximum(following, 0)] == SYNC)).sum())


def _memory_kinds(analysis: Analysis) -> str:
    """Sources that do not say pageable or pinned cannot be judged."""
    trace = analysis.trace
    rows = np.flatnonzero(np.isin(trace.array("copies", "kind"), [COPY_KINDS.index("h2d"), COPY_KINDS.index("d2h")]))
    if not len(rows):
        return ""
    host = np.where(
        trace.array("copies", "kind")[rows] == COPY_KINDS.index("h2d"),
        trace.array("copies", "src_kind")[rows],
        trace.array("copies", "dst_kind")[rows],
    )
    if (host == _UNKNOWN).all():
        return "the trace does not say whether the host memory of its copies is pageable or pinned"
    return ""


def _copies_joined(analysis: Analysis) -> str:
    """Copies without their calls cannot be judged; a trace without copies has nothing to judge."""
    copies = analysis.work.table == COPIES
    if not copies.any() or (analysis.work.call[copies] >= 0).any():
        return ""
    return "no copy could be joined to the call that submitted it"


def _copy_rows(kind: str, src: str, dst: str, count: int = 3) -> list[Row]:
    rows = []
    for i in range(count):
        t = i * 1_000_000
        rows.append(call(t, 150_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(t + 5_000, 139_392, kind, 1_573_000, src, dst, correlation=i + 1))
    return rows


def fires() -> Trace:
    """Three uploads of 1.6 MB from pageable memory."""
    return build_trace(*_copy_rows("h2d", "pageable", "device"))


def quiet() -> Trace:
    """The same from pinned memory."""
    return build_trace(*_copy_rows("h2d", "pinned", "device"))


RULE = Rule(
    code="PK301",
    title="Pageable copy through an async call",
    unmet=needs_all(needs_copies, needs_gpu_rows, _memory_kinds, needs_calls, _copies_joined),
    check=check,
    advice="Allocate the host buffer once with pin_memory=True and reuse it; then non_blocking=True is truly so.",
    fires=fires,
    quiet=quiet,
)
