"""Which number a device goes by, and a trace cut down to one device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.errors import InputError
from profkit.model import Ints, Trace
from profkit.schema import DEVICE_TABLES


def device_numbers(trace: Trace) -> Ints:
    """The number of each row of devices: its CUDA ordinal where ordinals tell devices apart, otherwise its row.

    Processes that see one GPU each all call theirs 0: then only the row tells them apart. A device without a lane, the
    far side of a copy, has the smallest number that is left.
    """
    count = trace.rows("devices")
    device, ordinal = trace.array("tracks", "device"), trace.array("tracks", "ordinal")
    seen = np.unique(np.stack([device, ordinal])[:, (device >= 0) & (ordinal >= 0)], axis=1)
    numbers = np.arange(count)
    if len(np.unique(seen[0])) == len(np.unique(seen[1])) == len(seen[0]):
        others = np.setdiff1d(numbers, seen[0])
        numbers[seen[0]] = seen[1]
        numbers[others] = np.setdiff1d(np.arange(count + len(seen[1])), seen[1])[: len(others)]
    return numbers


def only_device(trace: Trace, number: int) -> Trace:
    """The trace with the rows of one device; all other tables stay.

    Raises InputError for a device without rows: it names those that have kernels, and how many.
    """
    numbers = device_numbers(trace)
    device = trace.array("tracks", "device")
    rows = {table: device[trace.array(table, "track")] for table in DEVICE_TABLES}
    at = np.flatnonzero(numbers == number)
    if not len(at) or not any((of == at[0]).any() for of in rows.values()):
        counts = np.bincount(rows["kernels"][rows["kernels"] >= 0], minlength=len(numbers))
        having = sorted((int(numbers[row]), int(n)) for row, n in enumerate(counts) if n)
        listed = ", ".join(f"{device} ({n})" for device, n in having) or "none"
        raise InputError(f"no kernels on device {number}; devices with kernels: {listed}")
    tables = dict(trace.tables)
    for table, of in rows.items():
        tables[table] = tables[table].filter(of == at[0])
    kept = np.flatnonzero(rows["kernels"] == at[0])
    moved = np.full(len(rows["kernels"]) + 1, -1, np.int64)
    moved[kept] = np.arange(len(kept))
    collectives = tables["collectives"]
    place = collectives.schema.get_field_index("kernel")
    tables["collectives"] = collectives.set_column(
        place, collectives.schema.field(place), [moved[trace.array("collectives", "kernel")]]
    )
    return replace(trace, tables=tables)
