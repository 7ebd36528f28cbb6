"""PK603 ranks with uneven work.

What it finds
    GPUs that run the same program but compute for different times: the busiest one has more work of its own
    (kernels without those of collectives, in which a GPU that waits looks busy) than the mean of all, by at least
    5 % of a step (without steps: of the window). Where ranks share their steps, the median over steps counts.
    Nothing is said where PK602 names one late rank and prices it by a replay.

Why it costs time
    Ranks that meet in collectives go at the pace of the busiest one; the others wait there. Without collectives the
    GPU with less work stands still when it is done.

How the cost is computed
    No saving: whether work can be moved is known to the program only. The facts say what each GPU would have if the
    work was spread evenly, which is the ceiling of what that gives back.

What to do
    Look at how the work was split: uneven pipeline stages (embedding, head), experts that draw most tokens, shards
    of the batch, requests that one replica gets more of.

When it is wrong
    GPUs that have different tasks by design (prefill apart from decode, a draft model). Kernels that run slower on
    one GPU look like more work: see its clocks (PK403).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile, sum_by, union, union_by_group
from profkit.analysis.work import KERNELS
from profkit.arrays import distinct, numbered
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows, straggler
from profkit.rules._communication import communication, not_told_apart
from profkit.rules._evidence import longest_first, of_work
from profkit.testing import build_trace, kernel

UNEVEN_SHARE = 0.05
"""Of a step or of the window: what the busiest GPU has more than the mean of all."""
SAME_PROGRAM_SHARE = 0.5
"""Of each GPU's work: so much must be in kernels that all of them run."""
FEWEST_STEPS = 5
MOST_NAMED = 8


def check(analysis: Analysis) -> Iterator[Finding]:
    own = _own(analysis)
    devices = distinct(analysis.work.device[own])
    by_step = [_of_steps(analysis, own, device) for device in devices.tolist()]
    steps = min(len(values) for values in by_step)
    if steps >= FEWEST_STEPS and max(len(values) for values in by_step) == steps:
        values = np.asarray([percentile(each, 50) or 0 for each in by_step], np.int64)
        of, whole = f"the median {analysis.counted_steps().kind} step", analysis.counted_steps().median_ns
    else:
        values = np.asarray([_in_all(analysis, own, device) for device in devices.tolist()], np.int64)
        of, whole = "the window", analysis.window.dur_ns if analysis.window else 0
    mean = int(values.sum()) // max(len(values), 1)
    if whole > 0 and int(values.max()) - mean >= UNEVEN_SHARE * whole and not _one_is_late(analysis):
        yield _finding(analysis, own, devices, values, of, whole)


def _one_is_late(analysis: Analysis) -> bool:
    """Whether PK602 says it, with a price."""
    return not straggler.RULE.unmet(analysis) and analysis.found("even-ranks") is not None


def _finding(analysis: Analysis, own: Mask, devices: Ints, values: Ints, of: str, whole: int) -> Finding:
    mean, middle = int(values.sum()) // len(values), percentile(values, 50) or 0
    least, most = int(np.argmin(values)), int(np.argmax(values))
    odd, word = (most, "more") if values[most] - middle > middle - values[least] else (least, "less")
    number = analysis.device_number[devices]
    each = ", ".join(
        f"GPU {number[i]} {text.ns(int(values[i]))}" for i in np.argsort(-values, kind="stable")[:MOST_NAMED]
    )
    more = ", ..." if len(values) > MOST_NAMED else ""
    rows = np.flatnonzero(own & (analysis.work.device == devices[odd]))
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:work:",
        message=(
            f"{text.printable(text.clip(analysis.device_name(int(devices[odd])), 80))} has {word} work of its own than "
            f"the others: {text.ns(int(values[odd]))} of {text.ns(whole)} ({of}), collectives not counted; of "
            f"{len(values)} GPUs: {each}{more}; spread evenly each would have {text.ns(mean)}"
        ),
        cause="the work of one step is split unevenly over the GPUs",
        advice=RULE.advice,
        facts={
            "devices": len(values),
            "most_ns": int(values[most]),
            "least_ns": int(values[least]),
            "mean_ns": mean,
            "saving_at_most_ns": int(values[most]) - mean,
            "of": of,
        },
        evidence=of_work(analysis, rows[longest_first(analysis.work.end[rows] - analysis.work.start[rows])]),
    )


def _own(analysis: Analysis) -> Mask:
    mask: Mask = (analysis.work.table == KERNELS) & ~communication(analysis)
    return mask


def _of_steps(analysis: Analysis, own: Mask, device: int) -> Ints:
    """Own work of a device in each counted step of the main kind of its processes, ns."""
    steps = analysis.steps
    kind = steps.main_kind()
    if not len(steps) or kind is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(own & (analysis.work.device == device))
    step = steps.of_work[rows]
    counted = (step >= 0) & (steps.counted & (steps.kind == kind))[np.maximum(step, 0)]
    rows, step = rows[counted], step[counted]
    taken = union_by_group(analysis.work.start[rows], analysis.work.end[rows], step, len(steps))
    return taken[distinct(step)]


def _in_all(analysis: Analysis, own: Mask, device: int) -> int:
    rows = np.flatnonzero(own & (analysis.work.device == device))
    return union(analysis.work.start[rows], analysis.work.end[rows]).total


def _same_program(analysis: Analysis) -> str:
    """Different programs need not have the same work."""
    own = np.flatnonzero(_own(analysis))
    work = analysis.work
    devices = distinct(work.device[own])
    if len(devices) < 2:
        return "only one GPU has work of its own"
    name = analysis.trace.array("kernels", "name")[work.row[own]].astype(np.int64) + 1
    names = analysis.trace.rows("names") + 1
    pairs, _, pair = numbered(work.device[own].astype(np.int64) * names + name)
    everywhere = np.bincount(pairs % names, minlength=names) == len(devices)
    length = sum_by(pair, work.end[own] - work.start[own], len(pairs))
    on = np.searchsorted(devices, pairs // names)
    shared = everywhere[pairs % names]
    same = sum_by(on[shared], length[shared], len(devices)) >= SAME_PROGRAM_SHARE * sum_by(on, length, len(devices))
    return "" if same.all() else "the GPUs run different kernels: not one program"


def _clocks_agree(analysis: Analysis) -> str:
    """Windows of hosts whose clocks were never aligned are not one window."""
    host = analysis.trace.array("devices", "host")[distinct(analysis.work.device)]
    error = np.append(analysis.trace.array("hosts", "offset_error_ns"), -1)[np.unique(host)]
    return "clocks of the hosts are not aligned" if len(error) > 1 and (error < 0).any() else ""


def _four(busy: tuple[int, ...]) -> Trace:
    rows = []
    for device, length in enumerate(busy):
        rows += [kernel(i * 10_000_000, length * 100_000, device=device) for i in range(10)]
        rows.append(kernel(99_990_000, 10_000, device=device))
    return build_trace(*rows)


def fires() -> Trace:
    """Four GPUs, busy 90, 80, 70 and 20 % of 100 ms with the same kernel."""
    return _four((90, 80, 70, 20))


def quiet() -> Trace:
    """Four GPUs with the same work, within a few percent."""
    return _four((90, 88, 90, 89))


RULE = Rule(
    code="PK603",
    title="Ranks with uneven work",
    unmet=needs_all(needs_gpu_rows, not_told_apart, _same_program, _clocks_agree),
    check=check,
    advice="Split the work evenly: layers of pipeline stages, experts, shards of the batch, requests of replicas.",
    fires=fires,
    quiet=quiet,
    record="Trace all ranks into one report or a folder of reports, with the kernels of graphs.",
)
