"""Structured NVTX payloads: fields by name, from JSON text or from bytes with a registered schema.

Bytes begin with a header (domain, schema id, size of the payload, size of all) before the fields, which
NVTX_PAYLOAD_SCHEMA_ENTRIES places by type and offset. What cannot be decoded is left alone: a payload is never needed.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from profkit.ingest.nsys.identity import whole
from profkit.ingest.nsys.source import Source, decode, string_ids
from profkit.model import Array, Ints

_HEADER = struct.Struct("<IIIIQQ")

# Entry types of nvToolsExtPayload.h that hold one number: letter of the struct module. 7 to 10 are long and long long.
_LETTERS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 11: "b", 12: "B", 13: "h", 14: "H",
    15: "i", 16: "I", 17: "q", 18: "Q", 19: "f", 20: "d", 22: "Q", 23: "Q",
}  # fmt: skip


@dataclass(frozen=True)
class Payloads:
    """Distinct payloads and which of them each range has; -1 for none."""

    fields: tuple[Mapping[str, Any], ...] = ()
    of_row: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def texts(self) -> pa.Array:
        """The payload of each range as JSON text, "" for none."""
        words = pa.array(["", *(json.dumps(fields, ensure_ascii=False, default=str) for fields in self.fields)])
        return words.take(pa.array(self.of_row + 1))


def read_payloads(
    source: Source, json_text: pa.ChunkedArray | None, json_id: Array | None, blob: pa.ChunkedArray | None, n: int
) -> Payloads | None:
    """The payloads of ``n`` ranges; None where none was recorded, or none can be decoded."""
    fields: list[Mapping[str, Any]] = []
    of_row = np.full(n, -1, np.int64)
    if json_id is not None:
        texts = string_ids(source, [json_id[json_id >= 0]])
        known = {i: parse_json(text) for i, text in texts.items()}
        _collect(fields, of_row, known, json_id)
    if json_text is not None:
        encoded = json_text.combine_chunks().dictionary_encode()
        known = {i: parse_json(decode(raw)) for i, raw in enumerate(encoded.dictionary.to_pylist())}
        _collect(fields, of_row, known, encoded.indices.to_numpy())
    if blob is not None:
        encoded = blob.combine_chunks().dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if any(distinct):
            schemas = _schemas(source)
            known = {i: parse_blob(raw, schemas) for i, raw in enumerate(distinct)}
            _collect(fields, of_row, known, encoded.indices.to_numpy())
    return Payloads(tuple(fields), of_row) if fields else None


def _collect(
    fields: list[Mapping[str, Any]], of_row: Ints, known: Mapping[int, Mapping[str, Any]], codes: Array
) -> None:
    """Note the payloads that hold anything, for rows that have none so far."""
    place = {}
    for code, content in known.items():
        if content:
            place[code] = len(fields)
            fields.append(content)
    if not place:
        return
    keys = np.asarray(sorted(place), np.int64)
    at = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
    hit = (keys[at] == codes) & (of_row < 0)
    of_row[hit] = np.asarray([place[int(key)] for key in keys], np.int64)[at[hit]]


def parse_json(text: str) -> Mapping[str, Any]:
    """Fields of a JSON payload, nested ones by their own name; {} for what is no JSON object."""
    if not text.startswith(("{", "[")):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    out: dict[str, Any] = {}
    _flatten(value, out, 4)
    return out


def _flatten(value: Any, out: dict[str, Any], depth: int) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                if depth:
                    _flatten(item, out, depth - 1)
            elif item is not None:
                out.setdefault(str(key), item)
    elif isinstance(value, list) and depth:
        for item in value:
            _flatten(item, out, depth - 1)


@dataclass(frozen=True)
class _Schema:
    size: int
    fields: tuple[tuple[str, str, int], ...]
    """(name, letter of the struct module, offset)."""


def _schemas(source: Source) -> dict[int, _Schema]:
    """By schema id. Ids repeat in each process, with the same content."""
    fields: dict[int, dict[int, tuple[str, str, int]]] = {}
    for row in source.small_table("NVTX_PAYLOAD_SCHEMA_ENTRIES"):
        letter = _LETTERS.get(whole(row.get("type")))
        if letter and row.get("name"):
            place = max(whole(row.get("offset")), 0)
            fields.setdefault(whole(row.get("schemaId")), {})[whole(row.get("idx"))] = (str(row["name"]), letter, place)
    sizes = {
        whole(row.get("schemaId")): whole(row.get("payloadSize")) for row in source.small_table("NVTX_PAYLOAD_SCHEMAS")
    }
    return {i: _Schema(sizes.get(i, -1), tuple(part[k] for k in sorted(part))) for i, part in fields.items()}


def parse_blob(raw: bytes, schemas: Mapping[int, _Schema]) -> Mapping[str, Any]:
    """Fields of a binary payload; {} for bytes without a known header, too short ones, and unknown schemas."""
    if re.fullmatch(rb"(?:0x)?(?:[0-9a-fA-F]{2})+", raw) and len(raw) >= 2 * _HEADER.size:
        raw = bytes.fromhex(raw.decode().removeprefix("0x"))
    if len(raw) < _HEADER.size:
        return {}
    _, _, schema_id, _, size, total = _HEADER.unpack_from(raw)
    schema = schemas.get(schema_id)
    if schema is None or total != _HEADER.size + size or len(raw) < total:
        return {}
    out = {}
    for name, letter, place in schema.fields:
        if place + struct.calcsize(letter) <= size:
            out[name] = struct.unpack_from(f"<{letter}", raw, _HEADER.size + place)[0]
    return out


@dataclass(frozen=True)
class NcclFacts:
    """What a payload says of an NCCL call; -1 and "" for what it does not say."""

    bytes: int = -1
    communicator: str = ""
    rank: int = -1
    ranks: int = -1
    peer: int = -1


def nccl_facts(fields: Mapping[str, Any]) -> NcclFacts:
    """By the names of the fields, which NCCL has changed little since 2.18."""
    numbers = {"bytes": -1, "rank": -1, "ranks": -1, "peer": -1}
    communicator = ""
    for name, value in fields.items():
        word = name.lower()
        if "communicator" in word or word in ("comm", "comm id", "commhash"):
            communicator = str(_number(value, 1 << 64)) if _number(value, 1 << 64) >= 0 else str(value)
        elif "message size" in word or word in ("bytes", "size"):
            numbers["bytes"] = _number(value, 1 << 62)
        elif "no. of ranks" in word or word in ("nranks", "world size"):
            numbers["ranks"] = _number(value, 1 << 31)
        elif word in ("rank", "peer", "peer rank"):
            numbers[word.split()[0]] = _number(value, 1 << 31)
    return NcclFacts(communicator=communicator, **numbers)


def _number(value: Any, limit: int) -> int:
    """A whole number below ``limit``, also from digits with separators; -1 for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\d[\d, ']{0,30}", value):
        value = int(re.sub(r"\D", "", value))
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else -1
