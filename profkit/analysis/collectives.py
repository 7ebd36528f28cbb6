"""Who came last to each collective, and how long the others waited for it.

A collective's kernel runs on each rank from the rank's arrival to the common end, so that the last to arrive has the
shortest kernel. The n-th collective of one communicator is one collective on all of its ranks. Nothing is said where
ranks have clocks that were never aligned, and no time below the uncertainty of the alignment is known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.arrays import key_of, numbered
from profkit.collective_order import Numbered, number_collectives
from profkit.model import Array, Ints, Mask, Trace, Window

NOT_ALIGNED = "clocks of its ranks are not aligned"
UNEVEN = "its ranks recorded different numbers of it"
APART = "it ended on one rank before it began on another: no such collective, or the clocks do not agree"


@dataclass(frozen=True)
class Arrivals:
    """Matched collectives in order of their last arrival, one entry each; times in ns, -1 where not known.

    ``series`` is a row of ``labels`` (communicator, operation, name); ``members`` is the number of ranks. ``last`` is
    the member that came last, -1 where two came within ``error_ns`` of each other. ``wait_ns`` is from the first
    arrival to the last, ``waited_ns`` the sum over all members, ``transfer_ns`` from the last arrival to the last end.

    ``row``, ``of``, ``member`` and ``member_wait_ns`` have an entry a member and collective: the row of
    ``collectives``, the entry here, the member, and how long it waited.
    """

    labels: pa.Table
    series: Ints
    number: Ints
    members: Ints
    start_ns: Ints
    end_ns: Ints
    last: Ints
    wait_ns: Ints
    waited_ns: Ints
    transfer_ns: Ints
    error_ns: Ints
    row: Ints
    of: Ints
    member: Ints
    member_wait_ns: Ints
    member_process: Ints
    """Row of processes of each member."""
    member_device: Ints
    """Row of devices of each member."""
    left_out: dict[str, int]
    """Why collectives of several ranks were not matched, with their number."""

    def __len__(self) -> int:
        return len(self.series)

    def within(self, window: Window) -> Mask:
        """Which of them had their last arrival in a window."""
        arrived = self.start_ns
        mask: Mask = (arrived >= window.start_ns) & (arrived < window.end_ns)
        return mask


@dataclass(frozen=True)
class Straggler:
    """A member that came last ``count`` times ``of`` the collectives it took part in with a known last one."""

    member: int
    count: int
    of: int


def find_arrivals(trace: Trace) -> Arrivals:
    """Match the collectives of a trace across its ranks."""
    found = number_collectives(trace)
    reasons: Counter[str] = Counter()
    error, usable = _errors(trace, found, reasons)
    rows = np.flatnonzero(usable)
    _, _, group = numbered(key_of(found.series[rows], found.number[rows]))
    order = np.lexsort((found.start[rows], group))
    rows, group = rows[order], group[order]
    rows = rows[_ends_together(found, rows, group, error, reasons)]
    _, _, group = numbered(key_of(found.series[rows], found.number[rows]))
    return _measured(found, rows, group, error, dict(reasons))


def _errors(trace: Trace, found: Numbered, reasons: Counter[str]) -> tuple[Ints, Mask]:
    """(uncertainty of times between the members of each series, entries whose series can be matched).

    Each host is known to its own error against the first one: two of them to the sum.
    """
    _, first, inverse = numbered(key_of(found.series, found.member))
    series, count = found.series[first], np.bincount(inverse, minlength=len(first))
    size = found.labels.num_rows
    begins = np.flatnonzero(np.diff(series, prepend=-1))
    members = np.bincount(series, minlength=size)
    fewest, most = np.zeros(size, np.int64), np.zeros(size, np.int64)
    if len(begins):
        fewest[series[begins]] = np.minimum.reduceat(count, begins)
        most[series[begins]] = np.maximum.reduceat(count, begins)
    error, aligned = _host_errors(trace, found, size)
    several = members > 1
    for reason, left in ((NOT_ALIGNED, several & ~aligned), (UNEVEN, several & aligned & (fewest != most))):
        if left.any():
            reasons[reason] = int(most[left].sum())
    return error, (several & aligned & (fewest == most))[found.series]


def _host_errors(trace: Trace, found: Numbered, size: int) -> tuple[Ints, Mask]:
    """(sum of the two largest errors of the hosts of each series, 0 with one host; whether all were aligned)."""
    known_to = np.append(trace.array("hosts", "offset_error_ns"), -1)
    _, first, _ = numbered(key_of(found.series, found.host))
    series, known_to = found.series[first], known_to[found.host[first]]
    order = np.lexsort((-known_to, series))
    series, known_to = series[order], known_to[order]
    hosts = np.bincount(series, minlength=size)
    place = np.arange(len(series)) - (np.cumsum(hosts) - hosts)[series]
    error = np.zeros(size, np.int64)
    largest = (place < 2) & (hosts[series] > 1)
    np.add.at(error, series[largest], known_to[largest])
    never = np.bincount(series[known_to < 0], minlength=size) > 0
    aligned: Mask = ~never | (hosts < 2)
    return error, aligned


def _ends_together(found: Numbered, rows: Ints, group: Ints, error: Ints, reasons: Counter[str]) -> Mask:
    """Entries of collectives that end on no member before they began on all; entries are in order of group and start.

    Of communicators that the source does not tell apart, those that fit by number alone fall out here.
    """
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    if not len(begins):
        return np.zeros(0, bool)
    lasts = np.append(begins[1:], len(rows)) - 1
    fits = np.minimum.reduceat(found.end[rows], begins) >= found.start[rows][lasts] - error[found.series[rows[begins]]]
    if not fits.all():
        reasons[APART] += int((~fits).sum())
    mask: Mask = np.repeat(fits, np.diff(np.append(begins, len(rows))))
    return mask


def _measured(found: Numbered, rows: Ints, group: Ints, error: Ints, left_out: dict[str, int]) -> Arrivals:
    """Arrivals of entries in order of group and start."""
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    members = np.diff(np.append(begins, len(rows)))
    lasts = begins + members - 1
    start, end = found.start[rows], found.end[rows]
    known_to = error[found.series[rows[begins]]]
    arrived, came_first = start[lasts], start[begins]
    waits = np.repeat(arrived, members) - start
    told_apart = arrived - start[np.maximum(lasts - 1, 0)] > known_to
    ended = np.maximum.reduceat(end, begins) if len(begins) else end
    order = np.argsort(arrived, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    _, first, _ = numbered(found.member)
    waited = np.add.reduceat(waits, begins) if len(begins) else waits

    def known(values: Array) -> Ints:
        return np.where(arrived - came_first >= known_to, values, -1)[order]

    return Arrivals(
        labels=found.labels,
        series=found.series[rows[begins]][order],
        number=found.number[rows[begins]][order],
        members=members[order],
        start_ns=arrived[order],
        end_ns=ended[order],
        last=np.where(told_apart, found.member[rows[lasts]], -1)[order],
        wait_ns=known(arrived - came_first),
        waited_ns=known(waited),
        transfer_ns=np.where(ended - arrived >= known_to, ended - arrived, -1)[order],
        error_ns=known_to[order],
        row=found.row[rows],
        of=place[np.repeat(np.arange(len(begins)), members)],
        member=found.member[rows],
        member_wait_ns=np.where(waits >= np.repeat(known_to, members), waits, -1),
        member_process=found.process[first].astype(np.int64),
        member_device=found.device[first].astype(np.int64),
        left_out=left_out,
    )


def stragglers(arrivals: Arrivals, among: Mask | None = None) -> list[Straggler]:
    """Members that ever came last, ``among`` these collectives or all, most often first."""
    size = len(arrivals.member_process)
    told = arrivals.last >= 0
    if among is not None:
        told &= among
    count = np.bincount(arrivals.last[told], minlength=size)
    of = np.bincount(arrivals.member[told[arrivals.of]], minlength=size)
    order = np.lexsort((np.arange(size), -count))
    return [Straggler(int(i), int(count[i]), int(of[i])) for i in order if count[i]]


def member_name(trace: Trace, arrivals: Arrivals, member: int) -> str:
    """``rank 3``, where the trace says ranks and one process has one GPU; else the process and its GPU's number."""
    process = int(arrivals.member_process[member])
    device = int(arrivals.member_device[member])
    rank = int(trace.array("processes", "rank")[process]) if process >= 0 else -1
    if rank >= 0 and int((arrivals.member_process == process).sum()) == 1:
        return f"rank {rank}"
    pid = f"process {int(trace.array('processes', 'pid')[process])}, " if process >= 0 else ""
    return f"{pid}GPU {device}"


def collective_facts(analysis: Analysis) -> dict[str, Any] | None:
    """What ``check --json`` says of the collectives whose last arrival is inside what is selected; None without any.

    ``ranks`` has who came last, most often first. Medians are nearest rank, over those that are known; None without.
    """
    trace = analysis.trace
    if not trace.rows("collectives"):
        return None
    arrivals = find_arrivals(trace)
    if not len(arrivals) and not arrivals.left_out:
        return None
    inside = np.ones(len(arrivals), bool) if analysis.selected is None else arrivals.within(analysis.selected)
    wait, transfer = (values[inside & (values >= 0)] for values in (arrivals.wait_ns, arrivals.transfer_ns))
    return {
        "matched": int(inside.sum()),
        "not_matched": why_not_matched(arrivals),
        "wait_p50_ns": percentile(wait, 50),
        "wait_sum_ns": int(wait.sum()) if len(wait) else None,
        "transfer_p50_ns": percentile(transfer, 50),
        "error_ns": int(arrivals.error_ns[inside].max()) if inside.any() else None,
        "ranks": [
            {"rank": member_name(trace, arrivals, found.member), "came_last": found.count, "of": found.of}
            for found in stragglers(arrivals, inside)
        ],
        "waits": _waits(analysis, arrivals, inside),
    }


def _waits(analysis: Analysis, arrivals: Arrivals, inside: Mask) -> list[dict[str, Any]]:
    """How long the collectives of each device waited for their last rank, as a part of its busy time: a device that
    waits in a collective is busy, and does nothing for it."""
    mine = inside[arrivals.of] & (arrivals.member_wait_ns >= 0)
    device, wait = arrivals.member_device[arrivals.member[mine]], arrivals.member_wait_ns[mine]
    busy = {time.device: time.busy_ns for time in analysis.devices}
    out = []
    for row in np.unique(device).tolist():
        total = int(wait[device == row].sum())
        share = min(total / busy[row], 1.0) if busy.get(row) else None
        out.append(
            {"device": row, "number": int(analysis.device_number[row]), "wait_ns": total, "share_of_busy": share}
        )
    return out


def why_not_matched(arrivals: Arrivals) -> list[str]:
    """One sentence a reason."""
    return [f"{text.count(count, 'collective')} not matched: {reason}" for reason, count in arrivals.left_out.items()]
