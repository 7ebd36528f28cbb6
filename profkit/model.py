"""The types that cross the borders: Trace (frozen tables and what is known about them), Finding and CheckResult."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profkit.schema import CAPTURE_TABLES, STAGES, TABLES

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

EVERY_PROCESS = -1
SEVERITIES = ("info", "warning", "critical")


@dataclass(frozen=True)
class Window:
    """A half-open interval of trace time, in ns."""

    start_ns: int
    end_ns: int

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class RunMeta:
    """What is known about a capture besides its events; ``extra`` holds what few sources have."""

    source: str
    """Format: nsys-sqlite, kineto-json, ..."""
    source_version: str = ""
    path: str = ""
    origin_ns: int = 0
    """Subtracted from the source's own time to give trace time."""
    utc_ns: int = -1
    """UTC of trace time 0, or -1."""
    clock: str = "session"
    resolution_ns: int = 1
    command: str = ""
    graph_trace: str = ""
    """node or graph, where the source says it."""
    captured: tuple[str, ...] = ()
    """What the profiler was asked to record, in its own words."""
    simulated: bool = False
    partial: bool = False
    """Part of the file could not be read."""
    warnings: tuple[str, ...] = ()
    """What makes a number doubtful."""
    notes: tuple[str, ...] = ()
    """What was assumed, and makes no number doubtful."""
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """Frozen tables of one capture. Build it with :class:`profkit.builder.Builder`, never by hand."""

    meta: RunMeta
    tables: Mapping[str, pa.Table]
    """Every table of :mod:`profkit.schema` but the derived ones; absent data is a table of no rows."""
    missing: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """table -> {row of processes or EVERY_PROCESS: why it was not captured}. Not captured is not empty."""
    windows: tuple[Window, ...] = ()
    """When collection was on; time outside is not idle."""

    def array(self, table: str, column: str) -> Array:
        """A column as numpy, without a copy where Arrow allows it; not for text."""
        return _numpy(self.tables[table].column(column))

    def text(self, table: str, column: str) -> list[str]:
        """A text column of a dimension as a list."""
        return [str(value) for value in self.tables[table].column(column).to_pylist()]

    @cached_property
    def names(self) -> list[str]:
        """Texts of ``names`` by row. For a few look-ups use :meth:`name`: this decodes them all."""
        return self.text("names", "text")

    def name(self, row: int, column: str = "text") -> str:
        """One text of ``names``; "" for -1."""
        return "" if row < 0 else str(self.tables["names"].column(column)[row].as_py())

    def name_rows(self, match: Callable[[str], bool], column: str = "base", among: Array | None = None) -> Mask:
        """Which rows of ``names`` satisfy ``match``, as a mask over ``names``; ``among``: only these are asked for."""
        if among is None:
            return np.fromiter((match(text) for text in self.text("names", column)), bool, self.rows("names"))
        wanted = np.zeros(self.rows("names") + 1, bool)
        wanted[among] = True  # -1 is the last one
        codes = np.flatnonzero(wanted[:-1])
        texts = self.tables["names"].column(column).take(pa.array(codes)).to_pylist()
        mask: Mask = wanted[:-1]
        mask[codes] = [match(str(text)) for text in texts]
        return mask

    def rows(self, table: str) -> int:
        return int(self.tables[table].num_rows)

    @property
    def extent(self) -> Window | None:
        """First start to last end over the events of the capture; None without any."""
        edges = [
            (int(start.min()), int((start + self.array(table, "dur_ns")).max()))
            for table in CAPTURE_TABLES
            if len(start := self.array(table, "start_ns"))
        ]
        return Window(min(low for low, _ in edges), max(high for _, high in edges)) if edges else None

    def process_of(self, tracks: Array) -> Array:
        """Row of processes of each track, -1 for the track -1."""
        return np.append(self.array("tracks", "process"), -1)[tracks]

    def why_missing(self, table: str, process: int = EVERY_PROCESS) -> str:
        """Why a table was not captured, "" if it was."""
        reasons = self.missing.get(table, {})
        return reasons.get(process) or reasons.get(EVERY_PROCESS, "")

    def stage_rows(self, stage: str) -> Ints:
        """Rows of ``spans`` of one stage, in time order."""
        return np.flatnonzero(self.array("spans", "stage") == STAGES.index(stage))

    def frame(self, table: str) -> pd.DataFrame:
        """A table as pandas: codes as words, names as text, absent values as NA.

        Raises KeyError for a table that the schema does not have.
        """
        return to_frame(self, table)


def _numpy(column: pa.ChunkedArray) -> Array:
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array: Array = chunk.to_numpy(zero_copy_only=False)
    return array


def to_frame(trace: Trace, table: str) -> pd.DataFrame:
    """See :meth:`Trace.frame`."""
    import pandas as pd

    source, schema = trace.tables[table], TABLES[table]
    payload = trace.array(table, "payload_kind") if "payload_kind" in source.column_names else None
    out: dict[str, Any] = {}
    for column in schema.columns:
        values = source.column(column.name)
        if column.type == pa.string():
            out[column.name] = pd.array(pc.if_else(pc.equal(values, ""), None, values).to_pylist(), dtype="string")
            continue
        array = _numpy(values)
        if column.labels:
            out[column.name] = _categorical(array, list(column.labels))
        elif column.unit == "row of names":
            rows, codes = np.unique(array, return_inverse=True)
            rows, codes = (rows[1:], codes - 1) if len(rows) and rows[0] == -1 else (rows, codes)
            out[column.name] = _categorical(codes, [trace.name(int(row)) for row in rows])
        elif column.name == "payload_int" and payload is not None:
            out[column.name] = pd.array(array, dtype="Int64")
            out[column.name][payload != 1] = pd.NA
        elif array.dtype.kind == "i" and column.name not in ("start_ns", "dur_ns", "time_ns", "id", "flags", "depth"):
            out[column.name] = pd.array(array, dtype="Int64")
            out[column.name][array == -1] = pd.NA
        else:
            out[column.name] = array
    return pd.DataFrame(out)


def _categorical(codes: Array, words: list[str]) -> pd.Categorical[str]:
    """Words by code, -1 as NA."""
    import pandas as pd

    return pd.Categorical.from_codes(codes.astype(np.int64), pd.Index(words))


@dataclass(frozen=True)
class Evidence:
    """Rows that show a finding: at most 100 ids, ``count`` says of how many."""

    table: str
    ids: tuple[int, ...]
    count: int
    tracks: tuple[int, ...] = ()
    window: Window | None = None
    trace: str = ""


@dataclass(frozen=True)
class Folded:
    """A finding that is no fault of its own: the fix of another one leaves nothing of it, or it is the same elsewhere.

    Its saving is what its own fix would give back alone, -1 if not known.
    """

    code: str
    title: str
    key: str
    why: str
    saving_ns: int = -1
    saving_ns_per_step: int = -1


@dataclass(frozen=True)
class Finding:
    """One fault with its price. ``facts`` carry units in their keys; -1 ns is "not known".

    ``cost_ns`` is the time that the fault takes; ``saving_ns`` what a fix would give back. Costs of two findings may
    overlap and are never added.
    """

    code: str
    title: str
    message: str
    cause: str
    advice: str
    key: str
    severity: str = "info"
    cost_ns: int = -1
    saving_ns: int = -1
    cost_ns_per_step: int = -1
    saving_ns_per_step: int = -1
    share: float | None = None
    """saving_ns over the window, or per step over the median step period; None if not known."""
    share_of: str = ""
    """The denominator of ``share``, in words."""
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[str, ...] = ()
    """What ``whatif --fix`` takes to apply the fix that was priced; empty where no replay priced it."""
    folded: tuple[Folded, ...] = ()


@dataclass(frozen=True)
class NotRun:
    """A rule that could not judge this trace, why, and what to record so that it can."""

    code: str
    title: str
    reason: str
    record: str = ""


@dataclass(frozen=True)
class CheckResult:
    """What ``check`` says: one headline, the findings that matter, by saving, and what was not judged.

    ``others`` are the rest: findings below the border of what matters, and more than MOST_FINDINGS.
    """

    headline: str
    findings: tuple[Finding, ...]
    others: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    clean: tuple[str, ...]
    """Codes of rules that ran and found nothing."""
    trace: Mapping[str, Any]
    summary: Mapping[str, Any]
    replayed: str = ""
    """Which part of a long trace was replayed, in words; empty for all of it: rules that go by a fix saw only that."""


def evidence(table: str, ids: Sequence[int] | Array, **rest: Any) -> Evidence:
    """Evidence from row numbers of any count: the first 100 and how many there were."""
    return Evidence(table, tuple(int(i) for i in ids[:100]), len(ids), **rest)
