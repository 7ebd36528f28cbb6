"""Array helpers that know nothing of traces: keys, look-ups, nesting. All vectorised, all int64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from profkit.model import Array, Ints, Mask

_LIMIT = 1 << 62
CHUNK_ROWS = 1 << 20


def pack(columns: Sequence[Sequence[Array]]) -> list[Ints]:
    """One int64 key a row, equal exactly where all columns are equal, over several tables at once.

    ``columns[k]`` holds column k of each table; returns the keys of each table, to read only. Values are shifted to
    start at 0 and multiplied by the ranges; where that would overflow, by the number of distinct values instead. A
    column that alone tells rows apart is the key itself.
    """
    telling = [(column, low, span) for column in columns for low, span in [_extent(column)] if span > 1]
    if len(telling) == 1:
        return [part.astype(np.int64, copy=False) for part in telling[0][0]]
    keys = [np.zeros(len(part), np.int64) for part in columns[0]]
    width = 1
    for column, low, span in telling:
        parts: list[Array] = list(column)
        if width * span >= _LIMIT:
            distinct = np.unique(np.concatenate(parts))
            parts = [np.searchsorted(distinct, part) for part in parts]
            low, span = 0, len(distinct)
        if width * span >= _LIMIT:  # the keys so far are sparse: number them densely
            distinct = np.unique(np.concatenate(keys))
            keys = [np.searchsorted(distinct, key) for key in keys]
            width = len(distinct)
        for key, part in zip(keys, parts, strict=True):  # in place: there may be 10 million rows
            key *= span
            key += part
            key -= low
        width *= span
    return keys


def _extent(parts: Sequence[Array]) -> tuple[int, int]:
    """(lowest value, number of values up to the highest) of a column over several tables."""
    filled = [part for part in parts if len(part)]
    low = min((int(part.min()) for part in filled), default=0)
    return low, max((int(part.max()) for part in filled), default=0) - low + 1


def key_of(*columns: Array) -> Ints:
    """One int64 key a row of one table; see :func:`pack`."""
    return pack([[column] for column in columns])[0]


def first_match(keys: Ints, wanted: Ints) -> Ints:
    """For each of ``wanted`` the first position at which ``keys`` holds it, -1 where it does not."""
    out = np.full(len(wanted), -1, np.int64)
    if not len(keys) or not len(wanted):
        return out
    low, high = int(keys.min()), int(keys.max())
    if high - low < 4 * len(keys) + 1_000_000:  # dense: a table of positions beats a sort
        table = np.full(high - low + 1, -1, np.int32 if len(keys) < 1 << 31 else np.int64)
        for at in reversed(list(chunks(len(keys)))):  # of equal keys the first is written last
            table[keys[at][::-1] - low] = np.arange(at.stop - 1, at.start - 1, -1)
        for at in chunks(len(wanted)):
            inside = (wanted[at] >= low) & (wanted[at] <= high)
            out[at][inside] = table[wanted[at][inside] - low]
        return out
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    hit = keys[order[at]] == wanted
    out[hit] = order[at[hit]]
    return out


def chunks(n: int) -> Iterator[slice]:
    """Parts of n rows: what is needed for one of them at a time stays small."""
    return (slice(low, min(low + CHUNK_ROWS, n)) for low in range(0, n, CHUNK_ROWS))


def index_type(*counts: int) -> type[np.int32] | type[np.int64]:
    """The smallest type that numbers so many rows, and -1."""
    return np.int32 if max(counts) < 1 << 31 else np.int64


def numbered(values: Array) -> tuple[Array, Ints, Ints]:
    """(distinct values in order, first row of each, number of each row): ``np.unique`` without a sort where it can.

    Ids of an export lie close together: then a table of positions is ten times as fast.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if high - low >= 4 * len(values) + 1_000_000:
        found, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        return found, first, inverse
    first_row = np.full(high - low + 1, -1, np.int64)
    first_row[values[::-1] - low] = np.arange(len(values) - 1, -1, -1)
    used = np.flatnonzero(first_row >= 0)
    position = np.empty(high - low + 1, np.int64)
    position[used] = np.arange(len(used))
    return (used + low).astype(values.dtype), first_row[used], position[values - low]


def distinct(codes: Array) -> Ints:
    """Distinct values of small non-negative codes, in order, -1 left out; no sort."""
    seen = np.zeros(int(codes.max(initial=-1)) + 2, bool)
    for at in chunks(len(codes)):
        seen[codes[at]] = True  # -1 is the last one
    return np.flatnonzero(seen[:-1])


def sort_order(start: Ints, dur: Ints, track: Array) -> Ints:
    """Order by (start, -dur, track, row): an enclosing row stands before what it encloses."""
    if len(start) < 2:
        return np.arange(len(start))
    if bool((start[1:] > start[:-1]).all()):
        return np.arange(len(start))
    order = np.argsort(start, kind="stable")
    tied = start[order][1:] == start[order][:-1]
    if not tied.any():
        return order
    rows = np.flatnonzero(np.concatenate(([False], tied)) | np.concatenate((tied, [False])))
    part = order[rows]
    order[rows] = part[np.lexsort((part, track[part], -dur[part], start[part]))]
    return order


def parents(start: Ints, end: Ints, group: Array) -> Ints:
    """For each row the nearest earlier row of its group that ends no sooner, -1 for none.

    Rows must be sorted by (start, -length). Where rows nest this is the enclosing row; where they overlap without
    nesting it is the latest one that still covers the row. Every candidate jumps to its candidate's candidate, so the
    number of passes grows with the depth plus the logarithm of the rows, not with the rows.
    """
    n = len(start)
    order = np.argsort(group, kind="stable")
    sorted_group, sorted_end = group[order], end[order]
    first = np.concatenate(([True], sorted_group[1:] != sorted_group[:-1])) if n else np.zeros(0, bool)
    candidate = np.arange(-1, n - 1)
    candidate[first] = -1
    active = np.flatnonzero(candidate >= 0)
    while len(active):
        active = active[sorted_end[candidate[active]] < sorted_end[active]]
        candidate[active] = candidate[candidate[active]]
        active = active[candidate[active] >= 0]
    out = np.full(n, -1, np.int64)
    has = candidate >= 0
    out[order[has]] = order[candidate[has]]
    return out


def depths(parent: Ints) -> Ints:
    """Number of ancestors of each row, by doubling: passes grow with the logarithm of the depth."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    while True:
        rows = np.flatnonzero(jump >= 0)
        if not len(rows):
            return depth
        depth[rows] += depth[jump[rows]]
        jump[rows] = jump[jump[rows]]


def inside_any(parent: Ints, wanted: Mask) -> Mask:
    """Rows with one of the ``wanted`` ones among their ancestors, by doubling."""
    found: Mask = (parent >= 0) & wanted[parent] if len(parent) else wanted
    jump = parent.copy()
    while True:
        rows = np.flatnonzero(jump >= 0)
        if not len(rows):
            return found
        found[rows] |= found[jump[rows]]
        jump[rows] = jump[jump[rows]]


def innermost(start: Ints, end: Ints, group: Array, parent: Ints, at: Ints, until: Ints, at_group: Array) -> Ints:
    """For each query [at, until] of a group the innermost row that covers it whole, -1 for none.

    Rows are sorted by (start, -length) and ``parent`` is theirs from :func:`parents`: the last row that starts by
    ``at`` covers the query, or one of its ancestors does, or none.
    """
    out = np.full(len(at), -1, np.int64)
    if not len(start):
        return out
    order = np.argsort(group, kind="stable")  # within a group the rows are in order of start
    for part in chunks(len(at)):
        out[part] = _innermost(start, end, group, parent, order, at[part], until[part], at_group[part])
    return out


def _innermost(
    start: Ints, end: Ints, group: Array, parent: Ints, order: Ints, at: Ints, until: Ints, at_group: Array
) -> Ints:
    row_key, query_key = pack([[group, at_group], [start, at]])
    position = np.searchsorted(row_key[order], query_key, side="right") - 1
    found = np.where(position >= 0, order[np.maximum(position, 0)], -1)
    found[(found >= 0) & (group[found] != at_group)] = -1
    while True:
        short = np.flatnonzero((found >= 0) & (end[found] < until))
        if not len(short):
            return found
        found[short] = parent[found[short]]


def previous_in(group: Array) -> Ints:
    """For each row the row before it of its group, -1 for the first."""
    if len(group) and (group == group[0]).all():
        return np.arange(-1, len(group) - 1)
    order = np.argsort(_narrow(group), kind="stable")
    out = np.full(len(group), -1, np.int64)
    same = group[order][1:] == group[order][:-1]
    out[order[1:][same]] = order[:-1][same]
    return out


def _narrow(group: Array) -> Array:
    """16 bits where they do: numpy sorts these by radix, ten times as fast."""
    if len(group) and int(group.min()) >= 0 and int(group.max()) < 1 << 15:
        return group.astype(np.int16)
    return group
