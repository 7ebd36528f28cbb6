"""The reports that people know from ``nsys stats``, computed from a Trace: one ``REPORT`` a file.

Column names, numbers, units, row order and rounding are those of Nsight Systems, so that a script written for its
output keeps working; names are never clipped, and JSON is strict. A report reads the Trace only, never the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
    """A computed report: ``values`` holds one Arrow array a column, null where absent.

    Texts are dictionary-encoded, or large_string where each row has one of its own.
    """

    columns: tuple[Column, ...]
    values: tuple[Any, ...]
    remarks: tuple[str, ...] = ()
    """What a reader of the numbers must know; never part of the data."""

    @property
    def rows(self) -> int:
        return len(self.values[0])


@dataclass(frozen=True)
class Arguments:
    """What stands behind a report's name after colons: ``cuda_gpu_kern_sum:base``, ``um_sum:rows=5``."""

    kernel_name: str = "text"
    """Column of ``names`` that kernels are listed by: text, short (``base``) or mangled."""
    rows: int = 10
    """Most rows of a report that takes ``rows=``."""


DEFAULT = Arguments()
KERNEL_NAMES = ("base", "mangled")
"""Arguments of every report that lists kernels."""
ROWS = ("rows=",)

_NAME_COLUMNS = {"base": "short", "mangled": "mangled"}


@dataclass(frozen=True)
class Report:
    """One report. ``build`` is called for a Trace with rows in one of ``tables`` and in all of ``together``."""

    name: str
    former_name: str
    """Name in Nsight Systems up to 2022; still accepted. Empty where there was none."""
    title: str
    what: str
    """What it lists, in words: for the line that says that there is none."""
    tables: tuple[str, ...]
    build: Callable[[Trace, Arguments], Listing]
    together: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    place: int = 0
    """Place among the reports that are printed when none is named, from 1; 0 for one that must be named."""


@dataclass(frozen=True)
class Choice:
    """A report as it was asked for; ``name`` has its arguments."""

    name: str
    report: Report
    arguments: Arguments = DEFAULT


@dataclass(frozen=True)
class Answer:
    """What came of a report: a listing, or the reason why there is none."""

    name: str
    report: Report
    listing: Listing | None
    reason: str = ""


def all_reports() -> list[Report]:
    """Every report: the default ones in their order, then the others by name."""
    found = discover("profkit.stats", "REPORT", Report)
    return sorted(found.values(), key=lambda report: (not report.place, report.place, report.name))


def choose(names: Iterable[str]) -> list[Choice]:
    """Reports by their names, new or old, with their arguments, in the order given; commas separate names, too.

    Without a name these are the default ones. Raises UsageError for a report or an argument that does not exist.
    """
    reports = all_reports()
    by_name = {name: report for report in reports for name in (report.name, report.former_name) if name}
    chosen: dict[str, Choice] = {}
    for name in (part for word in names for part in word.split(",")):
        plain, *words = name.split(":")
        if plain not in by_name:
            raise UsageError(f"unknown report {plain!r}; reports: {', '.join(report.name for report in reports)}")
        choice = _choice(by_name[plain], words)
        chosen[choice.name] = choice
    return list(chosen.values()) or [Choice(report.name, report) for report in reports if report.place]


def _choice(report: Report, words: list[str]) -> Choice:
    arguments = DEFAULT
    for word in words:
        key, sign, value = word.partition("=")
        if key + sign not in report.arguments:
            takes = " or ".join(f":{known}" for known in report.arguments) or "no arguments"
            raise UsageError(f"report {report.name} has no argument {word!r}: it takes {takes}")
        if key == "rows":
            if not value.isdecimal() or not int(value):
                raise UsageError(f"{report.name}:{word}: rows is a number from 1, as in rows=10")
            arguments = replace(arguments, rows=int(value))
        else:
            arguments = replace(arguments, kernel_name=_NAME_COLUMNS[key])
    return Choice(":".join((report.name, *words)), report, arguments)


def answer(trace: Trace, choice: Choice) -> Answer:
    """Compute one report. Data that was not captured is a reason, never an empty or a zero result."""
    report = choice.report
    lacking = [table for table in report.together if not trace.rows(table)]
    if not lacking and any(trace.rows(table) for table in report.tables):
        listing = report.build(trace, choice.arguments)
        if listing.rows:
            return Answer(choice.name, report, listing)
        return Answer(choice.name, report, None, "; ".join(listing.remarks) or f"no {report.what} in this capture")
    reasons = filter(None, (trace.why_missing(table) for table in lacking or report.tables))
    return Answer(choice.name, report, None, next(reasons, f"no {report.what} in this capture"))
