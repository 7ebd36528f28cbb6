"""The clocks of several captures, brought onto one by the ends of their collectives.

The n-th collective of one communicator ends at the same real time on all of its ranks: the median difference of the
ends is the offset between two clocks, half of the range of the differences its uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from profkit import text
from profkit.arrays import key_of, numbered
from profkit.collective_order import number_collectives, series_keys
from profkit.model import Ints, Trace

FEWEST_MATCHES = 3
"""With fewer there is no telling a clock's offset from one odd collective."""
MOST_SPREAD_NS = 1_000_000
"""Uncertainty beyond which no offset is believed.

The ranks of one collective leave it within microseconds of each other, and a clock that drifts by 50 ppm is 1 ms off
after 20 s: a wider spread means that other collectives were taken for each other, or that a clock was set meanwhile.
"""

ONE_CLOCK_NS = 10_000
"""Up to here a difference may be that of the ranks and not of their clocks: one leaves a collective after the other."""


@dataclass(frozen=True)
class Ends:
    """Ends of the collectives that one clock saw, in trace time, and the source's own time at which that begins, ns.

    ``series`` has the key of each; within a series they are in order.
    """

    base_ns: int
    series: pa.ChunkedArray
    end: Ints

    def continued(self, later: Ends) -> Ends:
        """With those of a later capture that the same clock timed."""
        series = pa.chunked_array([*self.series.chunks, *later.series.chunks], pa.string())
        return Ends(self.base_ns, series, np.concatenate([self.end, later.end + (later.base_ns - self.base_ns)]))


@dataclass(frozen=True)
class _Clock:
    """:class:`Ends` with numbers for the series of all clocks, by series and in order; ``count`` is by series."""

    base_ns: int
    code: Ints
    end: Ints
    count: Ints


@dataclass(frozen=True)
class Alignment:
    """``offset_ns`` is added to the source's own times to reach the first clock's, known to ``error_ns``.

    ``error_ns`` is -1 where the clock could not be aligned; ``reason`` says why. ``matched`` is the number of
    collectives that it rests on.
    """

    offset_ns: int = 0
    error_ns: int = -1
    matched: int = 0
    reason: str = ""


def ends_of(trace: Trace, base_ns: int) -> Ends:
    """The collectives of one capture. Of several GPUs that share a series the first stands for all.

    A series that they hold in different numbers is left out.
    """
    found = number_collectives(trace)
    order = np.lexsort((found.number, found.member, found.series))
    series, member = found.series[order], found.member[order]
    count = np.bincount(series, minlength=found.labels.num_rows)
    first_of = np.full(len(count), np.iinfo(np.int64).max)
    np.minimum.at(first_of, series, member)
    of_first = np.bincount(series[member == first_of[series]], minlength=len(count))
    pair = numbered(key_of(series, member))
    sizes = np.bincount(pair[2], minlength=len(pair[1]))
    even = np.ones(len(count), bool)
    owner = series[pair[1]]
    even[owner[sizes != of_first[owner]]] = False
    keep = (member == first_of[series]) & even[series]
    return Ends(base_ns, series_keys(found.labels).take(pa.array(series[keep])), found.end[order][keep])


def align(ends: Sequence[Ends]) -> list[Alignment]:
    """Alignment of each clock to the first one: directly, else through clocks that are aligned, errors added up.

    Where none can be aligned the first is not either: there is nothing to be aligned to.
    """
    clocks, words = _coded(ends)
    out = [Alignment() for _ in clocks]
    reached = [0]
    waiting = list(range(1, len(clocks)))
    for known in reached:  # grows while it is walked: nearest clocks first
        for other in list(waiting):
            found = _compared(clocks[known], clocks[other], words)
            if found.error_ns < 0:
                out[other] = found if known == 0 else out[other]
                continue
            base = out[known] if known else Alignment(error_ns=0)
            out[other] = replace(
                found, offset_ns=found.offset_ns + base.offset_ns, error_ns=found.error_ns + base.error_ns
            )
            waiting.remove(other)
            reached.append(other)
    if len(reached) > 1:
        out[0] = Alignment(error_ns=0)
    return out


def _coded(ends: Sequence[Ends]) -> tuple[list[_Clock], pa.Array]:
    """(the clocks, the key of each series)."""
    chunks = [pa.concat_arrays([pa.array([], pa.string()), *clock.series.chunks]) for clock in ends]
    encoded = pa.concat_arrays(chunks).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    out = []
    for clock, code in zip(ends, np.split(codes, np.cumsum([len(chunk) for chunk in chunks])[:-1]), strict=True):
        order = np.argsort(code, kind="stable")
        count = np.bincount(code, minlength=len(encoded.dictionary))
        out.append(_Clock(clock.base_ns, code[order], clock.end[order], count))
    return out, encoded.dictionary


def _compared(first: _Clock, other: _Clock, words: pa.Array) -> Alignment:
    """What is added to the times of ``other`` to reach those of ``first``; an error of -1 with the reason.

    Clocks that differ by no more than the uncertainty, or than ranks leave a collective one after the other, are taken
    for one clock (that of one machine, or kept together): the offset is 0, its error the largest difference.
    """
    same = first.count == other.count
    differences = np.sort(first.end[same[first.code]] - other.end[same[other.code]])
    matched = len(differences)
    if matched < FEWEST_MATCHES:
        return Alignment(matched=matched, reason=_too_few(first, other, words, matched))
    low, high = int(differences[0]), int(differences[-1])
    error = (high - low + 1) // 2
    if error > MOST_SPREAD_NS:
        reason = (
            f"the offsets that {text.count(matched, 'collective')} give lie {text.ns(high - low)} apart, and no more "
            f"than {text.ns(2 * MOST_SPREAD_NS)} is credible: a clock was set, or other ones were recorded"
        )
        return Alignment(matched=matched, reason=reason)
    apart = first.base_ns - other.base_ns
    middle = (int(differences[(matched - 1) // 2]) + int(differences[matched // 2])) // 2 + apart
    if abs(middle) <= max(error, ONE_CLOCK_NS):
        return Alignment(0, max(abs(low + apart), abs(high + apart)), matched)
    return Alignment(middle, error, matched)


def _too_few(first: _Clock, other: _Clock, words: pa.Array, matched: int) -> str:
    common = (first.count > 0) & (other.count > 0)
    if not common.any():
        return "no collective of a communicator that both recorded"
    uneven = np.flatnonzero(common & (first.count != other.count))
    if len(uneven):
        operation = str(words[int(uneven[0])].as_py()).split("\x1f")[1]
        return (
            f"one recorded {int(first.count[uneven[0]]):,} and the other {int(other.count[uneven[0]]):,} collectives "
            f"({operation}): which of them belong together is not known"
        )
    return f"{text.count(matched, 'collective matches', 'collectives match')}, {FEWEST_MATCHES} are needed"
