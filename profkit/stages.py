"""Which ranges are stages of an inference step, and what their name carries.

A range is a stage if its domain is ``profkit`` and its category is a stage; or, in any domain and in PyTorch
annotations, if its name without the prefix ``profkit::`` and without ``#payload`` is exactly a stage. A file of
patterns names further ranges, after a trace was opened.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import text
from profkit.arrays import key_of, numbered
from profkit.errors import InputError
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import PAYLOAD_KINDS, SPAN_KINDS, STAGES

DOMAIN = "profkit"
PREFIX = "profkit::"
_KEYS = {"stage", "pattern", "domain", "payload"}
_LARGEST_FILE = 1 << 20
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)
_NAME = re.compile(rf"^(?:{PREFIX})?({'|'.join(STAGES)})(?:#(-?\d{{1,18}}))?$")


@dataclass(frozen=True)
class StageName:
    """A stage and the payload that stands in the name, None where there is none."""

    stage: int
    payload: int | None

    @property
    def name(self) -> str:
        return STAGES[self.stage]


def parse_name(name: str) -> StageName | None:
    """The stage that a range's name says: ``decode``, ``profkit::decode#8``; None for any other name."""
    match = _NAME.match(name)
    if match is None:
        return None
    return StageName(STAGES.index(match[1]), int(match[2]) if match[2] is not None else None)


def find_stages(names: list[str], name: Array, domain: Array, category: Array) -> tuple[Array, Ints, Array]:
    """(stage code or -1, payload in the name, whether it has one) for spans; ``names`` are the texts of the codes."""
    if not len(name):
        return np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, bool)
    _, first, inverse = numbered(key_of(name, domain, category))
    stage = np.full(len(first), -1, np.int8)
    payload = np.full(len(first), -1, np.int64)
    has_payload = np.zeros(len(first), bool)
    for i in np.flatnonzero(_may_be_stage(names, name[first], domain[first])).tolist():
        row = first[i]
        found = parse_name(names[name[row]] if name[row] >= 0 else "")
        if found is not None:
            stage[i] = found.stage
            if found.payload is not None:
                payload[i], has_payload[i] = found.payload, True
        elif (
            domain[row] >= 0 and category[row] >= 0 and names[domain[row]] == DOMAIN and names[category[row]] in STAGES
        ):
            stage[i] = STAGES.index(names[category[row]])
    return stage[inverse], payload[inverse], has_payload[inverse]


def _may_be_stage(names: list[str], name: Array, domain: Array) -> Mask:
    """Which (name, domain) are worth a look: there may be as many names as ranges, and few of them are stages."""
    try:
        texts = pa.array(names, pa.string())
    except UnicodeEncodeError:  # half a surrogate pair is no text that Arrow can hold
        return np.ones(len(name), bool)
    matches = pc.match_substring_regex(texts, rf"^(?:{PREFIX})?(?:{'|'.join(STAGES)})(?:#|$)").to_numpy(False)
    ours = np.asarray(pc.equal(texts, DOMAIN).to_numpy(False))
    mask: Mask = ((name >= 0) & matches[name]) | ((domain >= 0) & ours[domain])
    return mask


@dataclass(frozen=True)
class StagePattern:
    """Ranges that are a stage: those in whose name ``pattern`` is found, of one NVTX domain or (None) of any.

    ``payload`` names a group of the pattern whose digits are the payload.
    """

    stage: int
    pattern: re.Pattern[str]
    domain: str | None = None
    payload: str = ""


def read_stage_file(path: Path) -> tuple[StagePattern, ...]:
    """The ``[[stage]]`` entries of a TOML file, in order. Raises InputError, in one line, for anything else."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise InputError(f"{path}: too large for a file of stages")
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no TOML: {error}") from None
    entries = document.pop("stage", None)
    if document or not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: a file of stages holds [[stage]] entries and nothing else")
    return tuple(_stage_pattern(f"{path}: [[stage]] {number}", entry) for number, entry in enumerate(entries, 1))


def _stage_pattern(where: str, entry: Any) -> StagePattern:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise InputError(f"{where}: each of {', '.join(sorted(_KEYS))} is a text")
    if not {"stage", "pattern"} <= set(entry) <= _KEYS:
        has = ", ".join(entry) or "nothing"
        raise InputError(f"{where}: needs stage and pattern, and may have domain and payload; it has {has}")
    if entry["stage"] not in STAGES:
        raise InputError(f"{where}: {entry['stage']!r} is no stage: there are {', '.join(STAGES)}")
    try:
        pattern = re.compile(entry["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: {entry['pattern']!r} is no regular expression: {error}") from None
    payload = entry.get("payload", "")
    if payload and payload not in pattern.groupindex:
        raise InputError(f"{where}: the pattern has no group (?P<{payload}>...) for the payload")
    return StagePattern(STAGES.index(entry["stage"]), pattern, entry.get("domain"), payload)


def with_stages(trace: Trace, patterns: Sequence[StagePattern]) -> Trace:
    """The trace with the stage, and the payload where the name holds it, of ranges that a pattern names.

    The first pattern that is found in a name decides; other ranges keep what they have. Notes say how many there were.
    """
    name, domain = trace.array("spans", "name"), trace.array("spans", "domain")
    rows = np.flatnonzero((trace.array("spans", "kind") != SPAN_KINDS.index("mark")) & (name >= 0))
    if not len(rows):
        return _noted(trace, patterns, rows)
    _, first, pair = numbered(key_of(name[rows], domain[rows]))
    names = [*trace.names, ""]  # the last one is for ranges of the default domain
    said = [_first_match(patterns, names[name[row]], names[domain[row]]) for row in rows[first].tolist()]
    by, digits = np.asarray(said, np.int64).reshape(-1, 2)[pair].T
    stage, kind, value = (trace.array("spans", key).copy() for key in ("stage", "payload_kind", "payload_int"))
    stage[rows[by >= 0]] = np.asarray([one.stage for one in patterns], np.int8)[by[by >= 0]]
    kind[rows[digits >= 0]], value[rows[digits >= 0]] = PAYLOAD_KINDS.index("int"), digits[digits >= 0]
    spans = trace.tables["spans"]
    for key, column in (("stage", stage), ("payload_kind", kind), ("payload_int", value)):
        place = spans.schema.get_field_index(key)
        spans = spans.set_column(place, spans.schema.field(place), pa.array(column))
    return _noted(replace(trace, tables={**trace.tables, "spans": spans}), patterns, by)


def _first_match(patterns: Sequence[StagePattern], name: str, domain: str) -> tuple[int, int]:
    """(the first pattern that is found in a name of a domain, its payload), -1 for none."""
    for number, one in enumerate(patterns):
        match = one.pattern.search(name) if one.domain in (None, domain) else None
        if match is not None:
            digits = match[one.payload] if one.payload else None
            return number, int(digits) if digits and _DIGITS.fullmatch(digits) else -1
    return -1, -1


def _noted(trace: Trace, patterns: Sequence[StagePattern], by: Ints) -> Trace:
    """With a note for each pattern: how many ranges it named."""
    notes = []
    for one, count in zip(patterns, np.bincount(by[by >= 0], minlength=len(patterns)).tolist(), strict=True):
        named = f"{text.count(count, 'range')} named like" if count else "no range is named like"
        notes.append(f"--stages: {named} {text.clip(one.pattern.pattern, 80)} ({STAGES[one.stage]})")
    return replace(trace, meta=replace(trace.meta, notes=(*trace.meta.notes, *notes)))
