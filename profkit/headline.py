"""The one sentence that comes first: what bounds a step, how much it costs, or why that is not known."""

from __future__ import annotations

from collections.abc import Sequence

from profkit import text
from profkit.analysis.busy import DeviceTime
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.operators import operator_times
from profkit.analysis.steps import DECODE, MIXED, OTHER, PREFILL
from profkit.judge import Verdict
from profkit.model import Finding, Window
from profkit.rules import needs_joined_work

_CAPTURE_FAULT = "PK502"
_HIDDEN_KERNELS = "PK501"
_IDLE = "PK101"
_CAPTURE = "PK5"
_HEALTHY_SHARE = 0.9
_FEWEST_ROWS = 100
_HARDLY_ANY = 0.01
"""Share of the capture that the GPU window must fill for "busy" to say something about the program."""


def write_headline(analysis: Analysis, verdict: Verdict) -> str:
    """What bounds a step, what that costs, the one fix; of a healthy trace that it is; without GPU rows why."""
    prefix = "SIMULATED: " if analysis.trace.meta.simulated else ""
    findings = verdict.every
    if not analysis.has_gpu_rows:
        lost = capture_fault(findings)
        return prefix + (lost.message if lost else _no_gpu(analysis))
    hidden = next((f for f in findings if f.code == _HIDDEN_KERNELS), None)
    note = " Kernels inside CUDA graphs were not recorded." if hidden else ""
    worst = worst_finding(findings)
    if worst is not None:
        return f"{prefix}{_bound(worst)}{note}"
    if _hardly_any(analysis):
        return f"{prefix}Hardly any GPU work in this capture: {_busy(analysis)}.{note}"
    if not verdict.of_all:
        return f"{prefix}Of the rules that were selected: {_selected(verdict)}; {_busy(analysis)}.{note}"
    doubts = [f.code for f in findings if f.severity != "info" and f.saving_ns < 0]
    silent = f" {text.count(len(verdict.not_run), 'rule')} could not judge this capture." if verdict.not_run else ""
    seen = f"nothing found that would give back 2 % of {_denominator(analysis)}"
    if doubts or hidden or not verdict.clean or not _is_busy(analysis):
        said = f" {', '.join(dict.fromkeys(doubts))} {'make' if len(doubts) > 1 else 'makes'} that doubtful."
        rest = f"{_mostly_idle(analysis)}.{note}{said if doubts else ''}{silent}"
        return f"{prefix}{seen.capitalize()}: {_busy(analysis)}{rest}"
    return f"{prefix}Healthy: {seen}; {_busy(analysis)}{_step(analysis)}.{note}{silent}"


def capture_fault(findings: Sequence[Finding]) -> Finding | None:
    """The finding that says why a capture has no GPU rows."""
    return next((f for f in findings if f.code == _CAPTURE_FAULT), None)


def worst_finding(findings: Sequence[Finding]) -> Finding | None:
    """What the headline is about: the first that matters, or idle time that nothing explains where there is more."""
    serious = [f for f in findings if f.severity in ("critical", "warning") and (f.saving_ns > 0 or _is_unpriced(f))]
    unexplained = [f for f in findings if f.code == _IDLE and f.saving_ns < 0 and f.severity == "warning"]
    for finding in sorted(unexplained, key=lambda f: -f.cost_ns):
        if not serious or finding.cost_ns > serious[0].saving_ns:
            return finding
    return serious[0] if serious else None


def _is_unpriced(finding: Finding) -> bool:
    """A fault of the run whose price is not known: what is said of the capture alone bounds no step."""
    return finding.saving_ns < 0 and not finding.code.startswith(_CAPTURE)


def _selected(verdict: Verdict) -> str:
    if not verdict.clean and not verdict.every:
        return "none could judge this capture" if verdict.not_run else "none is left"
    judged = len(verdict.clean) + len({f.code for f in verdict.every})
    return f"{text.count(judged, 'rule')} found nothing that would give back 2 %"


def _bound(finding: Finding) -> str:
    """``Launch-bound decode: the host ...; up to 734 µs a step (18.9 % of the median of 276 decode steps) ...``."""
    if finding.saving_ns < 0:
        return f"{finding.message}."
    each = finding.saving_ns_per_step >= 0
    price = f"{text.ns(finding.saving_ns_per_step)} a step" if each else text.ns(finding.saving_ns)
    advice = finding.advice.rstrip(".")
    return (
        f"{finding.title}: {finding.cause}; up to {price} ({text.percent(finding.share)} of {finding.share_of}) "
        f"can be won: {advice[:1].lower()}{advice[1:]}."
    )


def _busy_shares(analysis: Analysis) -> list[float]:
    return [device.busy_share for device in analysis.devices if device.busy_share is not None]


def _is_busy(analysis: Analysis) -> bool:
    """Whether there is enough GPU work, with its calls and little enough idle time, to call a trace healthy."""
    if needs_joined_work(analysis):  # the host, its copies and its waits were not judged
        return False
    shares = _busy_shares(analysis)
    return len(analysis.work) >= _FEWEST_ROWS and bool(shares) and min(shares) >= _HEALTHY_SHARE


def _mostly_idle(analysis: Analysis) -> str:
    """What most of the idle time was due to, where there is much."""
    idle = {cause: ns for cause, ns in analysis.idle.by_cause().items() if ns}
    shares = _busy_shares(analysis)
    if not idle or (shares and min(shares) >= _HEALTHY_SHARE):
        return ""
    cause = max(idle, key=lambda name: (idle[name], name))
    return f", idle mostly by {cause} ({text.ns(idle[cause])} of {text.ns(sum(idle.values()))})"


def _step(analysis: Analysis) -> str:
    """How long a counted step takes, if there are any."""
    steps = analysis.counted_steps()
    if not steps.count:
        return ""
    return f"; a {steps.kind} step takes {text.ns(steps.median_ns)} (median of {steps.count:,})"


def _denominator(analysis: Analysis) -> str:
    return "a step" if analysis.step_count else "the window"


def _hardly_any(analysis: Analysis) -> bool:
    window = analysis.window.dur_ns if analysis.window else 0
    return analysis.selected is None and window < _HARDLY_ANY * _captured_ns(analysis)


def _busy(analysis: Analysis) -> str:
    devices = analysis.devices
    window = analysis.window.dur_ns if analysis.window else 0
    rows = text.count(len(analysis.work), "GPU row")
    if _hardly_any(analysis):
        return f"{rows} in {text.ns(window)} of {text.ns(_captured_ns(analysis))}"
    shares = _busy_shares(analysis)
    if not shares:
        return f"{rows} without a length"
    who = "the GPU was busy" if len(devices) == 1 else f"{len(devices)} GPUs were busy"
    how = text.percent(shares[0]) if len(shares) == 1 else f"{text.percent(min(shares))} to {text.percent(max(shares))}"
    return f"{who} {how} of {text.ns(window)}{_copying(devices)}{_capture(analysis, window)}"


def _copying(devices: Sequence[DeviceTime]) -> str:
    """Busy with copies is not busy with work: say so where they are most of it."""
    busy, copying = sum(d.busy_ns for d in devices), sum(d.copy_ns for d in devices)
    return f", {text.percent(copying / busy)} of that with copies" if busy and 2 * copying > busy else ""


def _captured_ns(analysis: Analysis) -> int:
    windows = analysis.trace.windows
    return max((w.end_ns for w in windows), default=0) - min((w.start_ns for w in windows), default=0)


def _capture(analysis: Analysis, window: int) -> str:
    """How long the capture was, where GPU work fills only a small part of it."""
    span = _captured_ns(analysis)
    return f" (of a capture of {text.ns(span)})" if span > 2 * window and not analysis.selected else ""


def _no_gpu(analysis: Analysis) -> str:
    """Why there is no GPU to speak of, and what there is instead."""
    if analysis.selected is not None and analysis.whole_work.window is not None:
        return f"No GPU work in this window: the capture's is from {_edges(analysis.whole_work.window)}"
    reason = analysis.trace.why_missing("kernels") or "no GPU work was recorded"
    for prefix in ("no GPU kernels in this capture: ", "no GPU activity in this trace: "):
        reason = reason.removeprefix(prefix)
    steps = _host_steps(analysis)
    if steps:
        return f"No GPU kernels in this capture ({reason}): {steps}"
    seen = [
        text.count(analysis.trace.rows(table), noun)
        for table, noun in (("calls", "CUDA call"), ("spans", "range"), ("os_calls", "operating system call"))
        if analysis.trace.rows(table)
    ]
    rest = f"; the capture holds {', '.join(seen)}" if seen else ""
    return f"No GPU kernels in this capture ({reason}): GPU numbers are not known{rest}"


def _edges(window: Window) -> str:
    return f"{text.moment(window.start_ns)} to {text.moment(window.end_ns)}"


def _host_steps(analysis: Analysis) -> str:
    """How long a step takes on the host, and in which operator: all that is known where no GPU was recorded."""
    steps = analysis.steps
    for code in (DECODE, MIXED, PREFILL, OTHER):
        lengths = steps.host_ns[steps.counted & steps.lead & (steps.kind == code)]
        if len(lengths):
            word = steps.word(code)
            median = text.ns(percentile(lengths, 50))
            return f"a {word} step takes {median} on the host (median of {len(lengths)}){_mostly(analysis)}"
    return ""


def _mostly(analysis: Analysis) -> str:
    """The operator that most of the operators' own time goes to."""
    for top in operator_times(analysis, 1):
        return f", most of its operators' own time in {text.clip(top.name, 60)} ({text.ns(top.self_ns)} in all)"
    return ""
