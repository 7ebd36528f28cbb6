"""Requests: arrival, first token, end, and what follows from them: TTFT and TPOT.

A request is a ``request`` range. What the engine says of it stands in marks of the instrumenter, which win:
``request#7 first_token``, ``request#7 prompt_tokens=33``, ``request#7 output_tokens=64``. Else its first token is the
end of the first ``sample`` after its first ``prefill`` (without a sample, the end of that prefill), and its tokens are
the payloads of those stages; a sample of a batch, in which requests overlap, is one token of each. Where
requests overlap and there is a prefill for each, they have them in order of arrival.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from profkit.analysis.spans import overlapping
from profkit.model import Array, Ints, Mask, Trace
from profkit.schema import NOT_WHOLE, PAYLOAD_KINDS, SPAN_KINDS, TABLES

_MARK = re.compile(r"^(?:profkit::)?request#(\d{1,18}) (first_token|prompt_tokens|output_tokens)(?:=(\d{1,18}))?$")
_START_END = SPAN_KINDS.index("start_end")
_INT = PAYLOAD_KINDS.index("int")


@dataclass(frozen=True)
class Requests:
    """One entry a request, in order of arrival; -1 is "not known"."""

    process: Array
    request: Ints
    arrival: Ints
    first_token: Ints
    end: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    ttft: Ints
    tpot: Ints
    complete: Mask
    span: Ints

    def __len__(self) -> int:
        return len(self.request)

    def where(self, keep: Mask) -> Requests:
        """Some of the requests."""
        return Requests(**{f.name: getattr(self, f.name)[keep] for f in fields(self)})

    def table(self) -> pa.Table:
        """The derived table ``requests``."""
        columns = [
            self.process, self.request, self.arrival, self.first_token, self.end, self.prompt_tokens,
            self.output_tokens, self.ttft, self.tpot, self.complete,
        ]  # fmt: skip
        schema = TABLES["requests"].schema
        arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class _Stage:
    """Ranges of one stage on one lane, in order of start; ``tokens`` and ``known`` are running sums from 0."""

    start: Ints
    end: Ints
    tokens: Ints
    known: Ints

    def between(self, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Positions [low, high) of the ranges that start from ``since`` on and before ``until``."""
        low = np.searchsorted(self.start, since, side="left")
        return low, np.maximum(np.searchsorted(self.start, until, side="left"), low)


def find_requests(trace: Trace) -> Requests:
    """Requests of a trace, from ranges and marks."""
    rows = trace.stage_rows("request")
    n = len(rows)
    flags = trace.array("spans", "flags")[rows]
    arrival = trace.array("spans", "start_ns")[rows]
    end = arrival + trace.array("spans", "dur_ns")[rows]
    track = trace.array("spans", "track")[rows]
    process = trace.process_of(track)
    known = trace.array("spans", "payload_kind")[rows] == _INT
    number = np.where(known, trace.array("spans", "payload_int")[rows], -1)
    shared = trace.array("spans", "kind")[rows] == _START_END
    overlap = overlapping(process, arrival, end)
    first, prompt, output = (np.full(n, -1, np.int64) for _ in range(3))
    lanes = np.where(shared, -1 - process.astype(np.int64), track)
    for lane in np.unique(lanes).tolist():
        mine = np.flatnonzero(lanes == lane)
        first[mine], prompt[mine], output[mine] = _from_stages(trace, lane, arrival[mine], end[mine], overlap[mine])
    _apply_marks(trace, process, number, arrival, end, first, prompt, output)
    complete = ((flags & NOT_WHOLE) == 0) & (first >= 0)
    return Requests(
        process=process,
        request=number,
        arrival=arrival,
        first_token=first,
        end=np.where((flags & NOT_WHOLE) == 0, end, -1),
        prompt_tokens=prompt,
        output_tokens=output,
        ttft=np.where(first >= 0, first - arrival, -1),
        tpot=tpot_of(first, end, output, complete),
        complete=complete,
        span=rows,
    )


def tpot_of(first_token: Ints, end: Ints, output_tokens: Ints, complete: Mask) -> Ints:
    """(end - first token) / (output tokens - 1), ns, half up; -1 for one token and for what was not seen whole."""
    more = np.maximum(output_tokens - 1, 1)
    return np.where(complete & (output_tokens > 1), (2 * (end - first_token) + more) // (2 * more), -1)


def _stage_of_lane(trace: Trace, stage: str, lane: int) -> _Stage:
    """A stage's ranges on a thread (``lane`` is its track) or in a process (``lane`` is -1 - process)."""
    rows = trace.stage_rows(stage)
    track = trace.array("spans", "track")[rows]
    rows = rows[(trace.process_of(track) == -1 - lane) if lane < 0 else (track == lane)]
    start = trace.array("spans", "start_ns")[rows]
    payload = trace.array("spans", "payload_int")[rows]
    known = (trace.array("spans", "payload_kind")[rows] == _INT) & (payload >= 0)
    tokens = np.where(known, payload, 0)
    return _Stage(
        start,
        start + trace.array("spans", "dur_ns")[rows],
        np.concatenate(([0], np.cumsum(tokens))),
        np.concatenate(([0], np.cumsum(known))),
    )


def _from_stages(trace: Trace, lane: int, arrival: Ints, end: Ints, overlaps: Mask) -> tuple[Ints, Ints, Ints]:
    """(first token, prompt tokens, output tokens) of requests [arrival, end] from the stages of their lane."""
    prefill, sample = (_stage_of_lane(trace, stage, lane) for stage in ("prefill", "sample"))
    low, high = prefill.between(arrival, end)
    if overlaps.any():
        low = _in_turn(prefill, arrival, end, low)
    begun = high > low
    prompt = np.where(
        begun & (prefill.known[high] > prefill.known[low]), prefill.tokens[high] - prefill.tokens[low], -1
    )
    since = np.where(begun, _at(prefill.start, low), arrival)
    first = np.where(begun, _at(prefill.end, low), -1)
    low, high = sample.between(since, end)
    sampled = high > low
    unknown = (high - low) - (sample.known[high] - sample.known[low])
    tokens = sample.tokens[high] - sample.tokens[low] + unknown
    output = np.where(sampled, np.where(overlaps, high - low, tokens), -1)
    return np.where(sampled, _at(sample.end, low), first), np.where(overlaps, -1, prompt), output


def _in_turn(prefill: _Stage, arrival: Ints, end: Ints, low: Ints) -> Ints:
    """Position of the first prefill of each request: of requests at the same time the n-th to come has the n-th one.

    Where there are not as many, or one would lie outside of its request, it stays the first behind the arrival.
    """
    if len(prefill.start) != len(arrival):
        return low
    turn = np.empty(len(arrival), np.int64)
    turn[np.lexsort((end, arrival))] = np.arange(len(arrival))
    fits = (prefill.start[turn] >= arrival) & (prefill.end[turn] <= end)
    return turn if fits.all() else low


def _at(values: Ints, position: Ints) -> Ints:
    """Values at positions that may lie behind the end, where anything will do."""
    return values[np.minimum(position, len(values) - 1)] if len(values) else np.full(len(position), -1, np.int64)


def _apply_marks(
    trace: Trace, process: Array, number: Ints, arrival: Ints, end: Ints, first: Ints, prompt: Ints, output: Ints
) -> None:
    """What marks of the instrumenter say, to the request of that process and id that was open at the mark."""
    is_mark = trace.name_rows(lambda text: _MARK.match(text) is not None, "text")
    name = trace.array("spans", "name")
    rows = np.flatnonzero((name >= 0) & is_mark[np.maximum(name, 0)]) if is_mark.any() else np.zeros(0, np.int64)
    start = trace.array("spans", "start_ns")[rows].tolist()
    owner = trace.process_of(trace.array("spans", "track")[rows]).tolist()
    requests: dict[tuple[int, int], list[int]] = {}
    for i, key in enumerate(zip(process.tolist(), number.tolist(), strict=True)):
        requests.setdefault(key, []).append(i)
    for row, time, who in zip(rows.tolist(), start, owner, strict=True):
        match = _MARK.match(trace.name(int(name[row])))
        known = requests.get((who, int(match[1])), []) if match is not None else []
        at = next((i for i in reversed(known) if arrival[i] <= time <= end[i]), -1)
        if match is None or at < 0:
            continue
        if match[2] == "first_token":
            first[at] = time
        elif match[3] is not None:
            (prompt if match[2] == "prompt_tokens" else output)[at] = int(match[3])
