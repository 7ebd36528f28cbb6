"""Collectives: the NCCL ranges of an nsys export joined to the NCCL kernels that they launched.

A call inside ncclGroupStart ... ncclGroupEnd launches nothing by itself: its kernel is launched by the end of the
group. Operations of one group may share a kernel; which of several kernels belongs to which operation is said only
where there are as many of both. NCCL kernels without a range have rows of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profkit.arrays import distinct, first_match, pack
from profkit.builder import Builder
from profkit.ingest.nsys.payloads import NcclFacts, Payloads, nccl_facts
from profkit.model import Array, Ints
from profkit.schema import FLAG_OPEN_END

_WORDS = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Bcast": "broadcast", "SendRecv": "send_recv", "AlltoAll": "all_to_all", "AllToAll": "all_to_all", "Send": "send",
    "Recv": "recv", "Gather": "gather", "Scatter": "scatter", "Reduce": "reduce",
}  # fmt: skip
_OPERATIONS = ("", *dict.fromkeys(_WORDS.values()))
_RANGE = re.compile(rf"^nccl({'|'.join(_WORDS)})(?:Config)?(?:\(|$)")
_KERNEL = re.compile(rf"^nccl(?:Dev)?Kernel(?:_?({'|'.join(_WORDS)}))?(?:_|\(|<|$)")
_GROUP_END, _GROUP_START = 0, 1
_GROUP = {"ncclGroupStart": _GROUP_START, "ncclGroupEnd": _GROUP_END}


@dataclass(frozen=True)
class _Parts:
    """Rows of one kind that have to do with NCCL, in the order of adding."""

    row: Ints
    start: Ints
    dur: Ints
    track: Array
    name: Array
    flags: Array
    operation: Ints
    """Index into _OPERATIONS; of a group, which end it is."""


def add_collectives(builder: Builder, payloads: Payloads | None) -> None:
    """Add the rows of ``collectives`` for the spans, kernels and calls read so far, and ranks that payloads tell."""
    texts = builder.names.texts()
    nccl = [(row, text) for row, text in enumerate(texts) if text.startswith("nccl")]
    if not nccl:
        return
    kernels = _parts(builder, "kernels", _codes(len(texts), {row: _kernel_operation(text) for row, text in nccl}))
    spans = _parts(builder, "spans", _codes(len(texts), {row: _range_operation(text) for row, text in nccl}))
    groups = _parts(builder, "spans", _codes(len(texts), {row: _GROUP.get(text, -1) for row, text in nccl}))
    if not len(kernels.row) and not len(spans.row):
        return
    kernel_of = _kernels_of(builder, spans, groups, kernels)
    facts = _facts_of(builder, spans, payloads)
    alone = np.setdiff1d(np.arange(len(kernels.row)), kernel_of[kernel_of >= 0])
    linked = kernel_of >= 0
    at = np.where(linked, kernel_of, 0)

    def from_both(of_kernel: Array, of_span: Array) -> Array:
        """The kernel's value where there is one, the range's otherwise; then those of kernels without a range."""
        mine = np.where(linked, of_kernel[at], of_span) if len(of_kernel) else of_span
        return np.concatenate([mine, of_kernel[alone]])

    operation = np.concatenate([spans.operation, kernels.operation[alone]])
    count = len(alone)
    builder.add(
        "collectives",
        start_ns=from_both(kernels.start, spans.start),
        dur_ns=from_both(kernels.dur, spans.dur),
        track=from_both(kernels.track, spans.track),
        flags=from_both(kernels.flags, spans.flags),
        span=np.concatenate([spans.row, np.full(count, -1)]),
        kernel=np.concatenate(
            [np.where(linked, kernels.row[at], -1) if len(kernels.row) else kernel_of, kernels.row[alone]]
        ),
        name=np.concatenate([spans.name, kernels.name[alone]]),
        operation=pa.DictionaryArray.from_arrays(pa.array(operation), pa.array(_OPERATIONS)).cast(pa.string()),
        bytes=np.asarray([f.bytes for f in facts] + [-1] * count, np.int64),
        communicator=pa.array([f.communicator for f in facts] + [""] * count, pa.string()),
        rank=np.asarray([f.rank for f in facts] + [-1] * count, np.int64),
        peer=np.asarray([f.peer for f in facts] + [-1] * count, np.int64),
    )


def _range_operation(text: str) -> int:
    match = _RANGE.match(text)
    return _OPERATIONS.index(_WORDS[match[1]]) if match else -1


def _kernel_operation(text: str) -> int:
    match = _KERNEL.match(text)
    return _OPERATIONS.index(_WORDS.get(match[1] or "", "")) if match else -1


def _codes(count: int, known: Mapping[int, int]) -> Ints:
    """A code for each of ``count`` names, -1 for the others."""
    codes = np.full(count, -1, np.int64)
    codes[list(known)] = list(known.values())
    return codes


def _parts(builder: Builder, table: str, codes: Ints) -> _Parts:
    """Rows whose name has a code of 0 or more, with that code as the operation."""
    columns = builder.columns(table, ("name", "start_ns", "dur_ns", "track", "flags"))
    of_row = codes[columns["name"]]
    row = np.flatnonzero(of_row >= 0)
    start, dur, track, name, flags = (columns[key][row] for key in ("start_ns", "dur_ns", "track", "name", "flags"))
    flags = np.where(dur < 0, flags | FLAG_OPEN_END, flags)
    return _Parts(row, start, np.maximum(dur, 0), track, name, flags, of_row[row])


def _kernels_of(builder: Builder, spans: _Parts, groups: _Parts, kernels: _Parts) -> Ints:
    """For each operation's range the position in ``kernels`` of its kernel, -1 for none."""
    out = np.full(len(spans.row), -1, np.int64)
    if not len(kernels.row):
        return out
    owner = builder.columns("kernels", ("process", "correlation"))
    calls = builder.columns("calls", ("process", "correlation", "start_ns", "track"))
    process, correlation = owner["process"][kernels.row], owner["correlation"][kernels.row]
    keys, wanted = pack([[calls["process"], process], [calls["correlation"], correlation]])
    call = np.where(correlation >= 0, first_match(keys, wanted), -1)
    launched = np.flatnonzero(call >= 0)
    at, on = calls["start_ns"][call[launched]], calls["track"][call[launched]]
    for track in distinct(spans.track).tolist():
        mine = np.flatnonzero(spans.track == track)
        mine = mine[np.argsort(spans.start[mine], kind="stable")]
        here = launched[on == track]
        order = np.argsort(at[on == track], kind="stable")
        out[mine] = _on_thread(spans, groups, mine, here[order], at[on == track][order])
    return out


def _on_thread(spans: _Parts, groups: _Parts, mine: Ints, kernel: Ints, launched_at: Ints) -> Ints:
    """:func:`_kernels_of` for the ranges ``mine`` of one thread and the kernels that it launched, both in order."""
    low, high = spans.start[mine], spans.start[mine] + spans.dur[mine]
    ends = _group_ends(groups, int(spans.track[mine[0]]), low)
    in_group = ends >= 0
    low = np.where(in_group, groups.start[ends], low) if len(groups.row) else low
    high = np.where(in_group, groups.start[ends] + groups.dur[ends], high) if len(groups.row) else high
    first = np.searchsorted(launched_at, low, side="left")
    count = np.searchsorted(launched_at, high, side="right") - first
    # Number of each operation in its interval, and how many operations the interval has.
    key = np.where(in_group, ends, -1 - np.arange(len(mine)))
    _, inverse, size = np.unique(key, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    number = np.empty(len(mine), np.int64)
    number[order] = np.arange(len(mine)) - np.repeat(np.cumsum(size) - size, size)
    sure = (count == 1) | (count == size[inverse])
    place = first + np.where(count == 1, 0, number)
    return np.where(sure & (count > 0), kernel[np.minimum(place, len(kernel) - 1)] if len(kernel) else -1, -1)


def _group_ends(groups: _Parts, track: int, at: Ints) -> Ints:
    """Position in ``groups`` of the ncclGroupEnd that closes the outermost group around each time, -1 outside."""
    rows = np.flatnonzero(groups.track == track)
    if not len(rows):
        return np.full(len(at), -1, np.int64)
    rows = rows[np.argsort(groups.start[rows], kind="stable")]
    depth = np.cumsum(np.where(groups.operation[rows] == _GROUP_START, 1, -1))
    depth -= np.minimum.accumulate(np.minimum(depth, 0))  # a capture may begin inside of a group
    closing = np.flatnonzero((depth == 0) & (groups.operation[rows] == _GROUP_END))
    before = np.searchsorted(groups.start[rows], at, side="right") - 1
    inside = (before >= 0) & (depth[np.maximum(before, 0)] > 0)
    after = np.searchsorted(closing, before)
    found = inside & (after < len(closing))
    return np.where(found, rows[closing[np.minimum(after, len(closing) - 1)]] if len(closing) else -1, -1)


def _facts_of(builder: Builder, spans: _Parts, payloads: Payloads | None) -> list[NcclFacts]:
    """What the payload of each operation says; its rank from the call that made the communicator."""
    nothing = NcclFacts()
    if payloads is None:
        return [nothing] * len(spans.row)
    known = [nccl_facts(fields) for fields in payloads.fields]
    track_process = {row: builder.get_dimension("tracks", row, "process") for row in range(builder.count("tracks"))}
    track = builder.columns("spans", ("track",))["track"]
    ranks: dict[tuple[int, str], NcclFacts] = {}
    makers = {i for i, fact in enumerate(known) if fact.rank >= 0 and fact.ranks > 0}
    for row in np.flatnonzero(np.isin(payloads.of_row, list(makers))).tolist():
        fact = known[int(payloads.of_row[row])]
        ranks[track_process[int(track[row])], fact.communicator] = fact
    _name_ranks(builder, ranks)
    out = []
    for row, lane in zip(spans.row.tolist(), spans.track.tolist(), strict=True):
        place = int(payloads.of_row[row])
        fact = known[place] if place >= 0 else nothing
        maker = ranks.get((track_process[lane], fact.communicator))
        rank = fact.rank if fact.rank >= 0 else maker.rank if maker else -1
        out.append(NcclFacts(fact.bytes, fact.communicator, rank, fact.ranks, fact.peer))
    return out


def _name_ranks(builder: Builder, ranks: dict[tuple[int, str], NcclFacts]) -> None:
    """A process that no one gave a rank has that of its largest communicator."""
    for (process, _), fact in sorted(ranks.items(), key=lambda item: item[1].ranks):
        if process >= 0 and builder.get_dimension("processes", process, "world_size") < fact.ranks:
            builder.set_dimension("processes", process, rank=fact.rank, world_size=fact.ranks)
