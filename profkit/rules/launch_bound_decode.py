"""PK201 launch-bound decode.

What it finds
    Decode steps (without steps: the whole window) in which the GPU waits for the next launch again and again: each
    kernel is done before the host has submitted the next one, so the host's launch rate sets the pace.

Why it costs time
    At small batch sizes a decode kernel takes a few microseconds, as long as its launch from Python takes or
    longer. A faster GPU or a faster kernel then changes nothing.

How the cost is computed
    Fires where idle gaps that hold nothing but launching (the deciding thread was in launch calls, in little of its
    own code between two launches (eight times what usually lies there, 20 us to 1 ms), or the launch was on its way
    for at most 100 us) are at least 2 % of the time of these steps. Both prices are the recorded window minus a
    replay of the trace's own dependencies. cost: the launches, and the host's work between them, take no time.
    saving: each run of launches without a wait or a host copy between them is one graph launch, as long as those of
    the trace, or 2.5 us and 1 ns a kernel (published figures, see the facts); never more than these gaps: what a
    host that has time to spare would also hide (an allocation, a late rank) is the fault of others.

What to do
    Capture the decode step in a CUDA graph for each batch size, or compile it (torch.compile with
    mode="reduce-overhead"); fuse small kernels; remove synchronisations from the step first, since capture fails on
    them.

When it is wrong
    Where most steps replay a graph, the others are PK204's. Under a profiler each launch costs more than without;
    compare the step time with and without it. A queue that is long (launch to start) is not this fault: there the
    GPU sets the pace.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.calls import GRAPH_LAUNCH, LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.steps import DECODE, MIXED
from profkit.analysis.work import KERNELS
from profkit.arrays import distinct
from profkit.model import Ints, Mask, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._launches import as_graphs, sequences_that_wait
from profkit.rules._price import Priced, half_up, priced_by_replay
from profkit.testing import build_trace, launch, span

SMALLEST_SHARE = 0.02
_NEARLY_ALL = 0.9


def check(analysis: Analysis) -> Iterator[Priced]:
    idle = analysis.idle
    paced = analysis.launch_paced
    window = analysis.window.dur_ns if analysis.window else 0
    if paced.any() and analysis.found("replay-every-step") is not None:
        return  # eager steps among replays are PK204's
    # PK202 says more of what repeats.
    repeating = {waiting.device for waiting in sequences_that_wait(analysis) if waiting.share >= _NEARLY_ALL}
    for device in np.unique(idle.device[paced]).tolist():
        decode = _decode_steps(analysis, int(device))
        if not decode.any() and device in repeating:
            continue
        mine = paced & (idle.device == device)
        if decode.any():
            step = analysis.steps.of_work[idle.ends_at]
            mine &= (step >= 0) & decode[np.maximum(step, 0)]
            period = analysis.steps.period[decode]
            total = int(period[period >= 0].sum()) or window
        else:
            total = window
        cost = int(idle.length[mine].sum())
        if not total or cost < SMALLEST_SHARE * total:
            continue
        kernels = _kernels(analysis, int(device), decode)
        if len(kernels):
            yield _finding(analysis, int(device), np.flatnonzero(mine), total, int(decode.sum()), kernels)


def _decode_steps(analysis: Analysis, device: int) -> Mask:
    """Steps that decode, of the processes that work on a device."""
    steps = analysis.steps
    mine = np.isin(steps.process, analysis.processes_of(device))
    mask: Mask = mine & ((steps.kind == DECODE) | (steps.kind == MIXED))
    return mask


def _finding(analysis: Analysis, device: int, gaps: Ints, total: int, steps: int, kernels: Ints) -> Priced:
    idle, work = analysis.idle, analysis.work
    length = idle.end[gaps] - idle.start[gaps]
    cost, first = int(length.sum()), int(gaps[0])
    ends_at = idle.ends_at[gaps]
    calls = distinct(work.call[kernels])
    what = "Decode is" if steps else "The GPU is"
    each = f"each step launches {text.count(half_up(len(calls), steps), 'kernel')} one by one; " if steps else ""
    kernel_p50 = percentile(work.end[kernels] - work.start[kernels], 50)
    interval_p50 = _interval(analysis, calls)
    return priced_by_replay(
        analysis,
        as_graphs(analysis, kernels),
        measured=cost,
        most=cost,
        fixes=("cuda-graphs",),
        device=device,
        code=RULE.code,
        title=f"{what} launch-bound",
        key=f"{RULE.code}:{device}:decode:" if steps else f"{RULE.code}:{device}:window:",
        message=(
            f"{what} launch-bound: {analysis.device_name(device)} waited {text.ns(cost)} "
            f"({text.percent(cost / total)} of {text.ns(total)}{' of decode steps' if steps else ''}) for the next "
            f"launch; {each}a kernel takes {text.ns(kernel_p50)} (median), a "
            f"launch comes every {text.ns(interval_p50)} (median)"
        ),
        cause="the host submits kernels more slowly than the GPU runs them",
        advice=RULE.advice if steps else _advice(analysis),
        facts={
            "launch_paced_gaps": len(gaps),
            "launches": len(calls),
            **({"launches_per_step": half_up(len(calls), steps)} if steps else {}),
            "kernel_p50_ns": kernel_p50 or 0,
            "launch_interval_p50_ns": interval_p50 or 0,
            "waited_ns": cost,
            "of_ns": total,
        },
        evidence=(
            evidence(
                "kernels",
                work.row[ends_at[work.table[ends_at] == KERNELS]],
                window=Window(int(idle.start[first]), int(idle.end[first])),
            ),
            evidence(
                "calls", calls, tracks=tuple(np.unique(analysis.trace.array("calls", "track")[calls[:100]]).tolist())
            ),
        ),
    )


def _advice(analysis: Analysis) -> str:
    """What to do where no decode steps are known: a graph helps only what repeats."""
    if analysis.kernel_sequences:
        return "Replay what repeats as a CUDA graph, or compile it; fuse small kernels."
    return "No sequence of kernels repeats here: compile the code (torch.compile), fuse small kernels, or batch more."


def _kernels(analysis: Analysis, device: int, decode: Mask) -> Ints:
    """Device rows that a kernel launch (no graph launch) caused: in decode steps, or all."""
    work = analysis.work
    keep = (work.device == device) & (work.table == 0) & (work.call >= 0)
    keep &= analysis.call_kind[np.maximum(work.call, 0)] == LAUNCH
    if decode.any():
        step = analysis.steps.of_work
        keep &= (step >= 0) & decode[np.maximum(step, 0)]
    return np.flatnonzero(keep)


def _interval(analysis: Analysis, calls: Ints) -> int | None:
    """Median time from one launch of a thread to the next, ns; the calls are in order of time."""
    track = analysis.trace.array("calls", "track")[calls]
    start = analysis.trace.array("calls", "start_ns")[calls]
    if (track[1:] != track[:-1]).any():
        order = np.argsort(track, kind="stable")
        track, start = track[order], start[order]
    between = np.diff(start)[track[1:] == track[:-1]]
    return percentile(between, 50)


def _judged(analysis: Analysis) -> str:
    graphs = int((analysis.call_kind == GRAPH_LAUNCH).sum())
    if graphs or analysis.launch_calls.any():
        return ""
    return "no launch calls were recorded"


def fires() -> Trace:
    """Five decode steps of 50 kernels of 4 us, a launch every 10 us."""
    rows = []
    for step in range(5):
        t0 = step * 520_000
        rows.append(span("decode", t0, 510_000, payload=1))
        for i in range(50):
            t = t0 + 1_000 + i * 10_000
            rows += launch("gemm", at=t, start=t + 8_000, dur=4_000, call_dur=6_000)
    return build_trace(*rows)


def quiet() -> Trace:
    """The same launches, but kernels of 50 us: they queue, and the GPU sets the pace."""
    rows, free = [], 0
    for step in range(5):
        t0 = step * 520_000
        rows.append(span("decode", t0, 510_000, payload=1))
        for i in range(50):
            t = t0 + 1_000 + i * 10_000
            free = max(free, t + 8_000)
            rows += launch("gemm", at=t, start=free, dur=50_000, call_dur=6_000)
            free += 50_000
    return build_trace(*rows)


RULE = Rule(
    code="PK201",
    title="Launch-bound decode",
    unmet=needs_all(needs_gpu_rows, needs_calls, _judged, needs_joined_work),
    check=check,
    advice="Replay the decode step as one CUDA graph (or torch.compile mode='reduce-overhead'); fuse small kernels.",
    fires=fires,
    quiet=quiet,
)
