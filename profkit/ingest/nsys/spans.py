"""NVTX ranges and marks of an nsys export.

Read: push/pop and start/end ranges, marks, domain and category names, thread names, payloads of plain types, and the
structured payloads of NCCL. A range whose ``end`` is NULL was never closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.arrays import key_of, numbered
from profkit.builder import Builder
from profkit.ingest.nsys.host import name_codes
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.payloads import Payloads, read_payloads
from profkit.ingest.nsys.rows import TIMES, absent, event_rows, keep_rows, time_columns
from profkit.ingest.nsys.source import (
    NO_INT,
    Source,
    decoded,
    floats,
    ints,
    name_ids,
    payload,
    small,
    texts,
)  # fmt: skip
from profkit.model import Array, Ints
from profkit.schema import PAYLOAD_KINDS, SPAN_KINDS
from profkit.stages import find_stages

NVTX = "NVTX_EVENTS"

# eventType, with the twins that text files of NVTX ranges give (65, 70, 71).
_KINDS = {59: "push_pop", 70: "push_pop", 60: "start_end", 71: "start_end", 34: "mark", 65: "mark"}
_CATEGORY, _THREAD_NAME, _DOMAIN = 33, 39, 75

_COLUMNS = {
    **TIMES,
    "eventType": small("eventType", required=True),
    "category": ints("category"),
    "text": texts("text"),
    "textId": name_ids("textId"),
    "globalTid": ints("globalTid"),
    "endGlobalTid": ints("endGlobalTid"),
    "domainId": ints("domainId"),
    "int64Value": payload("int64Value"),
    "uint64Value": payload("uint64Value"),
    "int32Value": payload("int32Value"),
    "uint32Value": payload("uint32Value"),
    "doubleValue": floats("doubleValue"),
    "floatValue": floats("floatValue"),
}
_STRUCTURED = {"jsonText": texts("jsonText"), "jsonTextId": name_ids("jsonTextId"), "binaryData": texts("binaryData")}
_PAYLOADS = (
    ("int64Value", "int"), ("uint64Value", "uint"), ("int32Value", "int"), ("uint32Value", "uint"),
    ("doubleValue", "float"), ("floatValue", "float"),
)  # fmt: skip


def read_spans(source: Source, builder: Builder, identity: Identity) -> Payloads | None:
    """Add the ranges; returns their structured payloads, which the collectives are read from."""
    rows = event_rows(source, NVTX, _COLUMNS | _STRUCTURED)
    if rows is None:
        return None
    event_type = rows.pop("eventType")
    tid = rows.pop("globalTid", absent(rows))
    process = identity.processes(tid)
    name = _names(source, builder, rows.pop("text", None), rows.pop("textId", absent(rows)))
    _name_threads(builder, identity, event_type == _THREAD_NAME, tid, name)
    domain_id = np.maximum(rows.pop("domainId", absent(rows)), 0)
    category_id = np.maximum(rows.pop("category", absent(rows)), 0)
    domain = _named(builder, event_type == _DOMAIN, [process, domain_id], name, domain_id, "domain")
    category = _named(
        builder, event_type == _CATEGORY, [process, domain_id, category_id], name, category_id, "category"
    )
    kind = np.full(len(name), -1, np.int8)
    for code, word in _KINDS.items():
        kind[event_type == code] = SPAN_KINDS.index(word)
    rows |= {"kind": kind, "name": name, "domain": domain, "category": category, "tid": tid}
    if (kind < 0).any():
        rows = keep_rows(rows, kind >= 0)
    structured = read_payloads(
        source,
        rows.pop("jsonText", None),
        rows.pop("jsonTextId", None),
        rows.pop("binaryData", None),
        len(rows["kind"]),
    )
    _add(builder, identity, rows, structured)
    return structured


def _add(builder: Builder, identity: Identity, rows: dict[str, Any], structured: Payloads | None) -> None:
    kind, dur = rows["kind"], rows["dur"]
    track = identity.threads(rows["tid"])
    end_tid = rows.pop("endGlobalTid", absent(rows))
    # Only start/end ranges can end elsewhere; exports that know no NULL write 0.
    end_tid = np.where((kind == SPAN_KINDS.index("start_end")) & (end_tid != 0), end_tid, -1)
    payloads = _payloads({key: rows.pop(key) for key in list(rows) if key.endswith("Value")}, len(kind))
    if structured is not None:
        _use_structured(payloads, structured)
    add_spans(
        builder,
        **time_columns(rows)
        # A mark is a point: some exports leave its end NULL, some repeat its start.
        | {"dur_ns": np.where(kind == SPAN_KINDS.index("mark"), 0, dur)},
        kind=kind,
        name=rows["name"],
        domain=rows["domain"],
        category=rows["category"],
        track=track,
        end_track=np.where(end_tid == -1, track, identity.threads(end_tid)),
        **payloads,
    )


def _use_structured(payloads: dict[str, Any], structured: Payloads) -> None:
    """A structured payload as JSON text, for ranges without a plain one."""
    free = (structured.of_row >= 0) & (payloads["payload_kind"] == 0)
    payloads["payload_kind"][free] = PAYLOAD_KINDS.index("schema")
    plain = payloads.get("payload_text", pa.repeat("", len(free)))
    payloads["payload_text"] = pc.if_else(pa.array(free), structured.texts(), plain)


def add_spans(builder: Builder, **columns: Any) -> None:
    """Add spans with their stage; a payload in a stage's name counts where the range carries none of its own."""
    stage, value, has_value = find_stages(
        builder.names.texts(), columns["name"], columns["domain"], columns["category"]
    )
    columns["stage"] = np.where(columns["kind"] == SPAN_KINDS.index("mark"), -1, stage)
    fill = has_value & (columns["payload_kind"] == 0)
    if fill.any():
        columns["payload_kind"] = np.where(fill, PAYLOAD_KINDS.index("int"), columns["payload_kind"]).astype(np.int8)
        columns["payload_int"] = np.where(fill, value, columns["payload_int"])
    builder.add("spans", **columns)


def _names(source: Source, builder: Builder, inline: pa.ChunkedArray | None, text_id: Array) -> Array:
    """Rows of names: the inline text, else the registered string, else ``<unknown #id>``."""
    out = name_codes(source, builder, text_id)
    if inline is not None:
        encoded = inline.combine_chunks().dictionary_encode()
        words = decoded(encoded.dictionary)
        rows = builder.names.rows(words)
        if len(rows):
            rows[[i for i, word in enumerate(words) if not word]] = -1
            text_row = rows[encoded.indices.to_numpy()]
            out = np.where(text_row >= 0, text_row, out)
    nameless = out < 0
    if nameless.any():
        out[nameless] = builder.names.row("")
    return out


def _name_threads(builder: Builder, identity: Identity, is_name: Array, tid: Array, name: Ints) -> None:
    texts_of = builder.names.texts() if is_name.any() else []
    for row in np.flatnonzero(is_name).tolist():
        identity.name_thread(int(tid[row]), texts_of[int(name[row])])


def _named(builder: Builder, is_name: Array, key: list[Array], name: Ints, number: Array, word: str) -> Ints:
    """Rows of names for numbered domains or categories: by their naming row in the same process, else ``domain 7``.

    0 is the default domain or no category: -1.
    """
    if not (number > 0).any():
        return np.full(len(number), -1, np.int64)
    keys = key_of(*key)
    known = {int(k): int(v) for k, v in zip(keys[is_name], name[is_name], strict=True)}
    distinct, first, inverse = numbered(keys)
    rows = np.full(len(distinct), -1, np.int64)
    for i, row in enumerate(first.tolist()):
        if number[row] > 0:
            rows[i] = known.get(int(distinct[i]), -1)
            if rows[i] < 0:
                rows[i] = builder.names.row(f"{word} {int(number[row])}")
    return rows[inverse]


def _payloads(columns: Mapping[str, Array], n: int) -> dict[str, Any]:
    """The payload of each row. Exports of 2021 and before fill every column with 0 for "none"."""
    filled = [key for key in columns if (columns[key] != (NO_INT if columns[key].dtype.kind == "i" else np.inf)).all()]
    kind = np.zeros(n, np.int8)
    value = np.full(n, -1, np.int64)
    real = np.full(n, -1.0)
    words: dict[int, str] = {}
    if len(filled) < 2 or len(filled) < len(columns):
        for key, word in _PAYLOADS:
            if key not in columns:
                continue
            got = (columns[key] != (np.inf if word == "float" else NO_INT)) & (kind == 0)
            kind[got] = PAYLOAD_KINDS.index(word)
            (real if word == "float" else value)[got] = columns[key][got]
            if key == "uint64Value":
                # SQLite has no unsigned integers: a negative one is over 2^63.
                words.update({int(i): str((1 << 64) + int(value[i])) for i in np.flatnonzero(got & (value < 0))})
    out: dict[str, Any] = {"payload_kind": kind, "payload_int": value, "payload_float": real}
    if words:
        text = np.full(n, "", object)
        for row, digits in words.items():
            text[row] = digits
        out["payload_text"] = pc.cast(pa.array(text, pa.string()), pa.string())
    return out
