"""PK705 memory reserved and not used.

What it finds
    What PyTorch's caching allocator holds and no tensor uses, at the moment at which most is in use (the profiler
    records both totals with profile_memory=True): at least 25 % of what is reserved and 1 GB. And allocation
    retries: cudaFree within 20 ms of a cudaMalloc of the same thread, which the allocator does when no free block
    fits and it gives cached ones back; then the numbers are said at any size.

Why it costs time
    What is reserved in pieces is no room for KV cache: fewer sequences run at a time, and a large block fails with
    memory left. A retry stops the host for milliseconds, and cudaFree waits for the whole device.

How the cost is computed
    cost: the calls of the retries on the host. No saving: PK210 prices allocations in the loop by a replay, and what
    more memory would give is not in the trace.

What to do
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; allocate the largest shapes first (warm up with the longest
    prompt); no torch.cuda.empty_cache() in the loop; a fixed pool for the KV cache.

When it is wrong
    torch.cuda.empty_cache() looks like a retry. Only what was recorded counts: a larger peak before the capture is
    why more is reserved. Memory in a pool of the engine (KV blocks) is in use for the allocator, filled or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_gpu_rows
from profkit.rules._evidence import longest_first, of_calls
from profkit.rules._names import used_names
from profkit.testing import Row, build_trace, call, counter, kernel

ALLOCATED, RESERVED = "Total Allocated", "Total Reserved"
UNUSED_SHARE = 0.25
"""Of what is reserved: blocks of 2 and 20 MB that are cut up leave less than this as a rule."""
SMALLEST_BYTES = 1_000_000_000
NEAR_NS = 20_000_000
"""Between two calls of one retry: it does nothing else, but a free may have waited for the device."""
_LONGEST_NS = 1 << 45
"""Ten hours: a longer call is damage, and sums must not overflow."""
_MALLOC = re.compile(r"^(cuda|hip)Malloc$")
_FREE = re.compile(r"^(cuda|hip)Free$")


@dataclass(frozen=True)
class _Peak:
    """What a device's allocator held when most was in use, bytes, and when it was seen first, ns."""

    device: int
    allocated: int
    reserved: int
    since: int


def check(analysis: Analysis) -> Iterator[Finding]:
    for peak in _peaks(analysis):
        calls, retries = _retries(analysis, peak)
        unused = peak.reserved - peak.allocated
        large = unused >= UNUSED_SHARE * peak.reserved and unused >= SMALLEST_BYTES
        if unused >= 0 and (retries or large):
            yield _finding(analysis, peak, calls, retries)


def _finding(analysis: Analysis, peak: _Peak, calls: Ints, retries: int) -> Finding:
    unused = peak.reserved - peak.allocated
    share = unused / peak.reserved if peak.reserved else None
    length = np.minimum(analysis.trace.array("calls", "dur_ns")[calls], _LONGEST_NS)
    time = int(length.sum())
    again = (
        f"; {text.count(retries, 'allocation retry', 'allocation retries')} (cudaFree within {text.ns(NEAR_NS)} of "
        f"cudaMalloc) held the host for {text.ns(time)}"
        if retries
        else ""
    )
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{peak.device}:memory:",
        message=(
            f"PyTorch's allocator holds {text.size(peak.reserved)} of "
            f"{text.printable(text.clip(analysis.device_name(peak.device), 80))} where most is in use "
            f"({text.size(peak.allocated)}): {text.size(unused)} ({text.percent(share)}) is reserved and not used"
            f"{again}"
        ),
        cause="cached blocks that no tensor uses, and that new ones do not fit into",
        advice=RULE.advice,
        cost_ns=time if retries else -1,
        facts={
            "reserved_bytes": peak.reserved,
            "allocated_bytes": peak.allocated,
            "reserved_unused_bytes": unused,
            "unused_share": round(share or 0.0, 4),
            "allocation_retries": retries,
            "retry_ns": time,
        },
        evidence=of_calls(analysis, calls[longest_first(length)]),
    )


def _peaks(analysis: Analysis) -> Iterator[_Peak]:
    """Of each device with both totals, what is selected only."""
    trace = analysis.trace
    names = trace.text("counter_names", "name")
    if ALLOCATED not in names or RESERVED not in names:
        return
    counter_of, time = trace.array("counters", "counter"), trace.array("counters", "time_ns")
    value = trace.array("counters", "value")
    device = np.append(trace.array("tracks", "device"), -1)[trace.array("counters", "track")]
    inside = np.isfinite(value) & (value >= 0) & (value < 1 << 62)
    if analysis.selected is not None:
        inside &= (time >= analysis.selected.start_ns) & (time < analysis.selected.end_ns)
    for row in np.unique(device[inside & (device >= 0)]).tolist():
        mine = inside & (device == row)
        used = np.flatnonzero(mine & (counter_of == names.index(ALLOCATED)))
        held = np.flatnonzero(mine & (counter_of == names.index(RESERVED)))
        held = held[np.argsort(time[held], kind="stable")]
        if not len(used) or not len(held):
            continue
        most = int(used[np.argmax(value[used])])
        at = max(int(np.searchsorted(time[held], time[most], side="right")) - 1, 0)
        yield _Peak(int(row), int(value[most]), int(value[held[at]]), int(time[used].min()))


def _retries(analysis: Analysis, peak: _Peak) -> tuple[Ints, int]:
    """(calls of allocation retries since the totals are recorded, how many): groups of frees beside a malloc."""
    trace = analysis.trace
    malloc, free = (used_names(analysis, "calls", pattern) for pattern in (_MALLOC, _FREE))
    name, start = trace.array("calls", "name"), trace.array("calls", "start_ns")
    mine = np.isin(name, np.concatenate([malloc, free])) & (start >= peak.since) & analysis.begins_inside("calls")
    processes = analysis.processes_of(peak.device)
    if len(processes):
        mine &= np.isin(trace.array("calls", "process"), processes)
    rows = np.flatnonzero(mine)
    track = trace.array("calls", "track")[rows]
    rows = rows[np.lexsort((start[rows], track))]
    if len(rows) < 2:
        return rows[:0], 0
    track, frees = trace.array("calls", "track")[rows], np.isin(name[rows], free)
    near = (track[1:] == track[:-1]) & (start[rows[1:]] - analysis.call_end[rows[:-1]] <= NEAR_NS)
    # Frees that follow each other are one group; a malloc before it failed, or else the one behind it was made again.
    opens = np.flatnonzero(frees & ~np.append(False, near & frees[:-1]))
    closes = np.flatnonzero(frees & ~np.append(near & frees[1:], False))
    before = (opens > 0) & np.append(False, near & ~frees[:-1])[opens]
    after = ~before & np.append(near & ~frees[1:], False)[closes]
    real = before | after
    part = _members(len(rows), opens[real], closes[real])
    part[opens[before] - 1] = True
    part[closes[after] + 1] = True
    return rows[part], int(real.sum())


def _members(n: int, first: Ints, last: Ints) -> Mask:
    """Which of n lie in one of the stretches [first, last]."""
    change = np.zeros(n + 1, np.int64)
    change[first] += 1
    change[last + 1] -= 1
    mask: Mask = np.cumsum(change)[:-1] > 0
    return mask


def _has_totals(analysis: Analysis) -> str:
    names = analysis.trace.text("counter_names", "name")
    if ALLOCATED in names and RESERVED in names:
        return "" if any(True for _ in _peaks(analysis)) else "no totals of reserved memory in what is selected"
    return "no counters of reserved and allocated memory in this trace"


def _serving(reserved: float) -> list[Row]:
    rows = [kernel(i * 1_000_000, 900_000) for i in range(20)]
    for i in range(20):
        rows += [counter(i * 1_000_000, ALLOCATED, 18e9 + i * 1e7), counter(i * 1_000_000, RESERVED, reserved)]
    return rows


def fires() -> Trace:
    """Three retries of 10 ms, and 0.8 GB that no block fits into."""
    rows = _serving(19e9)
    for i in range(3):
        t = 21_000_000 + i * 11_000_000
        rows += [call(t, 5_000_000, "cudaMalloc"), call(t + 5_010_000, 5_000_000, "cudaFree")]
    return build_trace(*rows)


def quiet() -> Trace:
    """The same totals without retries."""
    return build_trace(*_serving(19e9))


RULE = Rule(
    code="PK705",
    title="Memory reserved and not used",
    unmet=needs_all(needs_gpu_rows, _has_totals),
    check=check,
    advice="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or warm up with the largest shapes.",
    fires=fires,
    quiet=quiet,
    record="Record with torch.profiler.profile(profile_memory=True).",
)
