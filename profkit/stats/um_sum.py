"""Unified-memory migrations by virtual address, the fastest first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profkit.arrays import numbered
from profkit.model import Trace
from profkit.stats import ROWS, Arguments, Column, Listing, Report
from profkit.stats._migrations import NO_FAULTS, hexadecimal, migrations, moved
from profkit.stats._summary import known, texts

_NS_PER_S = 1_000_000_000


def build(trace: Trace, arguments: Arguments) -> Listing:
    found = migrations(trace)
    addresses, _, codes = numbered(found.address)
    groups = len(addresses)
    htod, dtoh = (moved(found, codes, groups, to_device) for to_device in (True, False))
    dur = np.zeros(groups, np.int64)
    np.add.at(dur, codes, found.dur)
    # Whole numbers of such migrations in a second, as in cuda_gpu_trace: coarse, and 0 beyond a second.
    rate = (htod[0] + dtoh[0]).astype(np.float64) * (_NS_PER_S // np.maximum(dur, 1))
    order = np.lexsort((addresses, -np.where(dur > 0, rate, -1)))[: arguments.rows]
    columns = [
        (Column("Virtual Address", "virtual_address"), texts(map(hexadecimal, addresses[order].tolist()))),
        (Column("HtoD Migration size (MB)", "htod_bytes", 3, 10**6), known(htod[0][order], htod[1][order])),
        (Column("DtoH Migration size (MB)", "dtoh_bytes", 3, 10**6), known(dtoh[0][order], dtoh[1][order])),
        (Column("CPU Page Faults", "cpu_page_faults"), pa.nulls(len(order), pa.int64())),
        (Column(" GPU Page Faults", "gpu_page_faults"), pa.nulls(len(order), pa.int64())),
        (
            Column("Migration Throughput (MB/s)", "throughput_bytes_per_s", 3, 10**6),
            known(rate[order], dur[order] <= 0),
        ),
    ]
    remarks = (NO_FAULTS,) if groups else ()
    if groups > len(order):
        remarks = (*remarks, f"{len(order)} of {groups:,} addresses listed: more with um_sum:rows={groups}")
    return Listing(tuple(column for column, _ in columns), tuple(values for _, values in columns), remarks)


REPORT = Report(
    name="um_sum",
    former_name="unifiedmemory",
    title="Unified Memory Analysis Summary",
    what="unified-memory migrations",
    tables=("copies",),
    build=build,
    arguments=ROWS,
    place=7,
)
