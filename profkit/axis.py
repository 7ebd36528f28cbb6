"""The axis of time that joined traces share: where each goes, and what there is to say of its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit import text
from profkit.clocks import Alignment, Ends, align, ends_of
from profkit.errors import InputError

if TYPE_CHECKING:
    from profkit.merge import Part

_MOST_SAID = 8
"""Ranks, or reasons, that are said one by one."""
_LONGEST_NS = 1 << 61
"""Length of an axis on which sums of two times are still integers of 64 bits: 73 years."""


@dataclass(frozen=True)
class Axis:
    """Where the times of the parts go; ``clocks`` has the alignment of each part that is no continuation."""

    absolute: bool
    clocks: dict[int, Alignment]
    shifts: tuple[int, ...]
    """What is added to the times of each part, ns."""
    start_ns: int
    """Time 0 in the first part's own time (UTC if absolute), -1 where not all parts are on one axis."""


def common_axis(parts: Sequence[Part], name: str) -> Axis:
    """Absolute times where all parts have them and they lie within one axis; else each part begins at 0.

    In both cases clocks that can be aligned to the first part's are. Raises InputError, under ``name``, where captures
    of one process lie too far apart.
    """
    lengths = [extent.end_ns if (extent := part.trace.extent) is not None else 0 for part in parts]
    utc = [part.trace.meta.utc_ns for part in parts]
    absolute = min(utc) >= 0 and _fits(utc, lengths)
    bases = utc if absolute else [part.trace.meta.origin_ns for part in parts]
    owners = [place if part.same_as < 0 else part.same_as for place, part in enumerate(parts)]
    if len(set(owners)) == 1 or _fits(bases, lengths):
        clocks = _clocks(parts, bases, owners)
    else:
        clocks = dict.fromkeys(owners, Alignment(reason="the times lie too far apart"))
    begins = [base + clocks[owner].offset_ns for base, owner in zip(bases, owners, strict=True)]
    aligned = [clocks[owner].error_ns >= 0 for owner in owners]
    common = [begin for begin, known in zip(begins, aligned, strict=True) if known or absolute]
    first = min(common, default=-1)
    shifts = [
        begin - first if known or absolute else bases[place] - bases[owners[place]]
        for place, (begin, known) in enumerate(zip(begins, aligned, strict=True))
    ]
    if any(shifts) and not _fits(shifts, lengths):
        raise InputError(f"{name}: the times of captures of one process lie too far apart for one axis")
    return Axis(absolute, clocks, tuple(shifts), first if absolute or all(aligned) else -1)


def _fits(begins: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether everything lies within one axis, whichever part it begins with."""
    return max(begins) - min(begins) + max(lengths) < _LONGEST_NS


def _clocks(parts: Sequence[Part], bases: Sequence[int], owners: Sequence[int]) -> dict[int, Alignment]:
    """How the clock of each part that continues no other is aligned to that of the first."""
    places = list(dict.fromkeys(owners))
    if len(places) == 1:
        return {places[0]: Alignment(error_ns=0)}
    clocks: dict[int, Ends] = {}
    for place, owner in enumerate(owners):
        found = ends_of(parts[place].trace, bases[place])
        clocks[owner] = clocks[owner].continued(found) if owner in clocks else found
    return dict(zip(places, align([clocks[place] for place in places]), strict=True))


def not_aligned(parts: Sequence[Part], axis: Axis) -> list[str]:
    """One warning with the reasons for those parts, but for the first, whose clock could not be aligned."""
    lacking: dict[str, list[str]] = {}
    for place, clock in axis.clocks.items():
        if clock.error_ns < 0 and place:
            lacking.setdefault(clock.reason, []).append(_rank(parts[place]))
    if not lacking:
        return []
    how = "each trace's own absolute times are used" if axis.absolute else "each trace begins at 0"
    why = "; ".join(f"{_listed(ranks)}: {reason}" for reason, ranks in list(lacking.items())[:_MOST_SAID])
    every = sum(map(len, lacking.values())) == len(axis.clocks) - 1
    said = "of the ranks are not aligned" if every else "of some ranks are not aligned"
    return [f"clocks {said} ({how}): times of different ranks are not comparable ({why})"]


def moved(parts: Sequence[Part], axis: Axis) -> list[str]:
    """How far the clock of each part, but of the first, was moved."""
    found = [(place, clock) for place, clock in axis.clocks.items() if clock.error_ns >= 0 and place]
    said = [_moved(_rank(parts[place]), clock) for place, clock in found[:_MOST_SAID]]
    rest = [clock for _, clock in found[_MOST_SAID:]]
    if rest:
        low, high = min(clock.offset_ns for clock in rest), max(clock.offset_ns for clock in rest)
        said.append(
            f"clocks of {len(rest)} further ranks moved by {_offset(low)} to {_offset(high)}, at most "
            f"±{text.ns(max(clock.error_ns for clock in rest))}"
        )
    return said


def _moved(rank: str, clock: Alignment) -> str:
    rests = f"±{text.ns(clock.error_ns)}, by the ends of {text.count(clock.matched, 'collective')}"
    if not clock.offset_ns:
        return f"{rank}: clock agrees with the first rank's, {rests}"
    return f"{rank}: clock moved by {_offset(clock.offset_ns)} to agree with the first rank's, {rests}"


def _offset(value: int) -> str:
    """A signed length of time; from a second on with every digit."""
    if abs(value) < 1_000_000_000:
        return f"{'-' if value < 0 else ''}{text.ns(abs(value))}"
    return text.moment(value).removesuffix(" s").rstrip("0").rstrip(".") + " s"


def _rank(part: Part) -> str:
    """The rank of a part in words; its file where that is not one rank."""
    return f"rank {part.rank}" if part.rank >= 0 else part.path.name


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
