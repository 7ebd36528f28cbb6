"""What a host thread was doing at each instant, as the cause of the idle time of the device that waits for it.

Where several things were recorded at once the most specific one counts, in this order:

1. ``profiler``: overhead rows of the thread, also inside a call.
2. ``module_load``: module loading, JIT and graph instantiation, also as a call inside another call, or as an overhead
   row (lazy loading inside a launch).
3. ``sync``, ``copy_call``, ``allocator``: by the outermost call; what the driver calls inside it, and the operating
   system call or the time off the CPU that it waits with, are part of it.
4. ``off_cpu``: the scheduler ran something else. A launch call does not sleep, so time off the CPU inside it is that;
   where the thread waits in the operating system or for the interpreter's lock, it is off the CPU because of that.
5. ``launch_call``: launches, event records, stream waits, by the outermost call.
6. ``gil``: a range of the profiler's GIL trace (its domain or its name says GIL, its name says wait).
7. ``os_wait``: an operating system call.
8. ``stage_*``: the innermost stage range, if it is a CPU stage.
9. ``python``: the rest, the thread's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.analysis.calls import CALL_CAUSES, call_causes
from profkit.analysis.idle_pieces import CODES, CPU_STAGES, STAGE_CAUSES
from profkit.analysis.intervals import StateLine, state_line, union
from profkit.analysis.spans import Ranges, innermost_timeline
from profkit.model import Array, Ints, Trace
from profkit.schema import SPAN_KINDS, STAGES

LAYERS = (*CALL_CAUSES, "profiler", "os_wait", "off_cpu", "gil", *STAGE_CAUSES)
_ORDER = (
    "profiler", "module_load", "sync", "copy_call", "allocator", "off_cpu", "launch_call", "gil", "os_wait",
    *STAGE_CAUSES,
)  # fmt: skip
_MODULE_LOAD = CALL_CAUSES.index("module_load")

_LOADING = ("driver_jit", "module_loading", "lazy_function_loading")
_QUEUE_FULL = "command_buffer_full"
"""Driver overhead that is the launch call's own: it waits for a place in the launch queue."""

_OS_CALL = 27
_MARK = SPAN_KINDS.index("mark")
_GIL, _WAITING = "(^|[^a-z])gil([^a-z]|$)", "wait|acquiring"

CHUNK_GAPS = 1 << 19
"""So many queries of one thread are answered at a time: what that takes stays small beside the trace."""


@dataclass(frozen=True)
class _Rows:
    """Intervals of one layer or, with ``layer``, of several, by thread and start."""

    start: Ints
    end: Ints
    layer: Array
    place: dict[int, slice]

    def of(self, track: int) -> _Rows:
        mine = self.place.get(track, slice(0, 0))
        return _Rows(self.start[mine], self.end[mine], self.layer[mine], {})


def host_pieces(
    trace: Trace, ranges: Ranges, track: Array, start: Ints, until: Ints
) -> Iterator[tuple[Ints, Ints, Ints, Array]]:
    """(query, start, end, cause) of what ``track[i]`` did in [start[i], until[i]), in parts; causes as CODES."""
    sources = [rows for rows in _sources(trace, ranges) if len(rows.start)]
    by_thread = np.argsort(track, kind="stable")
    edges = np.flatnonzero(np.diff(track[by_thread], prepend=-2, append=-2))
    for low, high in pairwise(edges.tolist()):
        asked = by_thread[low:high]
        mine = [_Reach.of(rows.of(int(track[asked[0]]))) for rows in sources]
        asked = asked[np.argsort(start[asked], kind="stable")]
        for first in range(0, len(asked), CHUNK_GAPS):
            chunk = asked[first : first + CHUNK_GAPS]
            line = _line(mine, int(start[chunk[0]]), int(until[chunk].max()))
            query, piece_start, piece_end, cause = line.cut(start[chunk], until[chunk])
            yield chunk[query], piece_start, piece_end, cause


@dataclass(frozen=True)
class _Reach:
    """Intervals of one thread in order of start, of which a stretch of time can be looked up."""

    rows: _Rows
    reach: Ints

    @staticmethod
    def of(rows: _Rows) -> _Reach:
        return _Reach(rows, np.maximum.accumulate(rows.end))

    def between(self, low: int, high: int) -> _Rows:
        """Those that overlap [low, high), cut to it."""
        rows = self.rows
        near = slice(np.searchsorted(self.reach, low, side="right"), np.searchsorted(rows.start, high, side="left"))
        start, end, layer = np.maximum(rows.start[near], low), np.minimum(rows.end[near], high), rows.layer[near]
        keep = end > start
        return _Rows(start, end, layer, {}) if keep.all() else _Rows(start[keep], end[keep], layer[keep], {})


def _line(sources: list[_Reach], low: int, high: int) -> StateLine:
    """State of one thread in [low, high)."""
    layers: list[tuple[Array, Ints, Ints]] = []
    loading = []
    for source in sources:
        rows = source.between(low, high)
        is_loading = rows.layer == _MODULE_LOAD
        loading.append((rows.start[is_loading], rows.end[is_loading]))
        # Rows of one source that lie in each other: the outermost counts, and where they overlap, the earlier one.
        before = np.append(low, np.maximum.accumulate(rows.end)[:-1])[: len(rows.end)]
        start = np.maximum(rows.start, before)
        keep = (rows.end > start) & ~is_loading
        layers.append((rows.layer[keep], start[keep], rows.end[keep]))
    loads = union(*(np.concatenate(part) for part in zip(*loading, strict=True))) if loading else None
    if loads is not None and len(loads):
        layers.append((np.full(len(loads), _MODULE_LOAD, np.int8), loads.start, loads.end))
    return state_line(layers, _codes())


@cache
def _codes() -> Array:
    """Cause of each set of layers, as a bit mask."""
    masks = np.arange(1 << len(LAYERS))
    active = {layer: (masks >> bit) & 1 == 1 for bit, layer in enumerate(LAYERS)}
    active["off_cpu"] &= ~active["os_wait"] & ~active["gil"]
    out = np.full(len(masks), CODES["python"], np.int8)
    for layer in reversed(_ORDER):
        out[active[layer]] = CODES[layer]
    return out


def _sources(trace: Trace, ranges: Ranges) -> Iterator[_Rows]:
    """Every table that says what a thread was doing; within one of them no layer overlaps itself after the cut."""
    layer = call_causes(trace)
    yield _rows(trace, "calls", layer >= 0, layer)
    if trace.rows("os_calls"):
        yield _rows(trace, "os_calls", trace.array("os_calls", "event_class") == _OS_CALL, LAYERS.index("os_wait"))
    yield from _overheads(trace)
    if trace.rows("sched"):
        yield _off_cpu(trace)
    if trace.rows("spans"):
        yield _rows(trace, "spans", _is_gil_wait(trace), LAYERS.index("gil"))
        yield _cpu_stages(ranges)


def _rows(trace: Trace, table: str, keep: Array, layer: Array | int) -> _Rows:
    """The rows of an event table that last, by thread."""
    dur = trace.array(table, "dur_ns")
    keep = keep & (dur > 0)
    rows: Array | slice = slice(None) if keep.all() else np.flatnonzero(keep)
    start = trace.array(table, "start_ns")[rows]
    layers = layer[rows] if isinstance(layer, np.ndarray) else np.full(len(start), layer, np.int8)
    return _by_thread(trace.array(table, "track")[rows], start, start + dur[rows], layers)


def _by_thread(track: Array, start: Ints, end: Ints, layer: Array) -> _Rows:
    """Rows in order of start, gathered by thread."""
    if len(track) and (track[1:] < track[:-1]).any():
        order = np.argsort(track, kind="stable")
        track, start, end, layer = track[order], start[order], end[order], layer[order]
    edges = np.flatnonzero(np.diff(track, prepend=-2, append=-2))
    place = {int(track[low]): slice(low, high) for low, high in pairwise(edges)}
    return _Rows(start, end, layer, place)


def _overheads(trace: Trace) -> Iterator[_Rows]:
    if not trace.rows("overheads"):
        return
    kind = trace.tables["overheads"].column("kind")
    loading, full = (np.asarray(pc.is_in(kind, pa.array(words))) for words in (_LOADING, (_QUEUE_FULL,)))
    yield _rows(trace, "overheads", loading, _MODULE_LOAD)
    yield _rows(trace, "overheads", ~loading & ~full, LAYERS.index("profiler"))


def _off_cpu(trace: Trace) -> _Rows:
    """From each time that a thread was taken off its CPU to the next time it was put on one.

    Time before its first and after its last row is not known; where rows are missing between two of a kind, neither.
    """
    time, track, running = (trace.array("sched", column) for column in ("time_ns", "track", "running"))
    order = np.lexsort((time, track))
    time, track, running = time[order], track[order], running[order]
    off = np.flatnonzero((track[1:] == track[:-1]) & ~running[:-1] & running[1:] & (time[1:] > time[:-1]))
    return _by_thread(track[off], time[off], time[off + 1], np.full(len(off), LAYERS.index("off_cpu"), np.int8))


def _is_gil_wait(trace: Trace) -> Array:
    """Ranges in which a thread waits for the interpreter's lock."""
    texts = trace.tables["names"].column("text")
    of_gil, waiting = (
        np.asarray(pc.match_substring_regex(texts, words, ignore_case=True)) for words in (_GIL, _WAITING)
    )
    if not of_gil.any() or not waiting.any():
        return np.zeros(trace.rows("spans"), bool)
    name, domain = trace.array("spans", "name"), trace.array("spans", "domain")
    says_gil = ((name >= 0) & of_gil[name]) | ((domain >= 0) & of_gil[domain])
    mask: Array = (name >= 0) & waiting[name] & says_gil & (trace.array("spans", "kind") != _MARK)
    return mask


def _cpu_stages(ranges: Ranges) -> _Rows:
    """When a CPU stage was the innermost stage of a thread."""
    layer_of_stage = np.full(len(STAGES), -1, np.int8)
    for stage, cause in zip(CPU_STAGES, STAGE_CAUSES, strict=True):
        layer_of_stage[STAGES.index(stage)] = LAYERS.index(cause)
    timeline = innermost_timeline(ranges)
    layer = layer_of_stage[ranges.stage[timeline.owner]]
    mine = np.flatnonzero(layer >= 0)
    return _by_thread(timeline.track[mine], timeline.start[mine], timeline.end[mine], layer[mine])
