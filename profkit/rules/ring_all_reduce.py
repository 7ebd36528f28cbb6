"""PK604 small all-reduces over a ring.

What it finds
    All-reduces of known size that ran as a ring (the kernel's name says RING), although they are small: under
    512 kB for up to 4 ranks, under 256 kB for up to 8. These are the borders below which vLLM's custom all-reduce
    takes one step (csrc/custom_all_reduce.cuh). Together they are at least 2 % of the window, waits for late ranks
    not counted where they are known.

Why it costs time
    A ring sends 2 (n - 1) messages one after the other. For a few kilobytes each of them is all latency; a one-shot
    all-reduce reads the buffers of all peers at once. In a decode step there are two of them in each layer.

How the cost is computed
    cost: what these kernels took, less the waits. No saving: how long a one-shot kernel takes on this machine is not
    in the trace.

What to do
    Turn on the engine's custom all-reduce (vLLM, SGLang, TensorRT-LLM, FlashInfer), PyTorch's symmetric memory, or
    NCCL 2.27 or later with registered symmetric buffers; fuse it with the norm behind it.

When it is wrong
    It needs direct access between all GPUs (NVLink, or 2 GPUs of one PCIe root) on one host: ranks of which no rows
    were recorded are taken to be on this one. Gradients of training are better sent in fewer, larger messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from profkit import text
from profkit.analysis.collectives import Arrivals, find_arrivals
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.arrays import distinct
from profkit.model import Finding, Ints, Mask, Trace, Window, evidence
from profkit.rules import Rule, needs_all, needs_gpu_rows
from profkit.rules._evidence import longest_first
from profkit.testing import build_trace, collective, kernel

SMALL_BYTES = {4: 512 * 1024, 8: 256 * 1024}
"""By the most ranks: below so many bytes one step is faster than two."""
SMALLEST_SHARE = 0.02


def check(analysis: Analysis) -> Iterator[Finding]:
    rows, waited, ranks = _ring(analysis)
    trace, window = analysis.trace, analysis.window
    device = trace.array("tracks", "device")[trace.array("collectives", "track")[rows]]
    for one in distinct(device).tolist():
        mine = device == one
        took = trace.array("collectives", "dur_ns")[rows[mine]] - waited[mine]
        if window is not None and int(took.sum()) >= SMALLEST_SHARE * window.dur_ns:
            yield _finding(analysis, one, rows[mine], took, int(ranks[mine].max()), window)


def _finding(analysis: Analysis, device: int, rows: Ints, took: Ints, ranks: int, window: Window) -> Finding:
    trace = analysis.trace
    size = trace.array("collectives", "bytes")[rows]
    total = int(took.sum())
    order = longest_first(took)
    first = int(rows[order[0]])
    start = int(trace.array("collectives", "start_ns")[first])
    end = start + max(int(trace.array("collectives", "dur_ns")[first]), 1)
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:all_reduce:",
        message=(
            f"{text.count(len(rows), 'all-reduce')} of {text.size(percentile(size, 50))} (median) ran as a ring over "
            f"{ranks} ranks on {text.printable(text.clip(analysis.device_name(device), 80))}: "
            f"{text.ns(percentile(took, 50))} each (median), {text.ns(total)} in all "
            f"({text.percent(total / window.dur_ns)} of {text.ns(window.dur_ns)}); messages so small are done in one "
            "step where all GPUs can reach each other"
        ),
        cause="a ring of many small messages, each of which is latency",
        advice=RULE.advice,
        cost_ns=total,
        facts={
            "all_reduces": len(rows),
            "ranks": ranks,
            "median_bytes": percentile(size, 50) or 0,
            "largest_bytes": int(size.max()),
            "median_ns": percentile(took, 50) or 0,
            "time_ns": total,
            "window_ns": window.dur_ns,
        },
        evidence=(
            evidence(
                "collectives",
                rows[order],
                tracks=tuple(np.unique(trace.array("collectives", "track")[rows]).tolist()),
                window=Window(start, end),
            ),
        ),
    )


def _ring(analysis: Analysis) -> tuple[Ints, Ints, Ints]:
    """(rows of collectives: small all-reduces over a ring, how long each waited for its last rank, its ranks)."""
    trace = analysis.trace
    arrivals = find_arrivals(trace)
    size, ranks = trace.array("collectives", "bytes"), _ranks(trace, arrivals)
    small = np.zeros(len(size), bool)
    for most, limit in SMALL_BYTES.items():
        small |= (ranks >= 2) & (ranks <= most) & (size < limit)
    rows = np.flatnonzero(_sized(analysis) & small & _over_ring(analysis))
    waited = np.zeros(len(size), np.int64)
    waited[arrivals.row] = np.maximum(arrivals.member_wait_ns, 0)
    return rows, np.minimum(waited, trace.array("collectives", "dur_ns"))[rows], ranks[rows]


def _sized(analysis: Analysis) -> Mask:
    """All-reduces with their kernel and size, inside what is selected."""
    trace = analysis.trace
    reduces = pc.equal(trace.tables["collectives"].column("operation"), "all_reduce").combine_chunks()
    known = (trace.array("collectives", "kernel") >= 0) & (trace.array("collectives", "bytes") > 0)
    mask: Mask = reduces.to_numpy(zero_copy_only=False) & known & (trace.array("collectives", "track") >= 0)
    return mask & analysis.begins_inside("collectives")


def _over_ring(analysis: Analysis) -> Mask:
    trace = analysis.trace
    kernel = trace.array("collectives", "kernel")
    name = np.where(kernel >= 0, trace.array("kernels", "name")[np.maximum(kernel, 0)], -1)
    ring = np.zeros(trace.rows("names") + 1, bool)  # the last one is for kernels without a name
    for row in distinct(name).tolist():
        ring[row] = "RING" in trace.name(row, "short")
    return ring[name]


def _ranks(trace: Trace, arrivals: Arrivals) -> Ints:
    """Ranks of each collective: as its process says, else as many as took part; -1 where neither is known."""
    kernel = trace.array("collectives", "kernel")
    process = np.where(kernel >= 0, trace.array("kernels", "process")[np.maximum(kernel, 0)], -1)
    ranks = np.append(trace.array("processes", "world_size"), -1)[process].astype(np.int64)
    ranks[arrivals.row] = np.maximum(ranks[arrivals.row], arrivals.members[arrivals.of])
    return ranks


def _known(analysis: Analysis) -> str:
    if not analysis.trace.rows("collectives") or not analysis.trace.rows("kernels"):
        return "no collectives in this trace"
    sized = _sized(analysis)
    if not sized.any():
        return "no all-reduce of known size in this trace"
    if (_ranks(analysis.trace, find_arrivals(analysis.trace))[sized] < 2).all():
        return "how many ranks took part is not known"
    return "" if len(np.unique(analysis.trace.array("devices", "host"))) < 2 else "the ranks are on several hosts"


def _two_ranks(name: str, size: int) -> Trace:
    rows = []
    for i in range(20):
        for rank in (0, 1):
            rows.append(kernel(i * 100_000, 70_000, pid=100 + rank, device=rank))
            rows += collective(i * 100_000 + 75_000, 20_000, name, size=size, pid=100 + rank, device=rank)
    return build_trace(*rows)


def fires() -> Trace:
    """Twenty all-reduces of 16 kB over two ranks, 20 us each, by a ring."""
    return _two_ranks("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 16_384)


def quiet() -> Trace:
    """The same ring with messages of 8 MB."""
    return _two_ranks("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 8_388_608)


RULE = Rule(
    code="PK604",
    title="Small all-reduces over a ring",
    unmet=needs_all(needs_gpu_rows, _known),
    check=check,
    advice="Use a one-shot all-reduce for small messages (the engine's custom one, symmetric memory), or fuse it.",
    fires=fires,
    quiet=quiet,
    record="Record message sizes: nsys --trace=cuda,nvtx with NCCL's ranges (2.26 or later), or PyTorch's profiler.",
)
