"""Unified-memory migrations in all: one row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.model import Trace
from profkit.stats import Arguments, Column, Listing, Report
from profkit.stats._migrations import NO_FAULTS, hexadecimal, migrations, moved
from profkit.stats._summary import known, texts


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = migrations(trace)
    rows = min(len(found.dur), 1)
    one = np.zeros(len(found.dur), np.int64)
    htod, dtoh = (moved(found, one, rows, to_device) for to_device in (True, False))
    addresses = found.address[found.address != -1]
    lowest, highest = (int(addresses.min()), int(addresses.max())) if len(addresses) else (-1, -1)
    columns = [
        (Column("Total HtoD Migration Size (MB)", "total_htod_bytes", 3, 10**6), known(*htod)),
        (Column("Total DtoH Migration Size (MB)", "total_dtoh_bytes", 3, 10**6), known(*dtoh)),
        (Column("Total CPU Page Faults", "total_cpu_page_faults"), pa.nulls(rows, pa.int64())),
        (Column("Total GPU PageFaults", "total_gpu_page_faults"), pa.nulls(rows, pa.int64())),
        (Column("Minimum Virtual Address", "minimum_virtual_address"), texts([hexadecimal(lowest)] * rows)),
        (Column("Maximum Virtual Address", "maximum_virtual_address"), texts([hexadecimal(highest)] * rows)),
    ]
    remarks = (NO_FAULTS,) if rows else ()
    return Listing(tuple(column for column, _ in columns), tuple(values for _, values in columns), remarks)


REPORT = Report(
    name="um_total_sum",
    former_name="unifiedmemorytotals",
    title="Unified Memory Totals Summary",
    what="unified-memory migrations",
    tables=("copies",),
    build=build,
    place=8,
)
