"""PK104 streams that never overlap.

What it finds
    A process that gives a GPU kernels on two streams or more, ten kernels each at least, of which no two ever run at
    once (under 0.1 % of their time), although they could: at least ten kernels that were submitted, with their own
    stream free and no event to wait for, stood 50 us or longer behind kernels of other streams whose grids fill at
    most half of the multiprocessors; together at least 1 % of the window.

Why it costs time
    Streams are there so that small kernels share a GPU. In turn they take as long as on one stream.

How the cost is computed
    No price: how much two kernels slow each other when they share a GPU is not in a trace. The facts say how long
    submitted kernels stood in wait.

What to do
    Look for what puts the streams in order: work on the legacy default stream (compile with --default-stream
    per-thread, or create streams with cudaStreamNonBlocking), CUDA_DEVICE_MAX_CONNECTIONS=1, a profiler that runs
    kernels one at a time.

When it is wrong
    A grid of few blocks fills a GPU if its blocks need all of the shared memory or registers of a multiprocessor, or
    if it is bound by memory: then the other kernel has nothing to share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.event_waits import AwaitedEvents
from profkit.analysis.idle_device import SHORTEST_LIMIT_NS
from profkit.analysis.intervals import NEVER, union
from profkit.analysis.work import KERNELS
from profkit.arrays import distinct, previous_in
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows, needs_joined_work
from profkit.rules._evidence import of_work
from profkit.rules._names import used_names
from profkit.schema import STREAM_KINDS, SYNC_KINDS
from profkit.testing import Row, build_trace, call, kernel

FEWEST_KERNELS = 10
"""Of a stream, and that stood in wait: one or two prove nothing."""
OVERLAP_SHARE = 0.001
SHORTEST_WAIT_NS = 50_000
"""A launch takes 2 to 10 us to reach the device, more under a profiler: what waits longer waits for something."""
FILLED = 0.5
"""Part of the multiprocessors that the blocks of the running kernel may take, so that another one finds room."""
SMALLEST_SHARE = 0.01
_OTHER_ORDER = re.compile(r"StreamWaitValue|BatchMemOp|LaunchHostFunc|StreamAddCallback")
"""Calls that hold a stream for what is no work of the device."""
_WAIT_EVENT = re.compile(r"StreamWaitEvent")
_STREAM_WAIT = SYNC_KINDS.index("stream_wait")


def check(analysis: Analysis) -> Iterator[Finding]:
    work = analysis.work
    for times in analysis.devices:
        if times.device < 0 or _processors(analysis, times.device) <= 0:
            continue
        on_device = np.flatnonzero((work.table == KERNELS) & (work.device == times.device))
        streams = distinct(work.track[on_device])
        if len(streams) < 2:
            continue
        process = analysis.trace.array("tracks", "process")[streams]
        for owner in np.unique(process).tolist():
            mine = on_device if len(np.unique(process)) == 1 else on_device[work.process[on_device] == owner]
            yield from _of_process(analysis, times.device, mine)


def _of_process(analysis: Analysis, device: int, rows: Ints) -> Iterator[Finding]:
    work = analysis.work
    count = np.bincount(work.track[rows])
    streams = np.flatnonzero(count >= FEWEST_KERNELS)
    contexts = analysis.trace.array("tracks", "context")[np.flatnonzero(count)]
    if len(streams) < 2 or len(np.unique(contexts)) > 1:  # two contexts share a device in turns
        return
    start, end = work.start[rows], work.end[rows]
    before = np.maximum.accumulate(end)[:-1]
    shared = int(np.maximum(np.minimum(end[1:], before) - start[1:], 0).sum())
    if shared > OVERLAP_SHARE * int((end - start).sum()):
        return
    late, wait = _in_wait(analysis, device, rows)
    window = analysis.window.dur_ns if analysis.window else 0
    taken = union(work.start[late] - wait, work.start[late]).total
    if len(late) < FEWEST_KERNELS or taken < SMALLEST_SHARE * window:
        return
    if not len(used_names(analysis, "calls", _OTHER_ORDER)):
        yield _finding(analysis, device, rows, streams, late, wait, taken)


def _in_wait(analysis: Analysis, device: int, rows: Ints) -> tuple[Ints, Ints]:
    """(kernels that stood in wait behind small kernels of other streams and nothing else, for how long)."""
    work = analysis.work
    blocks = _blocks(analysis, rows)
    small = rows[(blocks > 0) & (blocks <= FILLED * _processors(analysis, device))]
    running = union(work.start[small], work.end[small])
    on_device = np.flatnonzero(work.device == device)
    previous = np.full(len(work) + 1, -1, np.int64)
    earlier = previous_in(work.track[on_device])
    previous[on_device] = np.where(earlier >= 0, on_device[earlier], -1)
    node = analysis.trace.array("kernels", "graph_node")[work.row[rows]]
    asked = rows[(work.call[rows] >= 0) & (node < 0)]
    free = np.where(previous[asked] >= 0, work.end[previous[asked]], NEVER)
    ready = np.maximum(analysis.call_end[work.call[asked]], free)
    begin = np.minimum(ready, work.start[asked])
    wait = running.covered(begin, work.start[asked])
    # Behind something else for longer than a launch takes: then it may be that which held it.
    late = (wait >= SHORTEST_WAIT_NS) & (work.start[asked] - begin - wait <= SHORTEST_LIMIT_NS)
    asked, wait = asked[late], wait[late]
    free_of_events = ~_held_by_events(analysis, asked)
    return asked[free_of_events], wait[free_of_events]


def _held_by_events(analysis: Analysis, rows: Ints) -> Mask:
    """Which rows waited for an event of another stream; without waits in the trace none did."""
    trace = analysis.trace
    if not len(rows):
        return np.zeros(0, bool)
    if not (trace.array("syncs", "kind") == _STREAM_WAIT).any() and not len(used_names(analysis, "calls", _WAIT_EVENT)):
        return np.zeros(len(rows), bool)
    whole = analysis.whole_row(rows)
    awaited = AwaitedEvents(trace, analysis.whole_work, SHORTEST_LIMIT_NS)
    mask: Mask = awaited.held_until(whole, analysis.whole_work.start[whole]) > NEVER
    return mask


def _blocks(analysis: Analysis, rows: Ints) -> Ints:
    """Blocks of each of these kernels, -1 where the grid is not known."""
    axes = [analysis.trace.array("kernels", f"grid_{axis}")[analysis.work.row[rows]] for axis in "xyz"]
    known = np.all([axis > 0 for axis in axes], axis=0)
    product = axes[0].astype(np.float64) * axes[1] * axes[2]
    return np.where(known, np.minimum(product, 1 << 40), -1).astype(np.int64)


def _processors(analysis: Analysis, device: int) -> int:
    return int(analysis.trace.array("devices", "sm_count")[device])


def _finding(analysis: Analysis, device: int, rows: Ints, streams: Ints, late: Ints, wait: Ints, taken: int) -> Finding:
    kinds = analysis.trace.array("tracks", "stream_kind")[streams]
    legacy = bool((kinds == STREAM_KINDS.index("null")).any() and (kinds == STREAM_KINDS.index("default")).any())
    where = analysis.device_name(device)
    return Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:streams:",
        message=(
            f"{text.count(len(rows), 'kernel')} on {text.count(len(streams), 'stream')} of {where} never ran at once: "
            f"{text.count(len(late), 'kernel')} that had been submitted waited for {text.ns(taken)} while kernels of "
            f"other streams ran that fill at most {text.percent(FILLED)} of its {_processors(analysis, device)} "
            "multiprocessors"
        ),
        cause=(
            "one of the streams is the legacy default stream, which waits for the others and they for it"
            if legacy
            else "something puts the streams in order that is no event of this trace"
        ),
        advice=RULE.advice,
        facts={
            "streams": len(streams),
            "kernels": len(rows),
            "kernels_in_wait": len(late),
            "in_wait_ns": taken,
            "longest_wait_ns": int(wait.max()),
            "multiprocessors": _processors(analysis, device),
            "legacy_default_stream": int(legacy),
        },
        evidence=of_work(analysis, late[np.argsort(-wait, kind="stable")]),
    )


def _judged(analysis: Analysis) -> str:
    if not (analysis.trace.array("devices", "sm_count") > 0).any():
        return "the number of multiprocessors is not known: nothing tells a full GPU from streams in order"
    if not (analysis.trace.array("kernels", "grid_x") > 0).any():
        return "grids of kernels were not recorded: nothing tells a full GPU from streams in order"
    return ""


def _streams(grid: int) -> Trace:
    """Two streams of kernels of 100 us that were all submitted at the start, and run in turn."""
    rows: list[Row] = []
    for i in range(40):
        rows.append(call(i * 1_000, 900, correlation=i + 1))
        rows.append(
            kernel(100_000 + i * 100_000, 99_000, f"k{i % 7}_{i}", correlation=i + 1, stream=7 + i % 2, grid=grid)
        )
    return build_trace(*rows, gpu={"sm_count": 132})


def fires() -> Trace:
    """Kernels of 16 blocks on 132 multiprocessors."""
    return _streams(16)


def quiet() -> Trace:
    """The same kernels with 1,000 blocks each: one fills the GPU."""
    return _streams(1_000)


RULE = Rule(
    code="PK104",
    title="Streams that never overlap",
    unmet=needs_all(needs_gpu_rows, needs_calls, needs_joined_work, _judged),
    check=check,
    advice="Look for what orders the streams: the legacy default stream, CUDA_DEVICE_MAX_CONNECTIONS=1.",
    fires=fires,
    quiet=quiet,
    record="Trace CUDA calls together with GPU work (nsys --trace=cuda).",
)
