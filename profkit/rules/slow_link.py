"""PK310 bandwidth far under the link.

What it finds
    Copies of at least 1 MB between pinned memory and a GPU, three or more of a direction, of which even the fastest
    tenth (90th percentile) reaches under half of what this GPU's link was measured to give (55.6 GB/s for PCIe 5 x16,
    24.8 GB/s for PCIe 4 x16), and that kernels do not hide. If some copies are fast, the link is: then the others had
    to share it. Only copies are measured during which no other host copy of any GPU of the trace runs. Pitched
    copies (cudaMemcpy2D, 3D) are left out: short rows are slow on any link.

Why it costs time
    Each byte takes twice as long as it has to, or longer.

How the cost is computed
    cost: the time of these copies. saving: of each copy what it takes over its bytes at the link's rate, at most the
    part of it in which no kernel of the GPU runs. The link is known by the GPU's name; the rates are published
    measurements (NVIDIA nvbandwidth), not of this machine.

What to do
    Look at the link while it is busy: nvidia-smi -q -d PCIE gives width and generation now and at most; a slot of 8
    lanes, a riser, or an older host halves them. Pin the process and its buffers to the GPU's NUMA node (nvidia-smi
    topo -m).

When it is wrong
    A virtual machine, a switch that several GPUs share with a network card, or a GPU clocked down in idle can be
    slow without a fault in the link. What other processes copy is not in this trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.constants import constants
from profkit.analysis.context import Analysis
from profkit.analysis.fixes._rates import pinned_length
from profkit.analysis.work import whole
from profkit.model import Array, Finding, Ints, Trace
from profkit.rules import Rule, needs_all, needs_copies, needs_gpu_rows
from profkit.rules._copies import alone, column, copies_of_kinds, devices_of, is_pinned, kernel_time, step_of
from profkit.rules._evidence import longest_first, of_work
from profkit.rules._names import used_names
from profkit.rules._price import priced
from profkit.testing import build_trace, call, copy, kernel

LARGE_BYTES = 1_000_000
"""Below this the start of a copy is a part of its time that one feels."""
FEWEST = 3
FASTEST_PERCENT = 90
"""Percentile: a link with too few lanes is slow for all copies, one that is shared is fast now and then."""
UNDER = 0.5
"""Of the published rate: a link of half the width or the generation before gives this at most."""
_PCIE4 = r"\b(A100|A800|A40|A30|A10|L40S?|L4|RTX (3080|3090|4080|4090)|RTX A6000|RTX 6000 Ada)\b"
_PCIE5 = r"\b(H100|H800|H200|H20|B100|B200|B300|RTX 50[789]0|RTX PRO 6000)\b"
_PITCHED = re.compile(r"Memcpy[23]D")


def check(analysis: Analysis) -> Iterator[Finding]:
    rows = _measurable(analysis)
    for device in devices_of(analysis, rows):
        link = _link(analysis, device)
        if link is None:
            continue
        rate, what = link
        for kind in ("h2d", "d2h"):
            mine = np.intersect1d(rows[analysis.work.device[rows] == device], copies_of_kinds(analysis, kind))
            if len(mine) < FEWEST:
                continue
            given = float(np.percentile(_rates(analysis, mine), FASTEST_PERCENT, method="inverted_cdf"))
            if given < UNDER * rate:
                yield from _finding(analysis, device, kind, mine, given, rate, what)


def _length(analysis: Analysis, rows: Ints) -> Ints:
    return analysis.work.end[rows] - analysis.work.start[rows]


def _rates(analysis: Analysis, rows: Ints) -> Array:
    """Bytes per second of each of these copies."""
    rates: Array = column(analysis, "bytes", rows) / _length(analysis, rows) * 1e9
    return rates


def _link(analysis: Analysis, device: int) -> tuple[int, str] | None:
    """(bytes per second, the link in words) of a GPU by its name; None where it is not known."""
    name, figures = analysis.device_name(device), constants()["pinned_copy"]
    if analysis.trace.tables["devices"].column("mig")[device].as_py():
        return None  # an instance has a part of the copy engines
    if re.search(_PCIE5, name):
        return int(figures["pcie5_bytes_per_s"]), "PCIe 5 x16"
    if re.search(_PCIE4, name):
        return int(figures["pcie4_bytes_per_s"]), "PCIe 4 x16"
    return None


def _measurable(analysis: Analysis) -> Ints:
    """Rows of large copies from and to pinned memory that were seen whole and had the link to themselves."""
    work = analysis.work
    every = copies_of_kinds(analysis, "h2d", "d2h", "p2p")
    start, end = work.start[every], work.end[every]
    reach = np.maximum.accumulate(end) if len(end) else end
    lone = np.ones(len(every), bool)
    lone[1:] &= start[1:] >= reach[:-1]
    lone[:-1] &= start[1:] >= end[:-1]
    keep = lone & (column(analysis, "bytes", every) >= LARGE_BYTES) & is_pinned(analysis, every)
    keep &= whole(analysis.trace, "copies")[work.row[every]]
    length = end - start
    keep &= (length > 0) & (length == column(analysis, "dur_ns", every))  # not cut by what is selected
    rows = every[keep & np.isin(every, copies_of_kinds(analysis, "h2d", "d2h"))]
    pitched = used_names(analysis, "calls", _PITCHED)
    if len(pitched):
        call = work.call[rows]
        rows = rows[~((call >= 0) & np.isin(analysis.trace.array("calls", "name")[call], pitched))]
    return rows


def _finding(
    analysis: Analysis, device: int, kind: str, rows: Ints, given: float, rate: int, what: str
) -> Iterator[Finding]:
    size, length = column(analysis, "bytes", rows), _length(analysis, rows)
    over = np.maximum(length - pinned_length(size, rate), 0)
    saving = np.minimum(over, alone(analysis, rows, kernel_time(analysis, device)))
    if not saving.any():
        return
    share = given / rate
    yield priced(
        analysis,
        device=device,
        cost=length,
        saving=saving,
        step=step_of(analysis, rows),
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:link:{kind}",
        message=(
            f"{kind.upper()} copies {'from' if kind == 'h2d' else 'to'} pinned memory reach "
            f"{text.size(round(given))}/s at best (90th percentile of {text.count(len(rows), 'copy', 'copies')} of 1 "
            f"MB or more on {analysis.device_name(device)}), {text.percent(share)} of the {text.size(rate)}/s that "
            f"{what} was measured to give"
        ),
        cause="the link gives less than the GPU is made for: fewer lanes, an older generation, or a far NUMA node",
        advice=RULE.advice,
        facts={
            "copies": len(rows),
            "copied_bytes": int(size.sum()),
            "copy_ns": int(length.sum()),
            "best_bytes_per_s": round(given),
            "median_bytes_per_s": round(float(np.median(_rates(analysis, rows)))),
            "link_bytes_per_s": rate,
            "of_link_share": share,
            "link": what,
            "source": str(constants()["pinned_copy"]["source"]),
        },
        evidence=of_work(analysis, rows[longest_first(over)]),
    )


def _judged(analysis: Analysis) -> str:
    rows = _measurable(analysis)
    if not len(rows):
        return "no pinned copies of 1 MB or more that have the link to themselves"
    if all(_link(analysis, device) is None for device in devices_of(analysis, rows)):
        return "the link of this GPU is not known by its name"
    return ""


def _copies(dur: int) -> Trace:
    rows = []
    for i in range(6):
        t = i * 10_000_000
        rows.append(call(t, 5_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(t + 10_000, dur, "h2d", 50_000_000, "pinned", "device", correlation=i + 1))
        rows.append(kernel(t + 10_000 + dur, 1_000_000))
    return build_trace(*rows, gpu={"name": "NVIDIA H100 80GB HBM3"})


def fires() -> Trace:
    """Six uploads of 50 MB at 12.5 GB/s to an H100."""
    return _copies(4_000_000)


def quiet() -> Trace:
    """The same uploads at 50 GB/s."""
    return _copies(1_000_000)


RULE = Rule(
    code="PK310",
    title="Bandwidth far under the link",
    unmet=needs_all(needs_copies, needs_gpu_rows, _judged),
    check=check,
    advice="Look at the link under load (nvidia-smi -q -d PCIE); bind the process to the GPU's NUMA node.",
    fires=fires,
    quiet=quiet,
)
