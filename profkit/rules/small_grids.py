"""PK401 grids that leave SMs empty.

What it finds
    Kernels of 10 us or more (on average) with fewer blocks than two thirds of the GPU's SMs, which run with no other
    kernel beside them, where all of these take 2 % of the busy time or more. Collectives, which use few SMs by design,
    are not among them.

Why it costs time
    A block runs on one SM. With 20 blocks on 132 SMs, 112 of them stand still while the kernel runs, and a nearly empty
    GPU is as busy in every summary as a full one.

How the cost is computed
    cost: the length of these kernels times the part of the SMs that is empty, which is what they could at most take
    less. The saving is not known: a kernel that waits for memory, or whose work cannot be split, gains less.

What to do
    Split the work further: split-K or stream-K for a GEMM with few rows, split KV for attention over a long context, a
    smaller tile. Or batch more, or run independent work beside it on another stream.

When it is wrong
    A few blocks can be enough to draw on all of the memory's bandwidth of a small GPU. In a MIG instance the number of
    SMs may be that of the whole GPU: such devices are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import sum_by
from profkit.analysis.work import KERNELS
from profkit.arrays import distinct, key_of, numbered
from profkit.model import Array, Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._kernels import busy_of, length_of, names_of, no_kernels, runs_alone
from profkit.rules._price import priced
from profkit.testing import build_trace, kernel
from profkit.text import kernel_family

FEW = 2 / 3
"""Of the SMs: a GEMM that takes 128 of 132 is no fault."""
SHORTEST_NS = 10_000
"""A shorter kernel mostly waits for its own launch and its first loads: more blocks make it no faster."""
SMALLEST_SHARE = 0.02
"""Of the busy time of the device."""


def check(analysis: Analysis) -> Iterator[Finding]:
    rows, blocks, empty = _few_blocks(analysis)
    device = analysis.work.device[rows]
    for one in np.unique(device).tolist():
        mine = np.flatnonzero(device == one)
        if not _matter(analysis, one, rows[mine]):
            continue
        mine = mine[runs_alone(analysis)[rows[mine]]]
        if _matter(analysis, one, rows[mine]):
            yield _finding(analysis, one, rows[mine], blocks[mine], empty[mine], busy_of(analysis, one))


def _matter(analysis: Analysis, device: int, rows: Ints) -> bool:
    """Whether kernels take a part of a device's busy time that is worth a word."""
    taken = int(length_of(analysis, rows).sum())
    return taken > 0 and taken >= SMALLEST_SHARE * busy_of(analysis, device)


def _few_blocks(analysis: Analysis) -> tuple[Ints, Ints, Array]:
    """(rows of work with too few blocks, their blocks, the part of the SMs that each leaves empty)."""
    trace, work = analysis.trace, analysis.work
    limit = np.append(FEW * _sm_count(trace), -1)
    rows = np.flatnonzero(work.table == KERNELS)
    # A grid is at least as large as one of its sides.
    rows = rows[trace.array("kernels", "grid_x")[work.row[rows]] < limit[work.device[rows]]]
    grid = [trace.array("kernels", f"grid_{axis}")[work.row[rows]].astype(np.int64) for axis in "xyz"]
    known = (grid[0] > 0) & (grid[1] > 0) & (grid[2] > 0)
    blocks = grid[0] * np.minimum(grid[1], 1 << 16) * np.minimum(grid[2], 1 << 16)  # more would not change the answer
    few = known & (blocks < limit[work.device[rows]])
    rows, blocks = rows[few], blocks[few]
    if len(rows):
        kept = _long_ones(analysis, rows, blocks) & ~_collectives(trace)[names_of(analysis, rows)]
        rows, blocks = rows[kept], blocks[kept]
    return rows, blocks, 1 - blocks * FEW / np.maximum(limit[work.device[rows]], 1)


def _long_ones(analysis: Analysis, rows: Ints, blocks: Ints) -> Mask:
    """Of kernels that take SHORTEST_NS on average, by name and number of blocks."""
    kinds, _, kind = numbered(key_of(names_of(analysis, rows), blocks))
    total = sum_by(kind, length_of(analysis, rows), len(kinds))
    mask: Mask = (total >= SHORTEST_NS * np.bincount(kind, minlength=len(kinds)))[kind]
    return mask


def _sm_count(trace: Trace) -> Ints:
    """SMs of each device, -1 where not known or where only an instance of it is seen."""
    whole = np.asarray([not mig for mig in trace.text("devices", "mig")], bool)
    return np.where(whole, trace.array("devices", "sm_count").astype(np.int64), -1)


def _collectives(trace: Trace) -> Array:
    out = np.zeros(trace.rows("names") + 1, bool)
    for row in distinct(trace.array("kernels", "name")).tolist():
        out[row] = kernel_family(trace.name(row, "short")) == "collective"
    return out


def _finding(analysis: Analysis, device: int, rows: Ints, blocks: Ints, empty: Array, busy: int) -> Finding:
    trace, length = analysis.trace, length_of(analysis, rows)
    names = names_of(analysis, rows)
    total = sum_by(names + 1, length, trace.rows("names") + 1)
    worst = int(np.argmax(total)) - 1
    name = text.clip(trace.name(worst, "short"), 80)
    usual = int(np.median(blocks[names == worst]))
    sms, taken = int(_sm_count(trace)[device]), int(length.sum())
    others = int((total > 0).sum()) - 1
    more = f", {text.count(others, 'other kernel')} alike" if others else ""
    return priced(
        analysis,
        device=device,
        cost=np.rint(length * empty).astype(np.int64),
        saving=-1,
        step=analysis.steps.of_work[rows],
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:grid:",
        message=(
            f"{name} runs {text.count(usual, 'block')} (median) on the {sms} SMs of {analysis.device_name(device)} and "
            f"nothing runs beside it{more}: {text.count(len(rows), 'kernel')}, {text.ns(taken)}, "
            f"{text.percent(taken / busy)} of its busy time of {text.ns(busy)}"
        ),
        cause="the work is split into fewer blocks than the GPU has SMs",
        advice=RULE.advice,
        facts={
            "kernel": name,
            "blocks": usual,
            "sms": sms,
            "kernels": len(rows),
            "kernel_ns": taken,
            "busy_ns": busy,
            "empty_sm_share": round(float((length * empty).sum() / max(taken, 1)), 4),
        },
        evidence=of_work(analysis, rows[longest_first(length)]),
    )


def _kernels(*, alone: bool) -> Trace:
    """Ten GEMMs of 16 blocks; beside them, unless ``alone``, a kernel that fills the rest."""
    rows = [kernel(i * 110_000, 100_000, grid=16) for i in range(10)]
    if not alone:
        rows += [kernel(i * 110_000, 100_000, "other", grid=1_000, stream=8) for i in range(10)]
    return build_trace(*rows, gpu={"name": "H100", "sm_count": 132})


def fires() -> Trace:
    return _kernels(alone=True)


def quiet() -> Trace:
    return _kernels(alone=False)


def _unmet(analysis: Analysis) -> str:
    if reason := needs_gpu_rows(analysis) or no_kernels(analysis):
        return reason
    devices = distinct(analysis.work.device)
    if not len(devices) or (_sm_count(analysis.trace)[devices] <= 0).all():
        return "the trace does not say how many SMs its GPUs have"
    return (
        "" if (analysis.trace.array("kernels", "grid_x") > 0).any() else "the trace does not say the grids of kernels"
    )


RULE = Rule(
    code="PK401",
    title="Grids that leave SMs empty",
    unmet=_unmet,
    check=check,
    advice="Split the work further (split-K, split KV, smaller tiles), batch more, or run other work beside it.",
    fires=fires,
    quiet=quiet,
    record="nsys of 2021 or later, or the PyTorch profiler on NVIDIA GPUs: both keep grids and the number of SMs.",
)
