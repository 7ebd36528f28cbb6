"""The clocks of several captures, brought onto one by the ends of their collectives.

The n-th collective of one communicator ends at the same real time on all of its ranks: the median difference of the
ends is the offset between two clocks, half of the range of the differences its uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profkit import text
from profkit.collective_order import number_collectives
from profkit.model import Ints, Trace

FEWEST_MATCHES = 3
"""With fewer there is no telling a clock's offset from one odd collective."""
MOST_SPREAD_NS = 1_000_000
"""Uncertainty beyond which no offset is believed.

The ranks of one collective leave it within microseconds of each other, and a clock that drifts by 50 ppm is 1 ms off
after 20 s: a wider spread means that other collectives were taken for each other, or that a clock was set meanwhile.
"""

Series = tuple[str, str, str]


@dataclass(frozen=True)
class Ends:
    """Ends of the collectives that one clock saw, by series, and the time of the source at which its trace begins, ns.

    ``ends`` are in trace time; ``host`` is the name of the machine, "" if not known.
    """

    base_ns: int
    ends: Mapping[Series, Ints]
    host: str = ""

    def continued(self, later: Ends) -> Ends:
        """With those of a later capture that the same clock timed."""
        apart = later.base_ns - self.base_ns
        ends = dict(self.ends)
        for label, times in later.ends.items():
            ends[label] = np.concatenate([ends[label], times + apart]) if label in ends else times + apart
        return replace(self, ends=ends)


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
    ends: dict[Series, Ints] = {}
    order = np.lexsort((found.number, found.member, found.series))
    series, member = found.series[order], found.member[order]
    cuts = np.flatnonzero((series[1:] != series[:-1]) | (member[1:] != member[:-1])) + 1
    sizes: dict[Series, set[int]] = {}
    for rows in np.split(order, cuts) if len(order) else []:
        label = found.labels[int(found.series[rows[0]])]
        sizes.setdefault(label, set()).add(len(rows))
        ends.setdefault(label, found.end[rows])
    hosts = set(trace.text("hosts", "hostname"))
    host = hosts.pop() if len(hosts) == 1 else ""
    return Ends(base_ns, {label: ends[label] for label, size in sizes.items() if len(size) == 1}, host)


def align(clocks: Sequence[Ends]) -> list[Alignment]:
    """Alignment of each clock to the first one: directly, else through clocks that are aligned, errors added up.

    Where none can be aligned the first is not either: there is nothing to be aligned to.
    """
    out = [Alignment() for _ in clocks]
    reached = [0]
    waiting = list(range(1, len(clocks)))
    for known in reached:  # grows while it is walked: nearest clocks first
        for other in list(waiting):
            found = compare(clocks[known], clocks[other])
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


def compare(first: Ends, other: Ends) -> Alignment:
    """What is added to the times of ``other`` to reach those of ``first``; an error of -1 with the reason.

    Clocks that differ by no more than the uncertainty are one clock, and so are those of one host whose collectives end
    within the credible spread: their offset is 0, and its error the largest difference.
    """
    common = [label for label in first.ends if label in other.ends]
    same = [label for label in common if len(first.ends[label]) == len(other.ends[label])]
    matched = sum(len(first.ends[label]) for label in same)
    if matched < FEWEST_MATCHES:
        return Alignment(matched=matched, reason=_too_few(first, other, common, same, matched))
    differences = np.sort(np.concatenate([first.ends[label] - other.ends[label] for label in same]))
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
    largest = max(abs(low + apart), abs(high + apart))
    one_host = first.host == other.host != ""
    if abs(middle) <= error or (one_host and largest <= MOST_SPREAD_NS):
        return Alignment(0, largest, matched)
    return Alignment(middle, error, matched)


def _too_few(first: Ends, other: Ends, common: list[Series], same: list[Series], matched: int) -> str:
    if not common:
        return "no collective of a communicator that both recorded"
    uneven = next((label for label in common if label not in same), None)
    if uneven is not None:
        return (
            f"one recorded {len(first.ends[uneven]):,} and the other {len(other.ends[uneven]):,} collectives "
            f"({uneven[1]}): which of them belong together is not known"
        )
    return f"{text.count(matched, 'collective matches', 'collectives match')}, {FEWEST_MATCHES} are needed"
