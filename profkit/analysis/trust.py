"""Whether a capture can be trusted: what it lacks and why, and what makes a number doubtful."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.work import GRAPHS
from profkit.model import Trace
from profkit.schema import DEVICE_TABLES, FLAG_BEFORE_ITS_LAUNCH, FLAG_OPEN_END, NOT_WHOLE

_WIDTH = 400
_LEVELS = ("problem", "warning", "note")
_MOST_UNKNOWN = 0.10
"""Share of the window in which a GPU may do nothing for an unknown cause before that is said."""


@dataclass(frozen=True)
class Remark:
    """Something to know before believing a number; ``level`` is problem, warning or note."""

    level: str
    text: str


def remarks(analysis: Analysis) -> list[Remark]:
    """Everything to know before believing a number, problems first."""
    return sorted(_remarks(analysis), key=lambda remark: _LEVELS.index(remark.level))


def _remarks(analysis: Analysis) -> Iterator[Remark]:
    trace = analysis.trace
    if trace.meta.simulated:
        yield Remark("problem", "Simulated: the times come from a model, not from a GPU")
    if trace.meta.partial:
        yield Remark("problem", "Part of the file could not be read: the numbers are of the rest")
    if not analysis.has_gpu_rows:
        reason = trace.why_missing("kernels") or "no GPU work was recorded"
        yield Remark("warning", f"No GPU rows: GPU numbers are n/a, not 0 ({text.clip(reason, _WIDTH)})")
    yield from _graph_remarks(analysis)
    if analysis.has_gpu_rows:
        yield from _row_remarks(analysis)
        yield from _idle_remarks(analysis)
    unclosed = int(((trace.array("spans", "flags") & FLAG_OPEN_END) != 0).sum())
    if unclosed:
        yield Remark("note", f"{text.count(unclosed, 'range')} never closed: not counted in times")
    for warning in trace.meta.warnings:
        yield Remark("warning", text.clip(warning, _WIDTH))
    for note in trace.meta.notes:
        yield Remark("note", text.clip(note, _WIDTH))
    for reason, tables in missing(trace).items():
        yield Remark("note", f"No {', '.join(name.replace('_', ' ') for name in tables)}: {text.clip(reason, _WIDTH)}")
    if analysis.selected is not None:
        yield Remark(
            "note",
            "A part of the capture was chosen: GPU rows are cut at its edges; ranges, calls, copies and requests count "
            "where they begin inside, steps where their GPU work is inside",
        )
    if trace.meta.resolution_ns > 1:
        yield Remark("note", f"Times have a resolution of {text.ns(trace.meta.resolution_ns)}")


def missing(trace: Trace) -> dict[str, list[str]]:
    """Reasons why tables were not captured, each with its tables; where only some processes lack one, it says which."""
    out: dict[str, list[str]] = {}
    for name, reasons in trace.missing.items():
        for process, reason in reasons.items():
            where = f" (process {int(trace.array('processes', 'pid')[process])})" if process >= 0 else ""
            if process >= 0 or not trace.rows(name):
                out.setdefault(reason + where, []).append(name)
    return out


def _graph_remarks(analysis: Analysis) -> Iterator[Remark]:
    graphs = int((analysis.work.table == GRAPHS).sum())
    if graphs:
        busy = sum(device.graph_ns for device in analysis.devices)
        yield Remark(
            "warning",
            f"{text.count(graphs, 'CUDA graph launch', 'CUDA graph launches')} recorded as one piece each, "
            f"{text.ns(busy)} busy: the kernels inside are not visible; --cuda-graph-trace=node records them",
        )


def _row_remarks(analysis: Analysis) -> Iterator[Remark]:
    trace, work = analysis.trace, analysis.work
    orphans = int((work.call < 0).sum())
    if orphans:
        yield Remark(
            "warning" if orphans * 50 > len(work) else "note",
            f"no call was recorded for {orphans:,} of {text.count(len(work), 'GPU row')} "
            f"({text.percent(orphans / len(work))}): without it a row belongs to no stage and no step, and idle time "
            "before it has no known cause",
        )
    flags = np.concatenate([trace.array(name, "flags") for name in DEVICE_TABLES])
    cut = int(((flags & NOT_WHOLE) != 0).sum())
    if cut:
        yield Remark("note", f"{text.count(cut, 'GPU row')} not seen whole: drawn, but in no median")
    early = int(((flags & FLAG_BEFORE_ITS_LAUNCH) != 0).sum())
    if early:
        yield Remark(
            "warning",
            f"{text.count(early, 'GPU row begins', 'GPU rows begin')} before the call that launched it: the clocks of "
            "host and GPU are not aligned",
        )


def _idle_remarks(analysis: Analysis) -> Iterator[Remark]:
    """Idle time that nothing in the capture explains: often work that was launched before recording began."""
    if analysis.window is None or not analysis.window.dur_ns:
        return
    for device in analysis.devices:
        unknown = analysis.idle.by_cause(device.device).get("unknown", 0)
        if unknown > _MOST_UNKNOWN * device.window_ns:
            yield Remark(
                "warning",
                f"{analysis.device_name(device.device)} did nothing for {text.ns(unknown)} "
                f"({text.percent(unknown / device.window_ns)} of {text.ns(device.window_ns)}), and this capture does "
                "not show why: calls were not recorded, or the GPU was held by work that was not (launched before "
                "recording began, or by another process)",
            )


def doubts(analysis: Analysis) -> list[str]:
    """Warnings that follow from the rows themselves, beside those that the reader gave."""
    found = (*_row_remarks(analysis), *_idle_remarks(analysis)) if analysis.has_gpu_rows else ()
    return [remark.text for remark in found if remark.level != "note"]
