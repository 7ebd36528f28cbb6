"""From the tables of an nsys export, whatever holds them, to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from profkit.builder import Builder
from profkit.ingest.nsys import capture, device, host, spans
from profkit.ingest.nsys.identity import Identity
from profkit.ingest.nsys.source import DamagedTable, Source
from profkit.model import Trace


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
    Step("calls", host.read_calls, needed=True),
    Step("syncs", host.read_syncs),
    Step("spans", spans.read_spans),
    Step("os_calls", host.read_os_calls),
    Step("overheads", host.read_overheads),
)


def read_source(source: Source) -> Trace:
    """Read all tables. A damaged table that no number of the GPU rests on is left out, said, and marks the trace partial.

    Raises InputError for a damaged table that is needed, and for a needed column that is missing.
    """
    builder = Builder()
    identity = Identity(source, builder)
    partial = False
    for step in STEPS:
        try:
            step.read(source, builder, identity)
        except DamagedTable as error:
            if step.needed or error.table == "StringIds":
                raise
            partial = True
            builder.warnings.append(f"{error.message}: not read")
            builder.miss(step.table, f"the table {error.table} of this export is damaged")
    meta = capture.read_meta(source)
    capture.say_what_is_missing(source, builder, meta.captured)
    meta = replace(meta, partial=partial or source.partial, warnings=(*meta.warnings, *source.warnings))
    return builder.finish(meta)
