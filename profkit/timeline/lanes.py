"""The lanes of a trace: GPU streams, CUDA calls of host threads, ranges as a flame, requests, idle time by cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.calls import CALL_KINDS
from profkit.analysis.context import Analysis
from profkit.analysis.idle_pieces import EVERY
from profkit.analysis.spans import nested_ranges
from profkit.analysis.work import COPIES, KERNELS
from profkit.arrays import depths, distinct
from profkit.late_ends import drawn_lengths, late_kernels
from profkit.model import Array, Ints, Mask, Trace, Window
from profkit.schema import COPY_KINDS, FLAG_OPEN_END, SPAN_KINDS, STAGES
from profkit.timeline.pack import Lane

COPY_CATEGORIES = ("copy_h2d", "copy_d2h", "copy_other", "memset")
GRAPH_CATEGORY = "graph"
RANGE_CATEGORIES = (*(f"stage_{stage}" for stage in STAGES), "range", "op")
LAUNCH_PACED = "launch_paced"
"""Category of an idle gap in which the device waited for launches and nothing else."""

_NESTING = [SPAN_KINDS.index(kind) for kind in ("push_pop", "annotation")]
_OPS = [SPAN_KINDS.index(kind) for kind in ("op", "module")]
_REQUEST = STAGES.index("request")
_START_END = SPAN_KINDS.index("start_end")


def whole_window(analysis: Analysis) -> Window | None:
    """What an overview shows: the window of the analysis, else first to last host event; None for an empty trace."""
    if analysis.window is not None:
        return analysis.window
    trace = analysis.trace
    edges = [
        (int(start.min()), int((start + trace.array(table, "dur_ns")).max()))
        for table in ("calls", "spans", "os_calls", "copies")
        if len(start := trace.array(table, "start_ns"))
    ]
    if not edges:
        return None
    window = Window(min(start for start, _ in edges), max(end for _, end in edges))
    return window if window.dur_ns > 0 else None


def stream_lanes(analysis: Analysis) -> list[Lane]:
    """One lane a GPU stream, by device, most work first; categories are kernel families, copy directions, graphs.

    A kernel with a late end reaches to the next one of its stream.
    """
    trace, work = analysis.trace, analysis.work
    families, category = _device_categories(analysis)
    names = trace.array("kernels", "name")
    name = np.full(len(work), -1, np.int64)
    kernels = work.table == KERNELS
    name[kernels] = names[work.row[kernels]]
    labels = _device_labels(analysis)
    end = _drawn_ends(analysis)
    out = []
    for track in distinct(work.track).tolist():
        mine = np.flatnonzero(work.track == track)
        device = int(work.device[mine[0]])
        out.append(
            Lane(
                kind="stream",
                group=labels.get(device, f"GPU {device}"),
                label=_stream_label(trace, analysis, track, device),
                start=work.start[mine],
                end=end[mine],
                category=category[mine],
                categories=families,
                name=name[mine],
                row=np.zeros(len(mine), np.int64),
                device=device,
                track=int(track),
            )
        )
    return sorted(out, key=lambda lane: (lane.device, -int((lane.end - lane.start).sum()), lane.label))


def _drawn_ends(analysis: Analysis) -> Ints:
    """End of each device row, that of a kernel with a late end cut at the next kernel of its stream."""
    trace, work = analysis.trace, analysis.work
    if not late_kernels(trace).any():
        return work.end
    end = work.end.copy()
    kernels = np.flatnonzero(work.table == KERNELS)
    rows = work.row[kernels]
    shown = trace.array("kernels", "start_ns")[rows] + drawn_lengths(trace)[rows]
    end[kernels] = np.maximum(np.minimum(end[kernels], shown), work.start[kernels])
    return end


def _device_categories(analysis: Analysis) -> tuple[tuple[str, ...], Ints]:
    """(categories, the category of each device row)."""
    trace, work = analysis.trace, analysis.work
    encoded = trace.tables["names"].column("family").combine_chunks().dictionary_encode()
    words = [str(word) or "other" for word in encoded.dictionary.to_pylist()]
    family = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    categories = (*words, *COPY_CATEGORIES, GRAPH_CATEGORY)
    out = np.full(len(work), len(categories) - 1, np.int64)
    kernels, copies = work.table == KERNELS, work.table == COPIES
    out[kernels] = family[trace.array("kernels", "name")[work.row[kernels]]]
    group = np.full(len(COPY_KINDS), COPY_CATEGORIES.index("copy_other"))
    for kind, word in (("h2d", "copy_h2d"), ("um_h2d", "copy_h2d"), ("d2h", "copy_d2h"), ("um_d2h", "copy_d2h")):
        group[COPY_KINDS.index(kind)] = COPY_CATEGORIES.index(word)
    group[COPY_KINDS.index("memset")] = COPY_CATEGORIES.index("memset")
    out[copies] = len(words) + group[trace.array("copies", "kind")[work.row[copies]]]
    return categories, out


def _device_labels(analysis: Analysis) -> dict[int, str]:
    return {row: analysis.device_name(row) for row in range(analysis.trace.rows("devices"))}


def _stream_label(trace: Trace, analysis: Analysis, track: int, device: int) -> str:
    """The stream's label; with its process where several share the device."""
    label = str(trace.tables["tracks"].column("label")[track].as_py())
    sharing = np.unique(analysis.work.process[analysis.work.device == device])
    process = int(trace.array("tracks", "process")[track])
    if len(sharing) < 2 or process < 0:
        return label
    return f"{label}, pid {int(trace.array('processes', 'pid')[process])}"


def call_lanes(analysis: Analysis) -> list[Lane]:
    """One lane a host thread with CUDA calls, most time first. A driver call inside a runtime call is left out."""
    trace = analysis.trace
    start, end, track = trace.array("calls", "start_ns"), analysis.call_end, trace.array("calls", "track")
    out = []
    for lane in distinct(track).tolist():
        mine = np.flatnonzero(track == lane)
        mine = mine[outermost(start[mine], end[mine])]
        out.append(
            Lane(
                kind="calls",
                group=_process_label(trace, lane),
                label=f"calls, {trace.tables['tracks'].column('label')[lane].as_py()}",
                start=start[mine],
                end=end[mine],
                category=analysis.call_kind[mine].astype(np.int64),
                categories=tuple(f"call_{kind}" for kind in CALL_KINDS),
                name=trace.array("calls", "name")[mine].astype(np.int64),
                row=np.zeros(len(mine), np.int64),
                track=int(lane),
            )
        )
    return sorted(out, key=lambda lane: -int((lane.end - lane.start).sum()))


def outermost(start: Ints, end: Ints) -> Mask:
    """Which intervals (in order of start, longer first) end after all earlier ones: not inside of any."""
    mask = np.ones(len(start), bool)
    mask[1:] = end[1:] > np.maximum.accumulate(end)[:-1]
    return mask


def range_lanes(trace: Trace, *, operators: bool = False) -> list[Lane]:
    """One flame a thread: its stage ranges if the trace has stages, else all of its ranges; most time first.

    With ``operators`` the operators and modules are in it too. Requests have lanes of their own.
    """
    kind, stage = trace.array("spans", "kind"), trace.array("spans", "stage")
    nesting = np.isin(kind, _NESTING) & (stage != _REQUEST)
    keep = nesting & (stage >= 0)
    if not keep.any() or operators:
        keep = nesting
    if operators or not keep.any():
        keep = keep | np.isin(kind, _OPS)
    rows = np.flatnonzero(keep & (trace.array("spans", "dur_ns") > 0))
    track, flags = trace.array("spans", "track")[rows], trace.array("spans", "flags")
    out = []
    for lane in distinct(track).tolist():
        ranges = nested_ranges(trace, rows[track == lane])
        out.append(
            Lane(
                kind="ranges",
                group=_process_label(trace, lane),
                label=f"ranges, {trace.tables['tracks'].column('label')[lane].as_py()}",
                start=ranges.start,
                end=ranges.end,
                category=_range_category(ranges.stage, kind[ranges.row]),
                categories=RANGE_CATEGORIES,
                name=trace.array("spans", "name")[ranges.row].astype(np.int64),
                row=depths(ranges.parent),
                track=int(lane),
                still_open=(flags[ranges.row] & FLAG_OPEN_END) != 0,
            )
        )
    return sorted(out, key=lambda lane: -int((lane.end - lane.start)[lane.row == 0].sum()))


def _range_category(stage: Array, kind: Array) -> Ints:
    plain = np.where(np.isin(kind, _OPS), RANGE_CATEGORIES.index("op"), RANGE_CATEGORIES.index("range"))
    return np.where(stage >= 0, stage, plain).astype(np.int64)


def request_lanes(trace: Trace) -> list[Lane]:
    """One lane a process: its requests; in a trace without stages its start/end ranges, which may overlap."""
    kind, stage = trace.array("spans", "kind"), trace.array("spans", "stage")
    keep = stage == _REQUEST
    if not (stage >= 0).any():
        keep = kind == _START_END
    keep = keep & (trace.array("spans", "dur_ns") > 0)
    rows = np.flatnonzero(keep)
    process = trace.array("tracks", "process")[trace.array("spans", "track")[rows]]
    start = trace.array("spans", "start_ns")
    out = []
    for owner in np.unique(process).tolist():
        mine = rows[process == owner]
        out.append(
            Lane(
                kind="requests",
                group=_process_of(trace, owner),
                label="requests" if (stage[mine] == _REQUEST).all() else "start/end ranges",
                start=start[mine],
                end=start[mine] + trace.array("spans", "dur_ns")[mine],
                category=_range_category(stage[mine], np.full(len(mine), _START_END)),
                categories=RANGE_CATEGORIES,
                name=trace.array("spans", "name")[mine].astype(np.int64),
                row=np.zeros(len(mine), np.int64),
                still_open=(trace.array("spans", "flags")[mine] & FLAG_OPEN_END) != 0,
            )
        )
    return out


def idle_lanes(analysis: Analysis) -> list[Lane]:
    """One lane a device: its idle gaps, by the cause that takes most of each; ``name`` is the row of ``idle``."""
    idle = analysis.idle
    causes = (*EVERY, LAUNCH_PACED)
    if not len(idle):
        return []
    category = idle.main_cause()
    category[analysis.launch_paced] = len(causes) - 1
    labels = _device_labels(analysis)
    out = []
    for device in np.unique(idle.device).tolist():
        mine = np.flatnonzero(idle.device == device)
        out.append(
            Lane(
                kind="idle",
                group=labels.get(device, f"GPU {device}"),
                label="idle, by cause",
                start=idle.start[mine],
                end=idle.end[mine],
                category=category[mine],
                categories=tuple(f"idle_{cause}" for cause in causes),
                name=mine,
                row=np.zeros(len(mine), np.int64),
                device=int(device),
            )
        )
    return out


def merged(lanes: list[Lane], label: str) -> Lane:
    """Several lanes of one group as one."""
    first = lanes[0]
    start = np.concatenate([lane.start for lane in lanes])
    order = np.argsort(start, kind="stable")
    return replace(
        first,
        label=label,
        track=-1,
        start=start[order],
        end=np.concatenate([lane.end for lane in lanes])[order],
        category=np.concatenate([lane.category for lane in lanes])[order],
        name=np.concatenate([lane.name for lane in lanes])[order],
        row=np.concatenate([lane.row for lane in lanes])[order],
        still_open=np.zeros(0, bool),
    )


def _process_label(trace: Trace, track: int) -> str:
    return _process_of(trace, int(trace.array("tracks", "process")[track]))


def _process_of(trace: Trace, process: int) -> str:
    """Program, rank if there are several processes, and pid."""
    if process < 0:
        return "host"
    name = str(trace.tables["processes"].column("name")[process].as_py()).rsplit("/", 1)[-1] or "process"
    rank = int(trace.array("processes", "rank")[process])
    pid = int(trace.array("processes", "pid")[process])
    return f"{name} {pid}" + (f", rank {rank}" if rank >= 0 and trace.rows("processes") > 1 else "")
