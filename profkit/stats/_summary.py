"""Statistics by name, the body of every ``*_sum`` report: count, total, average, median, extremes, deviation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profkit import text
from profkit.errors import InputError
from profkit.late_ends import late_end_remark
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import NOT_WHOLE
from profkit.stats import Column, Listing

Floats = npt.NDArray[np.float64]
Labels = Sequence[str | tuple[str, ...]]
"""Label of each group: one text a text column of the listing, or a single text."""

LATE_ENDS = Column("Late Ends", "late_ends")
"""How many instances end behind a later kernel of their stream: only listed where there are any."""

_LIMIT = 1 << 63


@dataclass(frozen=True)
class Groups:
    """Statistics of the values of each group, in their own unit; ``code`` says which group an entry is of."""

    code: Ints
    count: Ints
    total: Ints
    average: Floats
    median: Floats
    minimum: Ints
    maximum: Ints
    deviation: Floats
    """Sample standard deviation (divided by n - 1); 0 for a single value."""


def summarize(codes: Array, values: Array) -> Groups:
    """Statistics of ``values`` by group, for the groups that occur, by ascending code; one pass over sorted values.

    Raises InputError where the values add up to more than an int64 holds: no sound trace does.
    """
    codes, values = _sorted_within(np.asarray(codes, np.int64), np.asarray(values, np.int64))
    _check_sum(values)
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    count = np.diff(first, append=len(values))
    last = first + count - 1
    total = np.add.reduceat(values, first) if len(first) else first
    lower, upper = values[first + (count - 1) // 2], values[first + count // 2]
    return Groups(
        code=codes[first],
        count=count,
        total=total,
        average=total / count,
        median=lower + (upper - lower) / 2,
        minimum=values[first],
        maximum=values[last],
        deviation=_deviation(values, first, count, total),
    )


def _sorted_within(codes: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Both arrays sorted by (code, value); codes are not negative."""
    if not len(codes):
        return codes, values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if (int(codes.max()) + 1) * span < _LIMIT:  # sorting one plain key is several times faster than lexsort
        keys = np.sort(codes * span + (values - low))
        codes = keys // span
        return codes, keys - codes * span + low
    order = np.lexsort((values, codes))
    return codes[order], values[order]


def _check_sum(values: Ints) -> None:
    if len(values) and int(values.max()) * len(values) >= _LIMIT and float(values.sum(dtype=np.float64)) >= _LIMIT:
        raise InputError("the values of one column add up to more than 2^63: the trace is damaged")


def _deviation(values: Ints, first: Ints, count: Ints, total: Ints) -> Floats:
    """Sample standard deviation of each group.

    Squares are of the distances to the whole part of the average, which are exact integers: no cancellation. What that
    whole part cuts off is total % count, and is taken back exactly.
    """
    if not len(first):
        return np.zeros(0)
    whole = total // count
    rest = (total - whole * count).astype(np.float64)
    apart = (values - np.repeat(whole, count)).astype(np.float64)
    squares = np.add.reduceat(apart * apart, first) - rest * rest / count
    deviation: Floats = np.sqrt(np.maximum(squares, 0.0) / np.maximum(count - 1, 1))
    return deviation


def by_label(
    trace: Trace, names: Array, label: Callable[[str], str] = str, column: str = "text"
) -> tuple[Ints, list[str]]:
    """Group code of each row and the label of each code, from rows of ``names`` (-1: a row without a name).

    Where ``column`` of ``names`` is empty the text stands for it.
    """
    shifted = names.astype(np.int64) + 1
    used = np.flatnonzero(np.bincount(shifted))
    codes: dict[str, int] = {}
    lookup = np.zeros(int(used.max(initial=0)) + 1, np.int64)
    for row, text_ in zip(used.tolist(), name_texts(trace, used - 1, column), strict=True):
        lookup[row] = codes.setdefault(label(text_), len(codes))
    return lookup[shifted], list(codes)


def name_texts(trace: Trace, rows: Array, column: str = "text") -> list[str]:
    """Texts of rows of ``names``, "" for -1; where ``column`` is empty the text stands for it."""
    table = trace.tables["names"]
    at = pa.array(rows, mask=rows < 0)
    texts = table.column(column).take(at)
    if column != "text":
        texts = pc.if_else(pc.equal(texts, ""), table.column("text").take(at), texts)
    return [text_ or "" for text_ in texts.to_pylist()]


def whole_rows(trace: Trace, table: str) -> tuple[Mask, tuple[str, ...]]:
    """Rows that have a length of their own, with remarks on those that do not, and on lengths that cannot be.

    The former are not counted as whole; the latter are, as they were recorded.
    """
    whole: Mask = (trace.array(table, "flags") & NOT_WHOLE) == 0
    remarks = []
    if left_out := len(whole) - int(whole.sum()):
        remarks.append(f"{text.count(left_out, 'row', 'rows')} of {table} left out: not seen from start to end")
    if table == "kernels" and (doubt := late_end_remark(trace)):
        remarks.append(doubt)
    return whole, tuple(remarks)


def graphs_recorded_whole(trace: Trace) -> tuple[str, ...]:
    """A remark for graph launches recorded as one piece: their kernels are busy time that no report lists."""
    graphs = trace.rows("graphs")
    if not graphs:
        return ()
    total = int(trace.array("graphs", "dur_ns").sum())
    launches = text.count(graphs, "CUDA graph launch", "CUDA graph launches")
    return (f"the kernels of {launches} ({text.ns(total)}) are not listed: each was recorded as one piece",)


def time_columns(count_title: str, count_key: str, *name_titles: str) -> tuple[Column, ...]:
    """Columns of a summary of times; the last ones, ``Name`` if none is named, are texts."""
    return (
        Column("Time (%)", "time_percent", 1),
        Column("Total Time (ns)", "total_time_ns"),
        Column(count_title, count_key),
        *spread_columns(),
        *text_columns(*(name_titles or ("Name",))),
    )


def spread_columns(prefix: str = "", key: str = "") -> tuple[Column, ...]:
    """Average, median, minimum, maximum, standard deviation of times."""
    return tuple(
        Column(f"{prefix}{title} (ns)", f"{key}{title.lower()}_ns", 0 if title in ("Min", "Max") else 1)
        for title in ("Avg", "Med", "Min", "Max", "StdDev")
    )


def text_columns(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, title.lower().replace(" ", "_")) for title in titles)


def size_columns() -> tuple[Column, ...]:
    """Columns of a summary of sizes: MB are 10^6 bytes."""
    spread = [(title, f"{title.lower()}_bytes") for title in ("Avg", "Med", "Min", "Max", "StdDev")]
    return (
        Column("Total (MB)", "total_bytes", 3, 10**6),
        Column("Count", "count"),
        *(Column(f"{title} (MB)", key, 3, 10**6) for title, key in spread),
        Column("Operation", "operation"),
    )


def time_summary(
    columns: tuple[Column, ...], codes: Array, labels: Labels, dur_ns: Array, remarks: tuple[str, ...] = (),
    late: Mask | None = None,
) -> Listing:  # fmt: skip
    """A summary of times by label; the share is of the listed total, not of the capture.

    Where ``late`` marks values, a last column of profkit's own counts them: how many ends were recorded late.
    """
    groups = summarize(codes, dur_ns)
    listed = int(groups.total.sum())
    percent = groups.total.astype(np.float64) * 100 / listed if listed else np.zeros(len(groups.total))
    listing = _listing(columns, (percent, groups.total, groups.count), groups, labels, remarks)
    if late is None or not late.any():
        return listing
    count = np.bincount(codes[late], minlength=len(labels))[groups.code][_ranking(groups, labels)]
    return replace(listing, columns=(*columns, LATE_ENDS), values=(*listing.values, pa.array(count)))


def size_summary(codes: Array, labels: Labels, num_bytes: Array, remarks: tuple[str, ...] = ()) -> Listing:
    """A summary of sizes by label."""
    groups = summarize(codes, num_bytes)
    return _listing(size_columns(), (groups.total, groups.count), groups, labels, remarks)


def spread(groups: Groups) -> tuple[Array, ...]:
    """The values of :func:`spread_columns`."""
    return groups.average, groups.median, groups.minimum, groups.maximum, groups.deviation


def texts(values: Iterable[str | None]) -> Any:
    """A text column of a listing; "" is absent."""
    return pa.array([value or None for value in values], pa.string()).dictionary_encode()


def known(values: Array, absent: Mask | None = None) -> Any:
    """An Arrow array with null for -1, or where ``absent`` says so."""
    return pa.array(values, mask=values == -1 if absent is None else absent)


def words(codes: Array, labels: Sequence[str]) -> Any:
    """A text column of a listing from codes: null for code -1 and for an empty label."""
    absent = np.asarray([*(not label for label in labels), True])[codes]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=absent), pa.array(list(labels), pa.string())
    )


def _listing(
    columns: tuple[Column, ...], head: tuple[Array, ...], groups: Groups, labels: Labels, remarks: tuple[str, ...]
) -> Listing:
    named = _named(groups, labels)
    order = _ranking(groups, labels)
    numbers = [pa.array(column[order]) for column in (*head, *spread(groups))]
    width = len(columns) - len(numbers)
    names = [texts(named[i][part] for i in order.tolist()) for part in range(width)]
    return Listing(columns, (*numbers, *names), remarks)


def _named(groups: Groups, labels: Labels) -> list[tuple[str, ...]]:
    return [label if isinstance(label, tuple) else (label,) for label in (labels[i] for i in groups.code.tolist())]


def _ranking(groups: Groups, labels: Labels) -> Ints:
    """Groups by total, largest first; equal totals by count, then by name, which is the last part of a label."""
    names = (label[::-1] for label in _named(groups, labels))
    ranked = list(zip((-groups.total).tolist(), groups.count.tolist(), names, strict=True))
    return np.asarray(sorted(range(len(ranked)), key=ranked.__getitem__), np.int64)
