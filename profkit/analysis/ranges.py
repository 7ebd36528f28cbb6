"""Which of the program's own ranges the idle time falls in: a garbage collection, a data loader, a layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.spans import Ranges, innermost_timeline, nested_ranges
from profkit.model import Array, Ints, Trace
from profkit.schema import SPAN_KINDS
from profkit.stages import parse_name

_NAMED = [SPAN_KINDS.index(kind) for kind in ("push_pop", "annotation")]
_OPS = SPAN_KINDS.index("op")


def idle_by_range(analysis: Analysis, gaps: Ints) -> list[tuple[str, int]]:
    """(name, idle ns) of the innermost ranges of the deciding threads during these gaps, most time first.

    ``gaps`` are positions in ``analysis.idle``. A stage goes by its own name, whatever prefix and payload it carries.
    """
    trace, idle = analysis.trace, analysis.idle
    call = analysis.work.call[idle.ends_at[gaps]]
    gaps, call = gaps[call >= 0], call[call >= 0]
    thread = trace.array("calls", "track")[call] if len(call) else call
    totals: dict[str, int] = {}
    for track in np.unique(thread).tolist():
        mine = gaps[thread == track]
        covered = union(idle.start[mine], idle.end[mine])
        ranges = _ranges_of_program(trace, track)
        for name, value in _by_name(trace, ranges, covered):
            totals[name] = totals.get(name, 0) + value
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))


def range_of_most(analysis: Analysis, track: Array, start: Ints, end: Ints) -> str:
    """The name of the innermost range that takes most of these times of threads, if more than half; else nothing."""
    trace = analysis.trace
    totals: dict[str, int] = {}
    for one in np.unique(track).tolist():
        mine = track == one
        covered = union(start[mine], end[mine])
        ranges = _ranges_of_program(trace, one)
        for name, value in _by_name(trace, ranges, covered):
            totals[name] = totals.get(name, 0) + value
    name = max(totals, key=lambda name: (totals[name], name), default="")
    return name if name and 2 * totals[name] > int((end - start).sum()) else ""


def _ranges_of_program(trace: Trace, track: int) -> Ranges:
    """What the program marked on a thread: ranges and annotations, which old PyTorch recorded as operators with a #."""
    kind, name = trace.array("spans", "kind"), trace.array("spans", "name")
    fits = np.isin(kind, _NAMED)
    operators = np.flatnonzero(kind == _OPS)
    if len(operators):
        is_annotation = np.append(trace.name_rows(lambda text: "#" in text and "::" not in text), False)
        fits[operators] = is_annotation[name[operators]]
    return nested_ranges(trace, np.flatnonzero(fits & (trace.array("spans", "track") == track)))


def _by_name(trace: Trace, ranges: Ranges, covered: Intervals) -> Iterator[tuple[str, int]]:
    """(name, ns) of the innermost ranges of a thread in some intervals; a stage by its own name."""
    pieces = innermost_timeline(ranges)
    inside = covered.covered(pieces.start, pieces.end)
    hit = np.flatnonzero(inside)
    names = trace.array("spans", "name")[ranges.row[pieces.owner[hit]]]
    sums = np.bincount(names, inside[hit]) if len(hit) else np.zeros(0)
    for row in np.flatnonzero(sums).tolist():
        text = trace.name(row)
        stage = parse_name(text)
        yield (stage.name if stage is not None else text), int(sums[row])
