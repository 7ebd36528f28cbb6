"""CPU samples with their call stacks, and scheduling, of the processes that have other events.

A system-wide capture samples every program of the machine; threads of programs that nothing else is known of are left
out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from profkit.arrays import numbered
from profkit.builder import Builder
from profkit.ingest.nsys.host import name_codes
from profkit.ingest.nsys.identity import PROCESS_MASK, Identity
from profkit.ingest.nsys.rows import LATEST_NS
from profkit.ingest.nsys.source import Source, ints, name_ids, small, string_ids, times
from profkit.model import Array

SCHED = "SCHED_EVENTS"
SAMPLES = "COMPOSITE_EVENTS"
CALLCHAINS = "SAMPLING_CALLCHAINS"
_SCHED = {
    "time": times("start", required=True),
    "tid": ints("globalTid", required=True),
    "cpu": small("cpu"),
    "running": small("isSchedIn", required=True),
}
_SAMPLE = {"time": times("start", required=True), "tid": ints("globalTid", required=True), "id": ints("id")}
_FRAME = {
    "stack": ints("id", required=True),
    "depth": small("stackDepth"),
    "symbol": name_ids("symbol", required=True),
    "module": name_ids("module"),
}


def read_sched(source: Source, builder: Builder, identity: Identity) -> None:
    rows = _known_rows(source.fetch(SCHED, _SCHED), identity, builder)
    if rows is not None:
        builder.add(
            "sched",
            time_ns=rows["time"],
            track=identity.threads(rows["tid"]),
            cpu=rows.get("cpu"),
            running=rows["running"] == 1,
        )


def read_samples(source: Source, builder: Builder, identity: Identity) -> None:
    """Samples and the frames of their stacks; a sample's number is its stack's."""
    rows = _known_rows(source.fetch(SAMPLES, _SAMPLE), identity, builder)
    if rows is None:
        return
    stacks = rows.get("id", np.full(len(rows["time"]), -1, np.int64))
    frames = source.fetch(CALLCHAINS, _FRAME)
    kept = np.zeros(0, np.int64)
    if frames is not None:
        mine = np.isin(frames["stack"], stacks)
        frames = {key: values[mine] for key, values in frames.items()}
        kept = np.unique(frames["stack"])
        order = np.lexsort((frames.get("depth", frames["stack"]), frames["stack"]))
        builder.add(
            "stacks",
            stack=frames["stack"][order],
            depth=frames["depth"][order] if "depth" in frames else None,
            name=name_codes(source, builder, frames["symbol"][order]),
            module=_texts(source, frames["module"][order]) if "module" in frames else None,
        )
    stacks = np.where(np.isin(stacks, kept), stacks, -1)
    builder.add("samples", time_ns=rows["time"], track=identity.threads(rows["tid"]), stack=stacks)


def _known_rows(rows: dict[str, Any] | None, identity: Identity, builder: Builder) -> dict[str, Any] | None:
    """Rows with a time, of processes that are known by other events (of all, if none is), in order of time."""
    if rows is None or not len(rows["time"]):
        return None
    distinct, _, inverse = numbered(rows["tid"] & PROCESS_MASK)
    any_known = builder.count("processes") > 0
    known = np.fromiter((identity.knows_process(int(g)) or not any_known for g in distinct), bool, len(distinct))
    keep = np.flatnonzero(known[inverse] & (np.abs(rows["time"]) < LATEST_NS))
    keep = keep[np.argsort(rows["time"][keep], kind="stable")]
    return {key: values[keep] for key, values in rows.items()} if len(keep) else None


def _texts(source: Source, ids: Array) -> pa.Array:
    distinct, _, inverse = numbered(ids)
    texts = string_ids(source, [distinct])
    words = pa.array([texts[i] if i >= 0 else "" for i in distinct.tolist()], pa.string())
    return words.take(pa.array(inverse))
