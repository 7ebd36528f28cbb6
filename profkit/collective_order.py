"""Which collective is which on several ranks: each is numbered within its communicator, rank by rank.

Ranks issue the collectives of one communicator in one order, so that the n-th of one rank is the n-th of every other.
Where no communicator is recorded, the n-th of one kernel or range name stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.arrays import key_of, numbered
from profkit.model import Array, Ints, Trace
from profkit.schema import NOT_WHOLE

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that end on no rank before they have begun on all: each rank needs what each other one sends.

The root of a broadcast, or the sender of a message, may be done before its peers have come.
"""


@dataclass(frozen=True)
class Numbered:
    """Synchronising collectives that were seen whole on the device, in order of start; one entry a kernel.

    ``series`` indexes ``labels``, ``member`` tells apart the GPUs of processes, ``number`` counts the entries of a
    member within a series from 0. Times are ns.
    """

    row: Ints
    series: Ints
    labels: tuple[tuple[str, str, str], ...]
    """(communicator, operation, name), of which the name is "" where there is a communicator."""
    member: Ints
    process: Array
    device: Array
    host: Array
    number: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.row)


def number_collectives(trace: Trace) -> Numbered:
    """The collectives of a trace that can be matched across ranks; operations of one NCCL group are one entry."""
    operation = pc.is_in(trace.tables["collectives"].column("operation"), value_set=pa.array(SYNCHRONISING))
    kernel, track = trace.array("collectives", "kernel"), trace.array("collectives", "track")
    usable = operation.combine_chunks().to_numpy(zero_copy_only=False)
    usable = usable & (kernel >= 0) & (track >= 0) & ((trace.array("collectives", "flags") & NOT_WHOLE) == 0)
    rows = np.flatnonzero(usable)
    rows = np.sort(rows[numbered(kernel[rows])[1]])
    series, labels = _series(trace, rows)
    track = track[rows]
    process, device, host = (trace.array("tracks", column)[track] for column in ("process", "device", "host"))
    _, _, member = numbered(key_of(process, device))
    start = trace.array("collectives", "start_ns")[rows]
    return Numbered(
        row=rows,
        series=series,
        labels=labels,
        member=member,
        process=process,
        device=device,
        host=host,
        number=_counted(key_of(series, member)),
        start=start,
        end=start + trace.array("collectives", "dur_ns")[rows],
    )


def _series(trace: Trace, rows: Ints) -> tuple[Ints, tuple[tuple[str, str, str], ...]]:
    """(series of each row, its label): by communicator and operation, without a communicator by name as well."""
    table = trace.tables["collectives"]
    codes, words = [], []
    for column in ("communicator", "operation"):
        encoded = table.column(column).take(pa.array(rows)).combine_chunks().dictionary_encode()
        codes.append(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))
        words.append(encoded.dictionary.to_pylist())
    named = np.asarray([bool(word) for word in words[0]], bool)[codes[0]] if len(rows) else np.zeros(0, bool)
    name = np.where(named, -1, trace.array("collectives", "name")[rows])
    _, first, series = numbered(key_of(codes[0], codes[1], name))
    labels = tuple(
        (words[0][codes[0][row]], words[1][codes[1][row]], trace.name(int(name[row]))) for row in first.tolist()
    )
    return series, labels


def _counted(key: Ints) -> Ints:
    """How many earlier rows have the key of each row."""
    order = np.argsort(key, kind="stable")
    place = np.arange(len(key))
    begins = np.flatnonzero(np.diff(key[order], prepend=key[order][:1] - 1)) if len(key) else place
    out = np.empty(len(key), np.int64)
    out[order] = place - np.repeat(begins, np.diff(begins, append=len(key)))
    return out
