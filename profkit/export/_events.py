"""The events of a trace as blocks of JSON lines, table by table, a bounded number of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import decoded
from profkit.analysis.context import Analysis
from profkit.analysis.spans import overlapping
from profkit.arrays import first_match, sort_order
from profkit.export import _spans
from profkit.export._json_rows import Piece, known, lines, microseconds, numbers, quoted
from profkit.export._lanes import Lanes, number_lanes
from profkit.export._nesting import flat_lanes, nested_lanes, stream_lanes
from profkit.export._tables import selected_rows
from profkit.export.perfetto import name_events
from profkit.late_ends import drawn_lengths
from profkit.model import Array, Ints, Trace
from profkit.schema import (
    COPY_KINDS,
    DEVICE_TABLES,
    FLAG_OPEN_END,
    MEMORY_KINDS,
    SPAN_KINDS,
    STAGES,
    SYNC_KINDS,
    TABLES,
)

BLOCK_ROWS = 50_000
_WIDEST_ID = 1 << 62
_HOST_TABLES = ("calls", "spans", "os_calls")
_START_END = SPAN_KINDS.index("start_end")
_REQUEST = STAGES.index("request")
_SYNC_NAMES = {"event": "Event Sync", "stream": "Stream Sync", "stream_wait": "Stream Wait Event",
               "context": "Context Sync"}  # fmt: skip
_DIRECTIONS = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP", "h2h": "HtoH", "array": "HtoA"}


@dataclass(frozen=True)
class Writer:
    """What every kind of event needs: the trace, its lanes, texts as JSON, what is selected and where it is drawn."""

    trace: Trace
    lanes: Lanes
    names: pa.Array
    """Texts of ``names`` as JSON."""
    rows: dict[str, Ints]
    """table -> the selected rows."""
    places: dict[str, Array]
    """table -> number of the lane of each selected row."""
    stage_names: tuple[Array, Array]
    """For each row of ``names`` the stage it says and whether it has a payload."""
    kernel_lengths: Ints
    stride: int
    """Added to correlation ids for each process: they are unique in one process only, and readers join on them."""

    def column(self, table: str, name: str, part: slice) -> Array:
        return self.trace.array(table, name)[self.rows[table][part]]

    def lengths(self, table: str, part: slice) -> Ints:
        """Lengths as lanes show them: a kernel with a late end reaches to the next one of its stream."""
        if table != "kernels":
            return self.column(table, "dur_ns", part)
        return self.kernel_lengths[self.rows[table][part]]

    def correlation(self, table: str, part: slice) -> Ints:
        own = self.column(table, "correlation", part).astype(np.int64)
        process = self.column(table, "process", part).astype(np.int64)
        return np.where(own >= 0, own + (process + 1) * self.stride, -1)

    def place(self, table: str, part: slice) -> pa.Array:
        return self.lanes.texts().take(pa.array(self.places[table][part]))

    def text(self, table: str, part: slice, column: str = "name") -> pa.Array:
        """Names as JSON; "" for -1."""
        rows = self.column(table, column, part)
        return pc.fill_null(self.names.take(pa.array(rows, mask=rows < 0)), '""')


def event_lines(analysis: Analysis) -> Iterator[bytes | memoryview]:
    """All events of what is selected; each begins with a comma."""
    writer = _prepare(analysis)
    for table, pieces in _PIECES.items():
        for part in _parts(len(writer.rows[table])):
            yield lines(pieces(writer, part), len(writer.rows[table][part]))
    yield from _flows(analysis, writer)
    yield from _counters(writer)
    # Last, when it is known which lanes were used; readers take them from anywhere.
    yield name_events(writer.trace, writer.lanes)


def _parts(rows: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK_ROWS) for first in range(0, rows, BLOCK_ROWS))


def _prepare(analysis: Analysis) -> Writer:
    trace = analysis.trace
    rows = {}
    for table in (*_PIECES, "counters"):
        found = selected_rows(trace.tables[table], TABLES[table].kind, analysis.selected)
        rows[table] = np.arange(trace.rows(table)) if found is None else found
    owners = [table for table in ("calls", "syncs", *DEVICE_TABLES) if trace.rows(table)]
    several = trace.rows("processes") > 1
    widest = max((int(trace.array(table, "correlation").max()) for table in owners), default=-1)
    lanes = number_lanes(trace)
    names = quoted(decoded.name_texts(trace))
    # Ids that leave no room for those of the other processes are damage.
    stride = min(widest + 1, _WIDEST_ID // (trace.rows("processes") + 1)) if several else 0
    writer = Writer(trace, lanes, names, rows, {}, _spans.stages_in_names(trace), drawn_lengths(trace), stride)
    _place_together(writer, DEVICE_TABLES, stream_lanes, "")
    _place_host(writer)
    _place_together(writer, ("syncs",), flat_of_order, "syncs")
    _place_together(writer, ("overheads",), nested_lanes, "overhead")
    return writer


def _place_together(writer: Writer, tables: tuple[str, ...], layout: Callable[..., Ints], what: str) -> None:
    """Lay out the rows of some tables on the lanes of their tracks, all at once."""
    everything = slice(None)
    start, track = (
        np.concatenate([writer.column(table, name, everything) for table in tables]) for name in ("start_ns", "track")
    )
    dur = np.concatenate([writer.lengths(table, everything) for table in tables])
    place = writer.lanes.place(track, layout(start, start + dur, track), what)
    cuts = np.cumsum([len(writer.rows[table]) for table in tables])[:-1]
    for table, part in zip(tables, np.split(place, cuts), strict=True):
        writer.places[table] = part


def _place_host(writer: Writer) -> None:
    """Calls and ranges of a thread share its lane; requests that overlap and start/end ranges have their own.

    A request that overlaps no other stays on its thread: GPU work inside belongs to it.
    """
    everything = slice(None)
    _place_together(writer, ("calls", "spans", "os_calls"), nested_lanes, "")
    apart = _apart(writer)
    start, dur, track = (writer.column("spans", name, everything)[apart] for name in ("start_ns", "dur_ns", "track"))
    writer.places["spans"][apart] = writer.lanes.place(track, flat_of_order(start, start + dur, track), "start/end")


def _apart(writer: Writer) -> Ints:
    """Selected spans (positions) that may overlap others of their thread without nesting."""
    everything = slice(None)
    kind, stage, track = (writer.column("spans", name, everything) for name in ("kind", "stage", "track"))
    start = writer.column("spans", "start_ns", everything)
    end = start + writer.column("spans", "dur_ns", everything)
    process = writer.trace.array("tracks", "process")[track] if writer.trace.rows("tracks") else track
    requests = np.flatnonzero((stage == _REQUEST) & (kind == _START_END))
    shared = overlapping(process[requests], start[requests], end[requests])
    return np.sort(np.concatenate((np.flatnonzero((kind == _START_END) & (stage != _REQUEST)), requests[shared])))


def flat_of_order(start: Ints, end: Ints, group: Array) -> Ints:
    """:func:`flat_lanes` of rows in any order."""
    order = sort_order(start, end - start, group)
    lane = np.zeros(len(start), np.int64)
    lane[order] = flat_lanes(start[order], end[order], group[order])
    return lane


def _opening(writer: Writer, table: str, part: slice, category: Piece, name: Piece) -> list[Piece]:
    """An event up to its ``args``: complete, or begun and never ended where the row was not seen to end."""
    start, dur = writer.column(table, "start_ns", part), writer.lengths(table, part)
    length = pc.binary_join_element_wise(',"dur":', microseconds(dur), "")
    phase: Piece = '"X"'
    if table == "spans":
        instant = pa.array(_spans.is_instant(writer, part))
        length = pc.if_else(instant, ',"s":"t"', length)
    if table in _HOST_TABLES:
        still_open = pa.array((writer.column(table, "flags", part) & FLAG_OPEN_END) != 0)
        phase = pc.if_else(still_open, '"B"', '"X"')
        length = pc.if_else(still_open, "", length)
        if table == "spans":
            phase = pc.if_else(instant, '"i"', phase)
    head: list[Piece] = [',\n{"ph":', phase, ',"cat":"', category, '","name":', name, ",", writer.place(table, part)]
    flags = writer.column(table, "flags", part)
    number = numbers(writer.column(table, "id", part))
    return [
        *head, ',"ts":', microseconds(start), length, ',"args":{"row":', number, known("flags", flags, 0),
    ]  # fmt: skip


def _device_args(writer: Writer, table: str, part: slice) -> list[Piece]:
    track = writer.column(table, "track", part)
    out: list[Piece] = []
    for key, column in (("device", "device"), ("context", "context"), ("stream", "stream")):
        values = writer.trace.array("tracks", column)[track] if writer.trace.rows("tracks") else track
        out.append(known(key, np.where(track >= 0, values, -1)))
    return [*out, known("correlation", writer.correlation(table, part))]


def _graph_args(writer: Writer, table: str, part: slice) -> list[Piece]:
    return [
        known("graph id", writer.column(table, "graph", part)),
        known("graph node id", writer.column(table, "graph_node", part)),
    ]


def _dims(writer: Writer, what: str, part: slice) -> pa.Array:
    axes = [writer.column("kernels", f"{what}_{axis}", part) for axis in "xyz"]
    text = pc.binary_join_element_wise(
        f',"{what}":[', numbers(axes[0]), ",", numbers(axes[1]), ",", numbers(axes[2]), "]", ""
    )
    return pc.if_else(pa.array(axes[0] < 0), "", text)


def _kernels(writer: Writer, part: slice) -> list[Piece]:
    static, dynamic = (writer.column("kernels", f"{kind}_smem_bytes", part) for kind in ("static", "dynamic"))
    shared = np.where((static < 0) & (dynamic < 0), -1, np.maximum(static, 0) + np.maximum(dynamic, 0))
    return [
        *_opening(writer, "kernels", part, "kernel", writer.text("kernels", part)),
        *_device_args(writer, "kernels", part),
        *(_dims(writer, what, part) for what in ("grid", "block", "cluster")),
        known("registers per thread", writer.column("kernels", "registers", part)),
        known("shared memory", shared),
        *_graph_args(writer, "kernels", part),
        known("recorded dur (ns)", _recorded(writer, part)),
        "}}",
    ]


def _recorded(writer: Writer, part: slice) -> Ints:
    """The recorded length of kernels that are drawn shorter, -1 for the others."""
    recorded = writer.column("kernels", "dur_ns", part)
    return np.where(recorded != writer.lengths("kernels", part), recorded, -1)


def _copy_name(kind: str, src: str, dst: str) -> str:
    """As the PyTorch profiler calls it: Memcpy HtoD (Pageable -> Device), Memset (Device)."""
    if kind == "memset":
        return f"Memset ({dst.capitalize()})"
    prefix = "Unified memory" if kind.startswith("um_") else "Memcpy"
    return f"{prefix} {_DIRECTIONS.get(kind.removeprefix('um_'), 'unknown')} ({src.capitalize()} -> {dst.capitalize()})"


_MEMORIES = len(MEMORY_KINDS) + 1
_COPY_NAMES = pa.array(
    [
        json.dumps(_copy_name(kind, src, dst))
        for kind in (*COPY_KINDS, "unknown")
        for src in (*MEMORY_KINDS, "unknown")
        for dst in (*MEMORY_KINDS, "unknown")
    ]
)


def _copies(writer: Writer, part: slice) -> list[Piece]:
    kind, src, dst = (
        writer.column("copies", name, part).astype(np.int64) % size
        for name, size in (("kind", len(COPY_KINDS) + 1), ("src_kind", _MEMORIES), ("dst_kind", _MEMORIES))
    )  # -1 is the last one: unknown
    names = _COPY_NAMES.take(pa.array((kind * _MEMORIES + src) * _MEMORIES + dst))
    category = pc.if_else(pa.array(kind == COPY_KINDS.index("memset")), "gpu_memset", "gpu_memcpy")
    return [
        *_opening(writer, "copies", part, category, names),
        *_device_args(writer, "copies", part),
        known("bytes", writer.column("copies", "bytes", part)),
        *_graph_args(writer, "copies", part),
        "}}",
    ]


def _graphs(writer: Writer, part: slice) -> list[Piece]:
    return [
        *_opening(writer, "graphs", part, "cuda_graph", '"CUDA graph"'),
        *_device_args(writer, "graphs", part),
        known("graph id", writer.column("graphs", "graph", part)),
        known("graph exec id", writer.column("graphs", "graph_exec", part)),
        "}}",
    ]


def _calls(writer: Writer, part: slice) -> list[Piece]:
    driver = pa.array(writer.column("calls", "api", part) == 1)
    return [
        *_opening(writer, "calls", part, pc.if_else(driver, "cuda_driver", "cuda_runtime"), writer.text("calls", part)),
        known("correlation", writer.correlation("calls", part)),
        known("return code", writer.column("calls", "return_code", part)),
        "}}",
    ]


def _syncs(writer: Writer, part: slice) -> list[Piece]:
    words = pa.array([*(json.dumps(_SYNC_NAMES[kind]) for kind in SYNC_KINDS), '"Sync"'])
    names = words.take(pa.array(writer.column("syncs", "kind", part).astype(np.int64) % len(words)))
    return [
        *_opening(writer, "syncs", part, "cuda_sync", names),
        *_device_args(writer, "syncs", part),
        ',"cuda_sync_kind":',
        names,
        "}}",
    ]


def _ranges(writer: Writer, part: slice) -> list[Piece]:
    kind, stage = writer.column("spans", "kind", part), writer.column("spans", "stage", part)
    names, args = _spans.names_and_args(writer, part)
    return [*_opening(writer, "spans", part, _spans.categories(kind, stage), names), *args, "}}"]


def _os_calls(writer: Writer, part: slice) -> list[Piece]:
    return [*_opening(writer, "os_calls", part, "os_call", writer.text("os_calls", part)), "}}"]


def _overheads(writer: Writer, part: slice) -> list[Piece]:
    return [*_opening(writer, "overheads", part, "overhead", writer.text("overheads", part)), "}}"]


_PIECES: dict[str, Callable[[Writer, slice], list[Piece]]] = {
    "spans": _ranges,
    "calls": _calls,
    "os_calls": _os_calls,
    "kernels": _kernels,
    "copies": _copies,
    "graphs": _graphs,
    "syncs": _syncs,
    "overheads": _overheads,
}


def _flows(analysis: Analysis, writer: Writer) -> Iterator[bytes | memoryview]:
    """An arrow from each call to each device row that it caused: one launch of a graph has many."""
    work = analysis.whole_work
    at_call = _positions(writer, "calls", work.call)
    for number, table in enumerate(DEVICE_TABLES):
        mine = np.flatnonzero((work.table == number) & (at_call >= 0))
        at_row = _positions(writer, table, work.row[mine])
        mine, at_row = mine[at_row >= 0], at_row[at_row >= 0]
        for part in _parts(len(mine)):
            ids = numbers(mine[part])
            call, row = at_call[mine[part]], at_row[part]
            for phase, owner, position in (('"s"', "calls", call), ('"f","bp":"e"', table, row)):
                time = writer.trace.array(owner, "start_ns")[writer.rows[owner][position]]
                place = writer.lanes.texts().take(pa.array(writer.places[owner][position]))
                pieces: list[Piece] = [
                    f',\n{{"ph":{phase},"cat":"ac2g","name":"ac2g","id":', ids, ",", place, ',"ts":',
                    microseconds(time), "}",
                ]  # fmt: skip
                yield lines(pieces, len(position))


def _positions(writer: Writer, table: str, rows: Ints) -> Ints:
    """Positions of rows among the selected ones, -1 for those that are not."""
    selected = writer.rows[table]
    if len(selected) == writer.trace.rows(table):
        return rows
    return np.where(rows >= 0, first_match(selected, rows), -1)


def _counters(writer: Writer) -> Iterator[bytes | memoryview]:
    """Samples of counters, under the device or process of their track; a value that is no number is left out."""
    names = quoted(pa.array(writer.trace.text("counter_names", "name"), pa.string()))
    for part in _parts(len(writer.rows["counters"])):
        counter, track, value = (writer.column("counters", name, part) for name in ("counter", "track", "value"))
        keep = np.isfinite(value) & (counter >= 0)
        pids = numbers(writer.lanes.track_pid[track[keep]])
        pieces: list[Piece] = [
            ',\n{"ph":"C","cat":"counter","name":', names.take(pa.array(counter[keep])), ',"pid":', pids,
            ',"tid":0,"ts":', microseconds(writer.column("counters", "time_ns", part)[keep]), ',"args":{"value":',
            pa.array(value[keep]).cast(pa.string()), "}}",
        ]  # fmt: skip
        yield lines(pieces, int(keep.sum()))
