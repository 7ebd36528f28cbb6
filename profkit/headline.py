"""The one sentence that comes first: what bounds a step, how much it costs, or why that is not known."""

from __future__ import annotations

from collections.abc import Sequence

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.steps import DECODE, MIXED, OTHER, PREFILL
from profkit.model import Finding
from profkit.schema import STEP_KINDS

_CAPTURE_FAULT = "PK502"
_HIDDEN_KERNELS = "PK501"


def write_headline(analysis: Analysis, findings: Sequence[Finding]) -> str:
    """The worst finding in words; without one, how busy the GPU was; without GPU rows, why there are none."""
    prefix = "SIMULATED: " if analysis.trace.meta.simulated else ""
    if not analysis.has_gpu_rows:
        lost = next((f for f in findings if f.code == _CAPTURE_FAULT), None)
        return prefix + (lost.message if lost else _no_gpu(analysis))
    worst = next((f for f in findings if f.severity in ("critical", "warning") and f.saving_ns > 0), None)
    hidden = next((f for f in findings if f.code == _HIDDEN_KERNELS), None)
    note = " Kernels inside CUDA graphs were not recorded." if hidden else ""
    if worst is None:
        return f"{prefix}Nothing found that would give back 2 % of {_denominator(analysis)}: {_busy(analysis)}.{note}"
    return f"{prefix}{worst.message}. {_price(worst)}{note}"


def _price(finding: Finding) -> str:
    """What a fix gives back: 1.02 ms of a step of 3.88 ms (26.3 %)."""
    if finding.saving_ns_per_step >= 0:
        return (
            f"A fix gives back up to {text.ns(finding.saving_ns_per_step)} a step "
            f"({text.percent(finding.share)} of {finding.share_of})."
        )
    return f"A fix gives back up to {text.ns(finding.saving_ns)} ({text.percent(finding.share)} of {finding.share_of})."


def _denominator(analysis: Analysis) -> str:
    return "a step" if analysis.step_count else "the window"


def _busy(analysis: Analysis) -> str:
    devices = analysis.devices
    window = analysis.window.dur_ns if analysis.window else 0
    if len(devices) == 1:
        return (
            f"the GPU was busy {text.percent(devices[0].busy_share)} of {text.ns(window)}{_capture(analysis, window)}"
        )
    shares = [device.busy_share for device in devices if device.busy_share is not None]
    if not shares:
        return "the GPUs did nothing that has a length"
    return (
        f"{len(devices)} GPUs were busy {text.percent(min(shares))} to {text.percent(max(shares))} of {text.ns(window)}"
    )


def _capture(analysis: Analysis, window: int) -> str:
    """How long the capture was, where GPU work fills only a small part of it."""
    span = max((w.end_ns for w in analysis.trace.windows), default=0) - min(
        (w.start_ns for w in analysis.trace.windows), default=0
    )
    return f" (of a capture of {text.ns(span)})" if span > 2 * window and not analysis.selected else ""


def _no_gpu(analysis: Analysis) -> str:
    """Why there is no GPU to speak of, and what there is instead."""
    reason = analysis.trace.why_missing("kernels") or "no GPU work was recorded"
    seen = [
        text.count(analysis.trace.rows(table), noun)
        for table, noun in (("calls", "CUDA call"), ("spans", "range"), ("os_calls", "operating system call"))
        if analysis.trace.rows(table)
    ]
    rest = f"; the capture holds {', '.join(seen)}" if seen else ""
    reason = reason.removeprefix("no GPU kernels in this capture: ")
    return f"No GPU kernels in this capture ({reason}): GPU numbers are not known{_host_steps(analysis)}{rest}"


def _host_steps(analysis: Analysis) -> str:
    """How long a step takes on the host: all that is known where no GPU was recorded."""
    steps = analysis.steps
    for code in (DECODE, MIXED, PREFILL, OTHER):
        lengths = (steps.host_end - steps.host_start)[steps.counted & (steps.kind == code)]
        if len(lengths):
            word = {OTHER: "profiler"}.get(code, STEP_KINDS[code])
            return f"; a {word} step takes {text.ns(percentile(lengths, 50))} on the host (median of {len(lengths)})"
    return ""
