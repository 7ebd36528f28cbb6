"""Which collective is which on several ranks: each is numbered within its communicator, rank by rank.

Ranks issue the collectives of one communicator in one order, so that the n-th of one rank is the n-th of every other.
Where no communicator is recorded, the n-th of one kernel or range name stands for it. What PyTorch calls a "Comms Id"
is one collective on all of its ranks: a series of one.
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

    ``series`` is a row of ``labels``, ``member`` tells apart the GPUs of processes, ``number`` counts the entries of a
    member within a series from 0. Times are ns.
    """

    row: Ints
    series: Ints
    labels: pa.Table
    """What each series is: communicator, operation, and name, which is "" where there is a communicator."""
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
    # The stream of a PyTorch trace belongs to no process, its kernel to that of the launch.
    process = np.where(process >= 0, process, trace.array("kernels", "process")[kernel[rows]])
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


def series_keys(labels: pa.Table) -> pa.ChunkedArray:
    """One text a series: equal in two traces exactly where the series is."""
    return pc.binary_join_element_wise(*labels.columns, "\x1f")


def _series(trace: Trace, rows: Ints) -> tuple[Ints, pa.Table]:
    """(series of each row, what each is): by communicator and operation, without a communicator by name as well."""
    table = trace.tables["collectives"].select(["communicator", "operation"]).take(pa.array(rows)).combine_chunks()
    codes = [
        column.dictionary_encode().combine_chunks().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        for column in table.columns
    ]
    unnamed = pc.equal(table.column("communicator"), "").combine_chunks().to_numpy(zero_copy_only=False)
    name = np.where(unnamed, trace.array("collectives", "name")[rows], -1)
    _, first, series = numbered(key_of(*codes, name))
    at = pa.array(name[first], mask=name[first] < 0)
    names = pc.fill_null(trace.tables["names"].column("text").take(at), "")
    return series, table.take(pa.array(first)).append_column("name", names)


def _counted(key: Ints) -> Ints:
    """How many earlier rows have the key of each row."""
    order = np.argsort(key, kind="stable")
    place = np.arange(len(key))
    begins = np.flatnonzero(np.diff(key[order], prepend=key[order][:1] - 1)) if len(key) else place
    out = np.empty(len(key), np.int64)
    out[order] = place - np.repeat(begins, np.diff(begins, append=len(key)))
    return out
