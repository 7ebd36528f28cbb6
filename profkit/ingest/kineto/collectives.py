"""Collectives from NCCL and RCCL kernels and, where none were recorded, from the operators that start them.

PyTorch writes an operator ``record_param_comms`` around each launch; since 2.3 both carry what is moved and by whom.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pyarrow as pa

from profkit.arrays import first_match, innermost, pack, parents
from profkit.builder import Builder
from profkit.ingest.kineto.lanes import Lanes
from profkit.ingest.kineto.records import Args, Complete
from profkit.ingest.kineto.tables import device_rows, thread_rows
from profkit.model import Ints, Trace

OPERATOR = "record_param_comms"
_KERNEL = re.compile(r"(?:^|\s|::)(?:nccl|rccl)", re.IGNORECASE)
_OPERATIONS = tuple(
    (operation, re.compile(pattern))
    for operation, pattern in (
        ("reduce_scatter", "reducescatter"),
        ("all_reduce", "allreduce"),
        ("all_gather", "allgather"),
        ("all_to_all", "alltoall"),
        ("send_recv", "sendrecv"),
        ("broadcast", "broadcast|bcast"),
        ("barrier", "barrier"),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("send", "send"),
        ("recv", "recv|receive"),
    )
)
# Names of torch's types, and of NCCL's.
_BYTES = {
    "double": 8, "long": 8, "int64": 8, "uint64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "int32": 4, "uint32": 4, "float32": 4, "half": 2, "bfloat16": 2, "float16": 2, "short": 2,
    "char": 1, "byte": 1, "bool": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


def operation_of(name: str) -> str:
    """all_reduce, all_gather, ... from a kernel's or an operator's name; "" if it says none."""
    plain = name.split("(")[0].lower().replace("_", "").replace(" ", "")
    return next((operation for operation, pattern in _OPERATIONS if pattern.search(plain)), "")


def message_bytes(args: Args) -> int:
    """Size of the larger side of the message, -1 if not known."""
    kind = args.dtype.lower().removeprefix("c10::")
    size = _BYTES.get(kind, 1 if kind.startswith("float8") else -1)
    elements = max(args.elements_in, args.elements_out)
    return elements * size if size > 0 and 0 <= elements < 1 << 58 else -1


def add_collectives(builder: Builder, lanes: Lanes, events: list[Complete], *, on_device: bool) -> None:
    """Rows of collectives for the kernels, or the operators, that were just added to their table.

    The table that they were added to must hold them last: rows are numbered in the order of adding.
    """
    if on_device:
        wanted = {name for name in set(map(attrgetter("name"), events)) if _KERNEL.search(name)}
    else:
        wanted = {OPERATOR}
    places = [place for place, name in enumerate(map(attrgetter("name"), events)) if name in wanted] if wanted else []
    if not places:
        return
    found = [events[place] for place in places]
    rows = builder.count("kernels" if on_device else "spans") - len(events) + np.asarray(places)
    builder.add(
        "collectives",
        span=-1 if on_device else rows,
        kernel=rows if on_device else -1,
        name=builder.names.rows(event.name for event in found),
        operation=[operation_of(event.args.collective or event.name) for event in found],
        bytes=np.fromiter((message_bytes(event.args) for event in found), np.int64, len(found)),
        communicator=[_communicator(event.args) for event in found],
        rank=np.fromiter((_small(event.args.rank) for event in found), np.int32, len(found)),
        peer=np.fromiter((_small(max(e.args.peer, e.args.peer_to)) for e in found), np.int32, len(found)),
        **(device_rows(found, lanes) if on_device else thread_rows(found, lanes)),
    )


def _communicator(args: Args) -> str:
    digits = bytes(args.communicator).decode("ascii", "replace").strip('"')
    return digits or args.group


def _small(value: int) -> int:
    return value if 0 <= value < 1 << 31 else -1


def link_collectives(trace: Trace) -> Trace:
    """The trace with each collective tied to its operator: the one that was open while its kernel was launched.

    Operators whose kernel was recorded are one collective with it; the others stay only where there is no kernel.
    """
    table = trace.tables["collectives"]
    kernel = trace.array("collectives", "kernel")
    if not len(kernel) or not (kernel >= 0).any():
        return trace
    rows = np.flatnonzero(kernel >= 0)
    span = _operators(trace, kernel[rows])
    columns = {name: table.column(name).take(pa.array(rows)) for name in table.column_names}
    columns["span"] = pa.array(span)
    columns["id"] = pa.array(np.arange(len(rows)))
    made = pa.Table.from_arrays([columns[name] for name in table.column_names], schema=table.schema)
    return replace(trace, tables={**trace.tables, "collectives": made})


def _operators(trace: Trace, kernel: Ints) -> Ints:
    """Row of spans of the operator around each kernel's launch, -1 where there is none."""
    out = np.full(len(kernel), -1, np.int64)
    names = np.flatnonzero(trace.name_rows(lambda name: name == OPERATOR, "text"))
    spans = np.flatnonzero(np.isin(trace.array("spans", "name"), names))
    correlation = trace.array("kernels", "correlation")[kernel]
    calls, keys = pack(
        [
            [trace.array("calls", "process"), trace.array("kernels", "process")[kernel]],
            [trace.array("calls", "correlation"), correlation],
        ]
    )
    call = first_match(calls, keys)
    known = np.flatnonzero((call >= 0) & (correlation >= 0))
    if not len(spans) or not len(known):
        return out
    start = trace.array("spans", "start_ns")[spans]
    end = start + trace.array("spans", "dur_ns")[spans]
    track = trace.array("spans", "track")[spans]
    at = trace.array("calls", "start_ns")[call[known]]
    until = at + trace.array("calls", "dur_ns")[call[known]]
    inside = innermost(
        start, end, track, parents(start, end, track), at, until, trace.array("calls", "track")[call[known]]
    )
    out[known] = np.where(inside >= 0, spans[np.maximum(inside, 0)], -1)
    return out
