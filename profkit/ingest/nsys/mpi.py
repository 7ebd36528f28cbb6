"""MPI calls of an nsys export as ranges of the domain MPI, which is what exports before schema 3 have them as."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit.builder import Builder
from profkit.ingest.nsys.host import name_codes
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.rows import TIMES, absent, event_rows, keep_rows, time_columns
from profkit.ingest.nsys.source import Source, ints, name_ids
from profkit.ingest.nsys.spans import add_spans
from profkit.model import Array
from profkit.schema import PAYLOAD_KINDS, SPAN_KINDS

DOMAIN = "MPI"
TABLES = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
_COLUMNS = {
    **TIMES,
    "globalTid": ints("globalTid"),
    "name": name_ids("textId", "nameId", required=True),
    "size": ints("size", "sendSize", "collSendSize"),
    "received": ints("recvSize", "collRecvSize"),
}


def read_mpi(source: Source, builder: Builder, identity: Identity) -> None:
    """The payload of a range is its message size in bytes: what is sent, or else received."""
    for table in TABLES:
        rows = event_rows(source, table, _COLUMNS)
        if rows is None:
            continue
        if table == "MPI_START_WAIT_EVENTS":
            rows = _once(rows)
        tid = rows.pop("globalTid", absent(rows))
        track = identity.threads(tid)
        size = _size(rows)
        identity.processes(tid)
        add_spans(
            builder,
            **time_columns(rows),
            kind=np.full(len(tid), SPAN_KINDS.index("push_pop"), np.int8),
            name=name_codes(source, builder, rows["name"]),
            domain=np.full(len(tid), builder.names.row(DOMAIN), np.int64),
            category=np.full(len(tid), -1, np.int64),
            track=track,
            end_track=track,
            payload_kind=np.where(size >= 0, PAYLOAD_KINDS.index("int"), 0).astype(np.int8),
            payload_int=size,
        )


def _size(rows: dict[str, Any]) -> Array:
    sent, received = rows.get("size", absent(rows)), rows.get("received", absent(rows))
    size: Array = np.where(sent >= 0, sent, received)
    return size


def _once(rows: dict[str, Any]) -> dict[str, Any]:
    """A call that waits for several requests has a row for each: one call is one range."""
    key = np.stack([rows["start"], rows["dur"], rows.get("globalTid", absent(rows))])
    _, first = np.unique(key, axis=1, return_index=True)
    keep = np.zeros(len(rows["start"]), bool)
    keep[first] = True
    return keep_rows(rows, keep)
