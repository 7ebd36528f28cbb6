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
from profkit.analysis.intervals import EMPTY, StateLine, state_line, union
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

_BLOCK = 1 << 10


class HostStates:
    """What the threads of a trace were doing; see :meth:`pieces`."""

    def __init__(self, trace: Trace, ranges: Ranges) -> None:
        self._sources = [rows for rows in _sources(trace, ranges) if len(rows.start)]
        self._threads: dict[int, list[_Thread]] = {}

    def pieces(self, track: Array, start: Ints, until: Ints) -> tuple[Ints, Ints, Ints, Array]:
        """(query, start, end, cause) of what ``track[i]`` did in [start[i], until[i]); causes as CODES.

        The pieces of one query follow each other. Queries that lie close together in time cost least.
        """
        by_thread = np.argsort(track, kind="stable")
        parts: list[tuple[Array, Array, Array, Array]] = [(by_thread[:0], start[:0], start[:0], np.zeros(0, np.int8))]
        edges = np.flatnonzero(np.diff(track[by_thread], prepend=-2, append=-2))
        for low, high in pairwise(edges.tolist()):
            asked = by_thread[low:high]
            line = self._line(int(track[asked[0]]), int(start[asked].min()), int(until[asked].max()))
            query, piece_start, piece_end, cause = line.cut(start[asked], until[asked])
            parts.append((asked[query], piece_start, piece_end, cause))
        query, start, until, cause = (np.concatenate(column) for column in zip(*parts, strict=True))
        return query, start, until, cause

    def _line(self, track: int, low: int, high: int) -> StateLine:
        """State of a thread in [low, high)."""
        if track not in self._threads:
            self._threads[track] = [rows.of(track) for rows in self._sources]
        layers: list[tuple[Array, Ints, Ints]] = []
        loading: list[tuple[Ints, Ints]] = []
        for source in self._threads[track]:
            start, end, layer = source.between(low, high)
            is_loading = layer == _MODULE_LOAD
            loading.append((start[is_loading], end[is_loading]))
            # Rows of one source that lie in each other: the outermost counts, and where they overlap, the earlier one.
            before = np.append(low, np.maximum.accumulate(end)[:-1])[: len(end)]
            start = np.maximum(start, before)
            keep = (end > start) & ~is_loading
            layers.append((layer[keep], start[keep], end[keep]))
        loads = union(*(np.concatenate(part) for part in zip(*loading, strict=True))) if loading else EMPTY
        layers.append((np.full(len(loads), _MODULE_LOAD, np.int8), loads.start, loads.end))
        return state_line(layers, _codes())


@dataclass(frozen=True)
class _Rows:
    """Rows of a table that say what a thread did, in order of start; ``layer`` -1 says nothing."""

    start: Ints
    dur: Ints
    track: Array
    layer: Array

    def of(self, track: int) -> _Thread:
        """Those of one thread; of a table of one thread without a copy."""
        is_mine = self.track == track
        mine: Array | slice = slice(None) if is_mine.all() else np.flatnonzero(is_mine)
        start, dur = self.start[mine], self.dur[mine]
        blocks = np.arange(0, len(start), _BLOCK)
        reach = [int((start[low : low + _BLOCK] + dur[low : low + _BLOCK]).max()) for low in blocks.tolist()]
        return _Thread(start, dur, self.layer[mine], np.maximum.accumulate(np.asarray(reach, np.int64)))


@dataclass(frozen=True)
class _Thread:
    """Rows of one thread. ``reach[i]`` is the last end of all rows before block i + 1: where a look back begins."""

    start: Ints
    dur: Ints
    layer: Array
    reach: Ints

    def between(self, low: int, high: int) -> tuple[Ints, Ints, Array]:
        """(start, end, layer) of the rows that overlap [low, high), cut to it."""
        first = int(np.searchsorted(self.reach, low, side="right")) * _BLOCK
        near = slice(first, int(np.searchsorted(self.start, high, side="left")))
        start, layer = self.start[near], self.layer[near]
        end = np.minimum(start + self.dur[near], high)
        start = np.maximum(start, low)
        keep = (end > start) & (layer >= 0)
        return (start, end, layer) if keep.all() else (start[keep], end[keep], layer[keep])


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
    """Every table that says what a thread was doing."""
    yield _rows(trace, "calls", call_causes(trace))
    if trace.rows("os_calls"):
        is_call = trace.array("os_calls", "event_class") == _OS_CALL
        yield _rows(trace, "os_calls", np.where(is_call, LAYERS.index("os_wait"), -1))
    if trace.rows("overheads"):
        yield from _overheads(trace)
    if trace.rows("sched"):
        yield _off_cpu(trace)
    if trace.rows("spans"):
        yield _rows(trace, "spans", np.where(_is_gil_wait(trace), LAYERS.index("gil"), -1))
        yield _cpu_stages(ranges)


def _rows(trace: Trace, table: str, layer: Array) -> _Rows:
    """The rows of an event table that say something."""
    says = layer >= 0
    kept: Array | slice = slice(None) if 2 * np.count_nonzero(says) > len(layer) else np.flatnonzero(says)
    start, dur, track = (trace.array(table, column)[kept] for column in ("start_ns", "dur_ns", "track"))
    return _Rows(start, dur, track, layer[kept].astype(np.int8, copy=False))


def _overheads(trace: Trace) -> Iterator[_Rows]:
    kind = trace.tables["overheads"].column("kind")
    loading, full = (np.asarray(pc.is_in(kind, pa.array(words))) for words in (_LOADING, (_QUEUE_FULL,)))
    yield _rows(trace, "overheads", np.where(loading, _MODULE_LOAD, -1))
    yield _rows(trace, "overheads", np.where(loading | full, -1, LAYERS.index("profiler")))


def _off_cpu(trace: Trace) -> _Rows:
    """From each time that a thread was taken off its CPU to the next time it was put on one.

    Time before its first and after its last row is not known; where rows are missing between two of a kind, neither.
    """
    time, track, running = (trace.array("sched", column) for column in ("time_ns", "track", "running"))
    order = np.lexsort((time, track))
    time, track, running = time[order], track[order], running[order]
    off = np.flatnonzero((track[1:] == track[:-1]) & ~running[:-1] & running[1:])
    layer = np.full(len(off), LAYERS.index("off_cpu"), np.int8)
    return _in_order(time[off], time[off + 1] - time[off], track[off], layer)


def _in_order(start: Ints, dur: Ints, track: Array, layer: Array) -> _Rows:
    order = np.argsort(start, kind="stable")
    return _Rows(start[order], dur[order], track[order], layer[order])


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
    start = timeline.start[mine]
    return _in_order(start, timeline.end[mine] - start, timeline.track[mine], layer[mine])
