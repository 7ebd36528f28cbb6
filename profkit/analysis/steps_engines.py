"""Steps from the annotations of inference engines: one range an iteration, its name often with batch and tokens.

The patterns, each with its source, are in ``engine_steps.toml``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np
import pyarrow.compute as pc

from profkit.analysis.spans import nested_ranges
from profkit.analysis.steps_found import Openings
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import NOT_WHOLE, SPAN_KINDS, STEP_KINDS, TRACK_KINDS

_KINDS = [SPAN_KINDS.index(kind) for kind in ("push_pop", "op", "annotation")]
_THREAD = TRACK_KINDS.index("thread")
_MOST = 1 << 62
"""A larger number in a name is no count."""


@dataclass(frozen=True)
class Pattern:
    """What an engine calls an iteration; see the head of ``engine_steps.toml``."""

    engine: str
    source: str
    name: str
    modes: dict[str, str] = field(default_factory=dict)
    one_token: tuple[str, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """What a name says; counts are -1 where it does not say them."""

    kind: str
    batch: int
    prefill_tokens: int
    decode_tokens: int


@cache
def engine_patterns() -> tuple[Pattern, ...]:
    """The patterns of the data file, in the order in which they are tried."""
    text = files("profkit.analysis").joinpath("engine_steps.toml").read_text("utf-8")
    rows = tomllib.loads(text)["pattern"]
    return tuple(Pattern(**{**row, "one_token": tuple(row.get("one_token", ()))}) for row in rows)


def read_name(pattern: Pattern, name: str) -> Iteration | None:
    """What the name of a range says by a pattern; None if it is none of its iterations."""
    match = re.match(pattern.name, name)
    if match is None:
        return None
    groups = match.groupdict()
    mode = groups.get("mode") or ""
    if pattern.modes and mode not in pattern.modes:
        return None
    count = {key: _count(groups.get(key)) for key in ("prefill", "decode", "batch", "tokens")}
    kind = pattern.modes.get(mode) or _kind(count["prefill"], count["decode"])
    batch = count["batch"]
    if count["prefill"] >= 0 and count["decode"] >= 0:
        batch = count["prefill"] + count["decode"]
    prefill, decode = _count(groups.get("prefill_tokens")), _count(groups.get("decode_tokens"))
    if kind == "prefill" and prefill < 0:
        prefill = count["tokens"]
    if kind == "decode" and decode < 0:
        decode = batch if mode in pattern.one_token else count["tokens"]
    return Iteration(kind, batch, prefill, decode)


def _count(digits: str | None) -> int:
    return -1 if digits is None or int(digits) > _MOST else int(digits)


def _kind(prefill: int, decode: int) -> str:
    if prefill > 0:
        return "mixed" if decode > 0 else "prefill"
    return "decode" if decode > 0 else "other"


def find_engine_steps(trace: Trace) -> Openings | None:
    """Iterations that an engine annotated; None without any."""
    name = trace.array("spans", "name")
    ranged = np.isin(trace.array("spans", "kind"), _KINDS) & (name >= 0)
    ranged &= trace.array("tracks", "kind")[trace.array("spans", "track")] == _THREAD
    for pattern in engine_patterns():
        found = _names(trace, pattern)
        if not found:
            continue
        mask = np.zeros(trace.rows("names"), bool)
        mask[list(found)] = True
        rows = np.flatnonzero(ranged & mask[np.maximum(name, 0)])
        if len(rows):
            return _openings(trace, rows, found)
    return None


def _names(trace: Trace, pattern: Pattern) -> dict[int, Iteration]:
    """What the names that fit a pattern say, by their rows; there may be millions of others."""
    texts = trace.tables["names"].column("text")
    hits: Mask = pc.match_substring_regex(texts, pattern.name).to_numpy()
    read = {row: read_name(pattern, trace.name(row)) for row in np.flatnonzero(hits).tolist()}
    return {row: said for row, said in read.items() if said is not None}


def _openings(trace: Trace, rows: Ints, said: dict[int, Iteration]) -> Openings:
    ranges = nested_ranges(trace, rows)
    outer = np.flatnonzero(ranges.parent < 0)
    rows = ranges.row[outer]
    name = trace.array("spans", "name")[rows]
    each = [said[row] for row in np.unique(name).tolist()]
    of_row = np.searchsorted(np.unique(name), name)

    def column(values: list[int]) -> Ints:
        return np.asarray(values, np.int64)[of_row]

    track: Array = ranges.track[outer]
    return Openings(
        process=trace.process_of(track),
        track=track,
        start=ranges.start[outer],
        own_end=ranges.end[outer],
        kind=column([STEP_KINDS.index(one.kind) for one in each]).astype(np.int8),
        batch=column([one.batch for one in each]),
        prefill_tokens=column([one.prefill_tokens for one in each]),
        decode_tokens=column([one.decode_tokens for one in each]),
        span=rows,
        whole=(trace.array("spans", "flags")[rows] & NOT_WHOLE) == 0,
    )
