"""PK504 rows without their other half.

What it finds
    GPU rows that no recorded call submitted, launches whose work has no row although their process has GPU rows,
    and rows that were open or cut at an edge of the capture or that the reader had to mend.

Why it costs time
    It costs no run time. Without its call a row belongs to no stage and no step, and the idle time before it has no
    known cause; without its row a launch looks as if the GPU had nothing to do.

How the cost is computed
    No price. GPU rows at the beginning of their stream, before the first one with a call, were launched before
    recording began; launches behind the last one of their thread that has a row had not run when it ended: both are
    usual, and a warning only from 10 % on (of their number and of the time of all rows). What is missing in between
    is a warning from 2 % on, as are rows that are not whole; below 10 rows of a sort nothing is. Not counted:
    launches that failed or that a stream capture took, host functions, unified-memory migrations.

What to do
    Record a longer window, or start and stop the recording where the GPU is idle (torch.cuda.synchronize before
    cudaProfilerStart and cudaProfilerStop). If rows are missing in between, look for dropped records in the
    profiler's own messages, and do not cut the capture by time.

When it is wrong
    Kernels that kernels launch have no call of their own. A graph with no nodes has no row. A stream capture that
    began before the recording, without records of its nodes, looks like launches that were lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.calls import GRAPH_LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.work import COPIES
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_calls, needs_gpu_rows
from profkit.rules._evidence import of_calls, of_work
from profkit.schema import COPY_KINDS, DEVICE_TABLES, FLAG_REPAIRED, NOT_WHOLE
from profkit.testing import build_trace, kernel, launch

INSIDE_SHARE = 0.02
"""Of GPU rows or launches: what is missing in between from here on makes idle time and steps doubtful."""
EDGE_SHARE = 0.10
"""The same at an edge: a queue of some hundred launches is usual there."""
FEWEST_ROWS = 10
_MIGRATIONS = [COPY_KINDS.index(kind) for kind in ("um_h2d", "um_d2h", "um_d2d")]


@dataclass(frozen=True)
class Lost:
    """Rows (positions in ``work`` or rows of ``calls``) without their other half, and which of them lie at an edge."""

    rows: Ints
    at_edge: Mask
    of: int
    time_share: float = 1.0
    """Of the summed lengths of all rows, where rows have a length."""
    inside_time_share: float = 1.0

    @property
    def inside(self) -> int:
        return len(self.rows) - int(self.at_edge.sum())

    @property
    def is_serious(self) -> bool:
        """By number and by time: some short kernels beside a few long graphs say little, and so does one long row."""
        return _is_serious(len(self.rows), self.of, self.time_share, EDGE_SHARE) or _is_serious(
            self.inside, self.of, self.inside_time_share, INSIDE_SHARE
        )


def _is_serious(rows: int, of: int, time_share: float, least: float) -> bool:
    return rows >= FEWEST_ROWS and rows >= least * of and time_share >= least


def check(analysis: Analysis) -> Iterator[Finding]:
    orphans, launches = _orphans(analysis), _launches(analysis)
    flags = _flags(analysis)
    cut, mended = np.flatnonzero(flags & NOT_WHOLE), int(((flags & FLAG_REPAIRED) != 0).sum())
    if not len(orphans.rows) and not len(launches.rows) and not len(cut) and not mended:
        return
    not_whole = max(len(cut), mended)
    serious = orphans.is_serious or launches.is_serious
    serious |= not_whole >= FEWEST_ROWS and not_whole >= INSIDE_SHARE * len(flags)
    yield Finding(
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:all:rows:",
        severity="warning" if serious else "info",
        message="; ".join(_parts(orphans, launches, len(cut), mended, len(flags))),
        cause="the recording began or ended in the middle of the work, or the capture was cut or lost records",
        advice=RULE.advice,
        facts={
            "gpu_rows": len(flags),
            "gpu_rows_without_call": len(orphans.rows),
            "gpu_rows_without_call_at_start": int(orphans.at_edge.sum()),
            "launches": launches.of,
            "launches_without_gpu_row": len(launches.rows),
            "launches_without_gpu_row_at_end": int(launches.at_edge.sum()),
            "gpu_rows_not_whole": len(cut),
            "gpu_rows_mended": mended,
        },
        evidence=(
            *of_work(analysis, _inner_first(orphans)),
            *of_calls(analysis, _inner_first(launches)),
            *of_work(analysis, cut),
        ),
    )


def _parts(orphans: Lost, launches: Lost, cut: int, mended: int, rows: int) -> Iterator[str]:
    if len(orphans.rows):
        yield (
            f"{_of(len(orphans.rows), orphans.of, 'GPU row')} ({text.percent(len(orphans.rows) / orphans.of)}) "
            f"{'has' if len(orphans.rows) == 1 else 'have'} no recorded call"
            f"{_where(orphans, 'at the beginning of their stream, as of work launched before recording began')}"
        )
    if len(launches.rows):
        yield (
            f"{_of(len(launches.rows), launches.of, 'launch', 'launches')} "
            f"({text.percent(len(launches.rows) / launches.of)}) "
            f"{'has' if len(launches.rows) == 1 else 'have'} no GPU row"
            f"{_where(launches, 'behind the last one of their thread that has one, as where recording ended first')}"
        )
    if cut:
        yield f"{_of(cut, rows, 'GPU row')} {'was' if cut == 1 else 'were'} open or cut at an edge of the capture"
    if mended:
        yield f"{_of(mended, rows, 'GPU row')} had impossible times, and {'was' if mended == 1 else 'were'} mended"


def _of(part: int, whole: int, noun: str, plural: str = "") -> str:
    return f"{part:,} of {text.count(whole, noun, plural)}"


def _where(lost: Lost, at_edge: str) -> str:
    edge = int(lost.at_edge.sum())
    if edge == len(lost.rows):
        return f", all {at_edge}" if edge > 1 else f", {at_edge}"
    return f" ({edge:,} {at_edge}; {lost.inside:,} in between)" if edge else ", none of them at an edge of the capture"


def _inner_first(lost: Lost) -> Ints:
    return lost.rows[np.argsort(lost.at_edge, kind="stable")]


def _orphans(analysis: Analysis) -> Lost:
    """GPU rows that no recorded call submitted; at the edge those before the first row of their stream that has one."""
    work = analysis.work
    expected = _caused_by_calls(analysis)
    rows = np.flatnonzero(expected & (work.call < 0))
    called = np.flatnonzero(work.call >= 0)
    first = np.full(analysis.trace.rows("tracks") + 1, len(work), np.int64)
    first[work.track[called][::-1]] = called[::-1]  # the last one written is the first of its stream
    of = len(work) if expected is True else int(np.count_nonzero(expected))
    at_edge = rows < first[work.track[rows]]
    length = (work.end[rows] - work.start[rows]).astype(np.float64)
    total = float((work.end - work.start).sum(dtype=np.float64)) if len(rows) else 0.0
    shares = [float(part.sum()) / total if total else 1.0 for part in (length, length[~at_edge])]
    return Lost(rows, at_edge, of, *shares)


def _caused_by_calls(analysis: Analysis) -> Mask | bool:
    """Rows that a call submits: all but migrations of unified memory."""
    kind = analysis.trace.array("copies", "kind")
    migrated = np.isin(kind, _MIGRATIONS)
    if not migrated.any():
        return True
    work = analysis.work
    copies = np.flatnonzero(work.table == COPIES)
    mask = np.ones(len(work), bool)
    mask[copies] = ~migrated[work.row[copies]]
    return mask


def _launches(analysis: Analysis) -> Lost:
    """Launches without a GPU row, of processes that have some; at the edge those behind the last one with a row."""
    trace, whole = analysis.trace, analysis.whole_work
    process, track = trace.array("calls", "process"), trace.array("calls", "track")
    counted = analysis.launch_calls & _whole_processes(analysis)[process] & analysis.begins_inside("calls")
    has_row = np.zeros(len(process), bool)
    has_row[whole.call[whole.call >= 0]] = True
    rows = np.flatnonzero(counted & ~has_row & (trace.array("calls", "return_code") <= 0))
    rows = rows[~_is_host_function(trace, rows)]
    rows = rows[~_captured(analysis, rows)]
    with_row = np.flatnonzero(counted & has_row)
    last = np.full(trace.rows("tracks") + 1, -1, np.int64)
    last[track[with_row]] = with_row
    return Lost(rows, rows > last[track[rows]], len(with_row) + len(rows))


def _whole_processes(analysis: Analysis) -> Mask:
    """Processes with rows and no lane of a device without any: where one device was chosen, other launches lack theirs.

    The last one is for calls of no process.
    """
    trace, work = analysis.trace, analysis.whole_work
    process, device = trace.array("tracks", "process"), trace.array("tracks", "device")
    mask, seen = np.zeros(trace.rows("processes") + 1, bool), np.zeros(trace.rows("devices") + 1, bool)
    mask[work.process], seen[work.device] = True, True
    mask[process[(device >= 0) & ~seen[device]]] = False
    mask[-1] = False
    return mask


def _is_host_function(trace: Trace, calls: Ints) -> Mask:
    names = trace.array("calls", "name")[calls]
    found = [row for row in np.unique(names).tolist() if "HostFunc" in trace.name(row)]
    mask: Mask = np.isin(names, found)
    return mask


def _captured(analysis: Analysis, launches: Ints) -> Mask:
    """Launches that a stream capture took: between its begin and its end in the process, or around a new node."""
    trace = analysis.trace
    process, start = trace.array("calls", "process"), trace.array("calls", "start_ns")
    mask = np.zeros(len(launches), bool)
    if not len(launches):
        return mask
    name = trace.array("calls", "name")
    change = np.zeros(trace.rows("names") + 1, np.int8)
    for row in np.unique(name).tolist():
        base = trace.name(row, "base")
        change[row] = 1 if "BeginCapture" in base else -1 if base.endswith("EndCapture") else 0
    edges = np.flatnonzero(change[name])
    for owner in np.unique(process[launches]).tolist():
        mine, of_process = np.flatnonzero(process[launches] == owner), edges[process[edges] == owner]
        if len(of_process):
            depth = np.cumsum(change[name[of_process]])
            at = np.searchsorted(of_process, launches[mine])  # calls are in order of time
            # A first end without its begin: the capture began before the recording.
            before = max(-int(depth.min()), 0)
            mask[mine] = np.append(before, depth + before)[at] > 0
    mask |= _holds_node(trace, launches, start)
    mask &= analysis.call_kind[launches] != GRAPH_LAUNCH
    return mask


def _holds_node(trace: Trace, launches: Ints, start: Ints) -> Mask:
    """Whether a node was made on the thread of a launch while the call lasted."""
    end = start[launches] + trace.array("calls", "dur_ns")[launches]
    thread = trace.array("calls", "track")[launches]
    mask = np.zeros(len(launches), bool)
    made, lane = trace.array("graph_events", "start_ns"), trace.array("graph_events", "track")
    for track in np.unique(thread).tolist():
        mine, nodes = np.flatnonzero(thread == track), made[lane == track]
        first = np.searchsorted(nodes, start[launches[mine]])
        mask[mine] = first < np.searchsorted(nodes, end[mine], side="right")
    return mask


def _flags(analysis: Analysis) -> Ints:
    """Flags of the rows of ``work``."""
    work = analysis.work
    out = np.zeros(len(work), np.int64)
    for code, table in enumerate(DEVICE_TABLES):
        flags = analysis.trace.array(table, "flags")
        if flags.any():
            mine = np.flatnonzero(work.table == code)
            out[mine] = flags[work.row[mine]]
    return out


def fires() -> Trace:
    """A hundred launches, and among their kernels twenty that no call launched."""
    rows = [launch("gemm", at=i * 10_000, start=i * 10_000 + 6_000, dur=2_000) for i in range(100)]
    return build_trace(*rows, *(kernel(i * 10_000 + 9_000, 500, correlation=i + 1) for i in range(40, 60)))


def quiet() -> Trace:
    """A hundred launches, each with its kernel."""
    return build_trace(*(launch("gemm", at=i * 10_000, start=i * 10_000 + 6_000, dur=2_000) for i in range(100)))


RULE = Rule(
    code="PK504",
    title="Rows without their other half",
    unmet=needs_all(needs_gpu_rows, needs_calls),
    check=check,
    advice=(
        "Record a longer window, or begin and end it where the GPU is idle; if rows are missing in between, look for "
        "dropped records in the profiler's messages, and do not cut the capture by time."
    ),
    fires=fires,
    quiet=quiet,
    record="Record CUDA calls and GPU work together (nsys: --trace=cuda).",
)
