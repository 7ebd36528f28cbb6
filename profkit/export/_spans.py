"""Ranges as events: the name says stage and payload in the way that the PyTorch profiler's annotations do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.arrays import distinct
from profkit.export._json_rows import Piece, numbers, quoted
from profkit.model import Array, Ints, Trace
from profkit.schema import PAYLOAD_KINDS, SPAN_KINDS, STAGES
from profkit.stages import PREFIX, parse_name

if TYPE_CHECKING:
    from profkit.export._events import Writer

_CATEGORY = {"op": "cpu_op", "module": "python_function", "python": "python_function"}
_START_END, _MARK = SPAN_KINDS.index("start_end"), SPAN_KINDS.index("mark")
_REQUEST = STAGES.index("request")
_INT, _FLOAT = PAYLOAD_KINDS.index("int"), PAYLOAD_KINDS.index("float")
_TEXTS = [PAYLOAD_KINDS.index(kind) for kind in ("text", "uint", "schema")]
_CATEGORIES = pa.array([*(_CATEGORY.get(kind, "user_annotation") for kind in SPAN_KINDS), "start_end"], pa.string())


def stages_in_names(trace: Trace) -> tuple[Array, Array]:
    """For each row of ``names`` that a range has: the stage it says or -1, and whether a payload stands in it."""
    stage = np.full(trace.rows("names"), -1, np.int64)
    payload = np.zeros(trace.rows("names"), bool)
    for row in distinct(trace.array("spans", "name")).tolist():
        if (found := parse_name(trace.name(row))) is not None:
            stage[row], payload[row] = found.stage, found.payload is not None
    return stage, payload


def categories(kind: Array, stage: Array) -> pa.Array:
    """A start/end range is no part of its thread's nesting, so it gets a category of its own; a request is known."""
    apart = (kind == _START_END) & (stage != _REQUEST)
    return _CATEGORIES.take(pa.array(np.where(apart, len(SPAN_KINDS), kind.astype(np.int64))))


def is_instant(writer: Writer, part: slice) -> Array:
    """Marks whose name would make a stage of them if they were ranges of no length."""
    said, _ = writer.stage_names
    name = writer.column("spans", "name", part)
    return np.asarray((writer.column("spans", "kind", part) == _MARK) & (name >= 0) & (said[np.maximum(name, 0)] >= 0))


def names_and_args(writer: Writer, part: slice) -> tuple[pa.Array, list[Piece]]:
    """(names, args): a stage that the name does not say is put into it, and the name into the args."""
    name, stage = writer.column("spans", "name", part), writer.column("spans", "stage", part)
    kind = writer.column("spans", "payload_kind", part)
    texts = writer.text("spans", part)
    said_stage, said_payload = writer.stage_names
    known = name >= 0
    said = np.where(known, said_stage[np.maximum(name, 0)], -1) if len(said_stage) else np.full(len(name), -1)
    has = known & said_payload[np.maximum(name, 0)] if len(said_payload) else known
    number = numbers(writer.column("spans", "payload_int", part))
    payload = pc.if_else(pa.array((kind == _INT) & ~has), pc.binary_join_element_wise("#", number, ""), "")
    made = pa.array([PREFIX + word for word in (*STAGES, "")], pa.string()).take(pa.array(stage.astype(np.int64) % 10))
    renamed = (stage >= 0) & (said != stage)
    as_said = (stage >= 0) & ~renamed
    bare = pc.if_else(pa.array(renamed), made, pc.utf8_slice_codeunits(texts, 1, -1))
    full = pc.if_else(pa.array(renamed | as_said), pc.binary_join_element_wise('"', bare, payload, '"', ""), texts)
    args: list[Piece] = [_labelled("range", texts, renamed)]
    for column in ("domain", "category"):
        held = writer.column("spans", column, part) >= 0
        args.append(_labelled(column, writer.text("spans", part, column), held))
    return full, [*args, *_payloads(writer, part, kind, number)]


def _payloads(writer: Writer, part: slice, kind: Array, number: pa.Array) -> list[Piece]:
    rows: Ints = writer.rows["spans"][part]
    texts = writer.trace.tables["spans"].column("payload_text").take(pa.array(rows)).combine_chunks()
    value = writer.column("spans", "payload_float", part)
    shown = pa.array(np.where(np.isfinite(value), value, 0.0)).cast(pa.string())
    return [
        _labelled("payload", number, kind == _INT),
        _labelled("payload", shown, (kind == _FLOAT) & np.isfinite(value)),
        _labelled("payload", quoted(texts), np.isin(kind, _TEXTS)),
    ]


def _labelled(key: str, values: pa.Array, keep: Array) -> pa.Array:
    return pc.if_else(pa.array(keep), pc.binary_join_element_wise(f',"{key}":', values, ""), "")
