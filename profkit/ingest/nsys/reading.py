"""From the tables of an nsys export, whatever holds them, to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from profkit.builder import Builder
from profkit.errors import InputError
from profkit.ingest.nsys import (
    capture,
    collectives,
    counters,
    coverage,
    cuda_events,
    device,
    host,
    mpi,
    sampling,
    spans,
)
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.payloads import Payloads
from profkit.ingest.nsys.source import DamagedTable, MissingColumn, Source
from profkit.model import RunMeta, Trace

_FIRST_UTC_NS = 1_000_000_000_000_000_000
"""No session is that long (31 years): such times are UTC, whatever the export says of them."""


@dataclass(frozen=True)
class Step:
    """Reads the rows of one table of a Trace. Where ``needed``, damage ends the reading."""

    table: str
    read: Callable[[Source, Builder, Identity], object]
    needed: bool = False


STEPS = (
    Step("kernels", device.read_kernels, needed=True),
    Step("copies", device.read_copies, needed=True),
    Step("graphs", device.read_graphs, needed=True),
    Step("calls", host.read_calls),
    Step("syncs", host.read_syncs),
    Step("spans", spans.read_spans),
    Step("spans", mpi.read_mpi),
    Step("os_calls", host.read_os_calls),
    Step("overheads", host.read_overheads),
    Step("gpu_events", cuda_events.read_gpu_events),
    Step("graph_events", cuda_events.read_graph_events),
    Step("allocs", cuda_events.read_allocs),
    Step("counters", counters.read_gpu_metrics),
    Step("sched", sampling.read_sched),
    Step("samples", sampling.read_samples),
)
"""In this order: synchronisations and events look for their calls, samples for processes that have other events."""


def read_source(source: Source) -> Trace:
    """Read all tables. A damaged one that no number of the GPU rests on is left out and said: the trace is partial.

    Raises InputError for a damaged table that is needed, and for a needed column that is missing.
    """
    about = capture.read_capture(source)
    builder = Builder()
    identity = Identity(source, builder)
    partial = False
    payloads: Payloads | None = None
    for step in STEPS:
        try:
            made = step.read(source, builder, identity)
            payloads = made if isinstance(made, Payloads) else payloads
        except MissingColumn as error:
            newer = capture.newer_schema(about.meta.extra.get("schema_version", ""))
            raise InputError("; ".join(filter(None, (error.message, newer)))) from None
        except DamagedTable as error:
            if step.needed or error.table == "StringIds":
                raise
            partial = True
            builder.warnings.append(f"{error.message}: not read")
            builder.miss(step.table, f"the table {error.table} of this export is damaged")
    collectives.add_collectives(builder, payloads)
    coverage.say_what_is_missing(source, builder, about)
    coverage.say_which_processes_lack_rows(builder)
    meta = _with_clock(about, builder)
    meta = replace(meta, partial=partial or source.partial, warnings=(*meta.warnings, *source.warnings))
    builder.host_names += about.hosts
    return builder.finish(meta)


def _with_clock(about: capture.Capture, builder: Builder) -> RunMeta:
    """Session times stay as they are, so that a number is found again in the Nsight GUI; UTC is counted from the first
    event."""
    if about.shift_ns:
        builder.notes.append(f"times were shifted by {about.shift_ns} ns at export")
    if not about.absolute and builder.earliest() < _FIRST_UTC_NS:
        return about.meta
    origin = builder.shift_to_origin()
    builder.set_dimension("hosts", 0, clock="realtime")
    return replace(about.meta, origin_ns=origin, utc_ns=origin - about.shift_ns, clock="realtime")
