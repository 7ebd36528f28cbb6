"""The finding that the headline is about, and where it shows on the timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.fixes.overlapped_host_work import long_gaps
from profkit.analysis.intervals import Intervals, union
from profkit.analysis.steps import DECODE, MIXED
from profkit.headline import capture_fault, worst_finding
from profkit.model import CheckResult, Finding, Ints, Mask
from profkit.rules.step_bubble import bubbles
from profkit.schema import DEVICE_TABLES


@dataclass(frozen=True)
class Hot:
    """The times of a finding, for the lanes of one device, or of all for -1; ``what`` names them."""

    what: str
    device: int
    intervals: Intervals


def lead_finding(analysis: Analysis, result: CheckResult) -> Finding | None:
    """The finding in the headline: without GPU rows the fault of the capture, else the worst one."""
    if not analysis.has_gpu_rows:
        return capture_fault(result.findings)
    return worst_finding((*result.findings, *result.others))


def find_hot(analysis: Analysis, finding: Finding) -> Hot | None:
    """Idle gaps of a finding; where it has none, the windows of its evidence; None where it has no place in time."""
    device = device_of(finding)
    gaps = _gaps(analysis, finding, device)
    if len(gaps):
        start, end = analysis.idle.start[gaps], analysis.idle.end[gaps]
        return Hot(f"idle gaps of {finding.code}", device, union(start, end))
    windows = [evidence.window for evidence in finding.evidence if evidence.window is not None]
    if not windows:
        return None
    start = np.asarray([window.start_ns for window in windows], np.int64)
    end = np.asarray([window.end_ns for window in windows], np.int64)
    return Hot(f"evidence of {finding.code}", device, union(start, end))


def device_of(finding: Finding) -> int:
    """The device in a finding's key, -1 for none."""
    part = finding.key.split(":")[1] if ":" in finding.key else ""
    return int(part) if part.isdecimal() else -1


def _gaps(analysis: Analysis, finding: Finding, device: int) -> Ints:
    """Positions in ``analysis.idle`` that belong to a finding: by its rule where known, else by its evidence."""
    idle = analysis.idle
    if not len(idle):
        return np.zeros(0, np.int64)
    on_device = (idle.device == device) if device >= 0 else np.ones(len(idle), bool)
    if finding.code in _BY_RULE:
        return np.flatnonzero(_BY_RULE[finding.code](analysis) & on_device)
    ends = np.zeros(len(idle), bool)
    table, row = analysis.work.table[idle.ends_at], analysis.work.row[idle.ends_at]
    for evidence in finding.evidence:
        if evidence.table in DEVICE_TABLES:
            ends |= (table == DEVICE_TABLES.index(evidence.table)) & np.isin(row, evidence.ids)
    return np.flatnonzero(ends & on_device)


def _paced_gaps(analysis: Analysis) -> Mask:
    """Launch-paced gaps; where there are decode steps, those inside of them."""
    mask, steps = analysis.launch_paced, analysis.steps
    in_decode = (steps.kind == DECODE) | (steps.kind == MIXED)
    if in_decode.any():
        step = steps.of_work[analysis.idle.ends_at]
        mask = mask & (step >= 0) & in_decode[np.maximum(step, 0)]
    return mask


def _bubbles(analysis: Analysis) -> Mask:
    mask = np.zeros(len(analysis.idle), bool)
    mask[bubbles(analysis)] = True
    return mask


# Evidence lists the first hundred rows; these rules are about gaps all along the trace.
_BY_RULE: dict[str, Callable[[Analysis], Mask]] = {"PK101": long_gaps, "PK102": _bubbles, "PK201": _paced_gaps}
