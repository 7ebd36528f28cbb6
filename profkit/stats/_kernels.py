"""What several reports say of kernels: their launch calls, sizes as text, names of calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.arrays import first_match, key_of, numbered, pack
from profkit.model import Array, Ints, Trace
from profkit.stats._summary import whole_rows


@dataclass(frozen=True)
class Launches:
    """Kernels with their launch calls, by row: both were seen from start to end."""

    kernel: Ints
    call: Ints
    call_start: Ints
    call_end: Ints
    kernel_start: Ints
    kernel_end: Ints
    remarks: tuple[str, ...]
    """How many kernels have no call, or are not whole."""


def launches(trace: Trace) -> Launches:
    """Kernels joined to the call with their correlation id in their process: one call may own many."""
    whole, remarks = whole_rows(trace, "kernels")
    whole_calls, more = whole_rows(trace, "calls")
    call = calls_of(trace, "kernels")
    known = whole & (call >= 0)
    if known.any():
        known &= whole_calls[np.maximum(call, 0)]
    without = int((whole & ~known).sum())
    if without:
        said = "kernel left out: its launch was not recorded", "kernels left out: their launches were not recorded"
        remarks = (*remarks, text.count(without, *said))
    kernel = np.flatnonzero(known)
    call = call[kernel]
    call_start = trace.array("calls", "start_ns")[call]
    kernel_start = trace.array("kernels", "start_ns")[kernel]
    return Launches(
        kernel=kernel,
        call=call,
        call_start=call_start,
        call_end=call_start + trace.array("calls", "dur_ns")[call],
        kernel_start=kernel_start,
        kernel_end=kernel_start + trace.array("kernels", "dur_ns")[kernel],
        remarks=(*remarks, *more),
    )


def calls_of(trace: Trace, table: str) -> Ints:
    """For each device row the row of the call that caused it, -1 where none was recorded."""
    process, correlation = trace.array(table, "process"), trace.array(table, "correlation")
    of_call, of_row = pack(
        [[trace.array("calls", "process"), process], [trace.array("calls", "correlation"), correlation]]
    )
    return np.where((process >= 0) & (correlation >= 0), first_match(of_call, of_row), -1)


def sizes(trace: Trace, what: str, kernels: Ints) -> tuple[Ints, list[str]]:
    """Grid or block sizes of kernels as codes, and the text of each code; empty where a size is not known."""
    columns = [trace.array("kernels", f"{what}_{axis}")[kernels] for axis in "xyz"]
    _, first, codes = numbered(key_of(*columns))
    distinct = zip(*(column[first].tolist() for column in columns), strict=True)
    return codes, ["" if min(size) < 0 else " ".join(f"{side:4}" for side in size) for size in distinct]


def threads(trace: Trace, tracks: Array) -> tuple[Ints, Ints]:
    """(process id, thread id) of host lanes, -1 where not known, and for lane -1."""
    process = np.append(trace.array("tracks", "process"), -1)[tracks]
    pid = np.append(trace.array("processes", "pid"), -1)[process]
    return pid, np.append(trace.array("tracks", "tid"), -1)[tracks]


def ordinals(trace: Trace, kernels: Ints) -> Ints:
    """CUDA ordinal, in its process, of the device that ran each kernel; -1 where not known."""
    ordinal: Ints = np.append(trace.array("tracks", "ordinal"), -1)[trace.array("kernels", "track")[kernels]]
    return ordinal
