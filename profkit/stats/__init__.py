"""The reports that people know from ``nsys stats``, computed from a Trace: one ``REPORT`` a file.

Column names, numbers, units, row order and rounding are those of Nsight Systems, so that a script written for its
output keeps working; names are never clipped, and JSON is strict. A report reads the Trace only, never the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from profkit.errors import UsageError
from profkit.model import Trace
from profkit.plugins import discover


@dataclass(frozen=True)
class Column:
    """One column of a report. Values are kept in base units (ns, bytes, percent); ``divisor`` makes the printed one."""

    title: str
    """Heading, with the printed unit."""
    key: str
    """Key in JSON, with the base unit."""
    decimals: int = 0
    divisor: int = 1
    absent: str = ""
    """What is printed for an absent value; JSON has null."""


@dataclass(frozen=True)
class Listing:
    """A computed report: ``values`` holds one Arrow array a column, null where absent, texts dictionary-encoded."""

    columns: tuple[Column, ...]
    values: tuple[Any, ...]
    remarks: tuple[str, ...] = ()
    """What a reader of the numbers must know; never part of the data."""

    @property
    def rows(self) -> int:
        return len(self.values[0])


@dataclass(frozen=True)
class Report:
    """One report: ``build`` computes it from a Trace that holds rows of at least one of ``tables``."""

    name: str
    former_name: str
    """Name in Nsight Systems up to 2022; still accepted."""
    title: str
    what: str
    """What it lists, in words: for the line that says that there is none."""
    tables: tuple[str, ...]
    build: Callable[[Trace], Listing]
    place: int = 0
    """Place among the reports that are printed when none is named, from 1; 0 for one that must be named."""


@dataclass(frozen=True)
class Answer:
    """What came of a report: a listing, or the reason why there is none."""

    report: Report
    listing: Listing | None
    reason: str = ""


def all_reports() -> list[Report]:
    """Every report: the default ones in their order, then the others by name."""
    found = discover("profkit.stats", "REPORT", Report)
    return sorted(found.values(), key=lambda report: (not report.place, report.place, report.name))


def choose(names: Iterable[str]) -> list[Report]:
    """Reports by their names, new or old, in the order given; the default ones where none is named.

    Raises UsageError, listing the names, for one that does not exist.
    """
    reports = all_reports()
    by_name = {name: report for report in reports for name in (report.name, report.former_name)}
    chosen: dict[str, Report] = {}
    for name in names:
        if name not in by_name:
            raise UsageError(f"unknown report {name!r}; reports: {', '.join(report.name for report in reports)}")
        chosen[by_name[name].name] = by_name[name]
    return list(chosen.values()) or [report for report in reports if report.place]


def answer(trace: Trace, report: Report) -> Answer:
    """Compute one report. Data that was not captured is a reason, never an empty or a zero result."""
    if any(trace.rows(table) for table in report.tables):
        listing = report.build(trace)
        if listing.rows:
            return Answer(report, listing)
        return Answer(report, None, "; ".join(listing.remarks) or f"no {report.what} in this capture")
    reasons = filter(None, (trace.why_missing(table) for table in report.tables))
    return Answer(report, None, next(reasons, f"no {report.what} in this capture"))
