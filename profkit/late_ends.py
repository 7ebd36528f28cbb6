"""Kernels whose recorded end cannot be: a later kernel of their stream began and ended before it.

A stream runs its kernels in order. Two neighbours may overlap (programmatic dependent launch: the second begins while
the first drains), but the second still ends last; nodes of one CUDA graph may run side by side. Neither is touched.
What is left are completion stamps that were written late. Such a kernel is drawn up to the start of the next one: where
launches do not depend, it cannot have lasted longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from profkit import text
from profkit.arrays import numbered, pack
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import FLAG_LATE_END, FLAG_OVERLAPS_NEXT, FLAG_REPAIRED, NOT_WHOLE

_NO_LENGTH = NOT_WHOLE | FLAG_REPAIRED
_SLACK_NS = 1_000
"""Below this, ends out of order are the clock's: stamps of two kernels are no more exact than that."""


def mark_late_ends(trace: Trace) -> Trace:
    """The trace with the flag late_end on such kernels, and a warning that counts them."""
    rows = _late(trace)
    if not len(rows):
        return trace
    table = trace.tables["kernels"]
    flags = trace.array("kernels", "flags").copy()
    flags[rows] |= FLAG_LATE_END
    place = table.schema.get_field_index("flags")
    kernels = table.set_column(place, table.schema.field(place), pa.array(flags))
    marked = replace(trace, tables={**trace.tables, "kernels": kernels})
    meta = replace(trace.meta, warnings=(*trace.meta.warnings, late_end_remark(marked)))
    return replace(marked, meta=meta)


def late_end_remark(trace: Trace) -> str:
    """What makes sums of kernel lengths doubtful, in a sentence; "" if nothing does."""
    late = np.flatnonzero(late_kernels(trace))
    if not len(late):
        return ""
    ends = "ends behind later rows of its" if len(late) == 1 else "end behind later rows of their"
    longest = text.ns(int(trace.array("kernels", "dur_ns")[late].max()))
    return (
        f"{text.count(len(late), 'kernel')} {ends} own stream, the longest lasts {longest}: a stream runs one at a "
        "time, so such lengths are doubtful (late completion stamps), and so are sums that hold them"
    )


def late_kernels(trace: Trace) -> Mask:
    """Kernels with the flag."""
    mask: Mask = (trace.array("kernels", "flags") & FLAG_LATE_END) != 0
    return mask


def drawn_lengths(trace: Trace) -> Ints:
    """Length of each kernel as a lane shows it, ns: one with a late end reaches to the next kernel of its stream.

    Without a next kernel, as in a part of a trace, it keeps the recorded length.
    """
    lengths: Ints = trace.array("kernels", "dur_ns")
    if not late_kernels(trace).any():
        return lengths
    lengths = lengths.copy()
    late = late_kernels(trace)
    rows, borders = _by_stream(trace, late)
    start = trace.array("kernels", "start_ns")[rows]
    followed = np.ones(len(rows), bool)
    followed[borders[1:] - 1] = False
    at = np.flatnonzero(late[rows] & followed)
    lengths[rows[at]] = np.minimum(lengths[rows[at]], start[at + 1] - start[at])
    return lengths


def _late(trace: Trace) -> Ints:
    """Rows of kernels with a late end. Only streams with overlaps are looked at: most traces have none."""
    flags = trace.array("kernels", "flags")
    overlap = (flags & FLAG_OVERLAPS_NEXT) != 0
    if not overlap.any():
        return np.zeros(0, np.int64)
    rows, borders = _by_stream(trace, overlap)
    end = trace.array("kernels", "start_ns")[rows] + trace.array("kernels", "dur_ns")[rows]
    whole = (flags[rows] & _NO_LENGTH) == 0
    slack = max(_SLACK_NS, 2 * trace.meta.resolution_ns)
    late = np.concatenate([rows[found] for found in _end_behind(end, whole, borders, slack)])
    return np.sort(late[~_of_graphs(trace, late)])


def _by_stream(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """(all kernels of the streams that have a wanted one, stream by stream in order of start, borders of streams)."""
    track = trace.array("kernels", "track")
    has = np.zeros(trace.rows("tracks") + 1, bool)
    has[track[wanted]] = True
    rows = np.flatnonzero(has[track])
    lanes: Array = track[rows]
    few = len(has) < 1 << 15  # then numpy counts instead of sorting
    rows = rows[np.argsort(lanes.astype(np.int16) if few else lanes, kind="stable")]
    inner = np.flatnonzero(np.diff(track[rows])) + 1
    return rows, np.concatenate(([0], inner, [len(rows)]))


def _end_behind(end: Ints, whole: Mask, borders: Ints, slack: int) -> Iterator[Ints]:
    """Positions of whole rows, stream by stream, that end behind a later whole row of their stream."""
    known = np.where(whole, end, np.iinfo(np.int64).max)
    for first, last in pairwise(borders.tolist()):
        earliest_later = np.minimum.accumulate(known[first + 1 : last][::-1])[::-1]
        sure = whole[first : last - 1] & (end[first : last - 1] - slack > earliest_later)
        yield first + np.flatnonzero(sure)


def _of_graphs(trace: Trace, rows: Ints) -> Mask:
    """Which kernels belong to a CUDA graph: by its id, or because their launch call owns other kernels, too."""
    correlation = trace.array("kernels", "correlation")
    named: Mask = (trace.array("kernels", "graph_node")[rows] >= 0) | (trace.array("kernels", "graph")[rows] >= 0)
    if not (correlation[rows] >= 0).any():
        return named
    keys, wanted = pack([[column, column[rows]] for column in (trace.array("kernels", "process"), correlation)])
    known, _, inverse = numbered(keys)
    owned = np.bincount(inverse, minlength=len(known))[np.searchsorted(known, wanted)]
    mask: Mask = named | ((correlation[rows] >= 0) & (owned > 1))
    return mask
