"""Kernels by name: how often, how long in all, how long each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.work import KERNELS
from profkit.model import Trace
from profkit.report import ReportInput, Section
from profkit.reports.markup import details, join, name, table
from profkit.schema import FLAG_OVERLAPS_NEXT, NOT_WHOLE

_MOST = 20
_FULL_NAMES_CHARS = 90_000
"""Room for whole names in the report."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel name inside the window, ns; ``median_ns`` is over whole ones, None if there are none."""

    name: int
    count: int
    sum_ns: int
    median_ns: int | None
    overlapping: int


@dataclass(frozen=True)
class KernelTimes:
    """The longest by sum, and what all names together come to."""

    top: tuple[KernelTime, ...]
    names: int
    count: int
    sum_ns: int


def render(report: ReportInput) -> Markup | None:
    times = kernel_times(report.analysis, _MOST)
    if not times.count:
        return None
    trace = report.analysis.trace
    apart = differences(trace, [kernel.name for kernel in times.top])
    rows: list[tuple[object, ...]] = []
    for number, kernel in enumerate(times.top, 1):
        notes = [apart.get(kernel.name, "")]
        if kernel.overlapping:
            notes.append(f"({kernel.overlapping:,} overlap the next of their stream)")
        shown = name(trace.name(kernel.name), 80, short_name(trace, kernel.name))
        rows.append(
            (
                str(number),
                Markup("{} <small>{}</small>").format(shown, " ".join(notes)),
                trace.name(kernel.name, "family") or "other",
                f"{kernel.count:,}",
                text.ns(kernel.sum_ns),
                text.percent(kernel.sum_ns / max(times.sum_ns, 1)),
                text.ns(kernel.median_ns),
            )
        )
    rest = times.names - len(times.top)
    if rest:
        count = times.count - sum(kernel.count for kernel in times.top)
        left = times.sum_ns - sum(kernel.sum_ns for kernel in times.top)
        label = text.count(rest, "other name")
        rows.append(("", label, "", f"{count:,}", text.ns(left), text.percent(left / max(times.sum_ns, 1)), ""))
    head = ("#", "kernel", "family", "count", "sum", f"of the {text.ns(times.sum_ns)} listed", "median")
    foot = (
        "Sums are over streams and devices inside the window: kernels that ran at the same time count twice, so this "
        "is not busy time. The median is over kernels seen whole."
    )
    return join((table(head, rows, left=3, foot=foot), _full_names(report, times)))


def short_name(trace: Trace, row: int) -> str:
    """A kernel's name without template arguments and parameters."""
    return text.short_kernel(trace.name(row, "short") or trace.name(row))


def differences(trace: Trace, rows: list[int]) -> dict[int, str]:
    """For kernels that share a short name: where their whole names begin to differ."""
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(short_name(trace, row), []).append(row)
    out: dict[int, str] = {}
    for same in groups.values():
        if len(same) > 1:
            names = [trace.name(row) for row in same]
            first, last = min(names), max(names)
            common = next(
                (i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
            )
            out |= {row: "…" + text.clip(full[common:], 70) for row, full in zip(same, names, strict=True)}
    return out


def kernel_times(analysis: Analysis, most: int) -> KernelTimes:
    """Kernels of the window by their whole name: two names that differ are never one."""
    trace, work = analysis.trace, analysis.work
    mine = np.flatnonzero(work.table == KERNELS)
    row, length = work.row[mine], (work.end - work.start)[mine]
    code, group = np.unique(trace.array("kernels", "name")[row], return_inverse=True)
    total = np.zeros(len(code), np.int64)
    np.add.at(total, group, length)
    count = np.bincount(group, minlength=len(code))
    flags = trace.array("kernels", "flags")[row]
    whole = ((flags & NOT_WHOLE) == 0) & (length == trace.array("kernels", "dur_ns")[row])
    overlapping = np.bincount(group[(flags & FLAG_OVERLAPS_NEXT) != 0], minlength=len(code))
    top = tuple(
        KernelTime(
            name=int(code[i]),
            count=int(count[i]),
            sum_ns=int(total[i]),
            median_ns=percentile(length[(group == i) & whole], 50),
            overlapping=int(overlapping[i]),
        )
        for i in np.lexsort((code, -total))[:most].tolist()
    )
    return KernelTimes(top, len(code), len(mine), int(total.sum()))


def _full_names(report: ReportInput, times: KernelTimes) -> Markup:
    """Whole names of those that the table shows shortened, each once, as far as there is room."""
    rows, room = [], _FULL_NAMES_CHARS
    for number, kernel in enumerate(times.top, 1):
        full = report.analysis.trace.name(kernel.name)
        if len(full) <= 80 and short_name(report.analysis.trace, kernel.name) == full:
            continue
        shown = full if len(full) <= room else f"{full[:200]}… ({len(full):,} characters)"
        room -= len(shown)
        rows.append((str(number), Markup("<code>{}</code>").format(shown)))
    return details("Whole names", table(("#", "kernel"), rows, left=2)) if rows else Markup("")


SECTION = Section(title="Kernels", order=70, render=render)
