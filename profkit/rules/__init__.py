"""Rules: one RULE a file, each a fault with its cost, its advice and its own tests.

The docstring of a rule's file is its page, under fixed headings: What it finds / Why it costs time / How the cost is
computed / What to do / When it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from profkit.analysis.calls import COPY
from profkit.analysis.context import Analysis
from profkit.model import Finding, Trace
from profkit.plugins import discover

if TYPE_CHECKING:
    from profkit.rules._price import Priced

HEADINGS = ("What it finds", "Why it costs time", "How the cost is computed", "What to do", "When it is wrong")


FAMILIES = {
    "PK1": "the GPU stands still",
    "PK2": "the host, and launches",
    "PK3": "copies and synchronisation",
    "PK4": "kernels",
    "PK5": "the capture: what makes its numbers doubtful",
    "PK6": "collectives of several ranks",
    "PK7": "serving and memory",
}


@dataclass(frozen=True)
class Rule:
    """One fault. ``unmet`` says why a trace cannot be judged, "" if it can; then ``check`` finds the fault or nothing.

    ``fires`` and ``quiet`` build tiny traces in which the rule finds its fault and finds nothing: its tests. ``record``
    says what to record so that the rule can judge. ``is_shown``: what it says matters also where no saving is known.
    ``by_fix``: it sees what a fix finds in what is replayed, of a long trace a part. ``is_rest`` marks a rule that is
    about what other rules leave: its saving is what its fix gives back on top of theirs.
    """

    code: str
    title: str
    unmet: Callable[[Analysis], str]
    check: Callable[[Analysis], Iterable[Finding | Priced]]
    advice: str
    fires: Callable[[], Trace]
    quiet: Callable[[], Trace]
    record: str = ""
    is_rest: bool = False
    is_shown: bool = False
    by_fix: bool = False


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by its code."""
    return dict(sorted(discover("profkit.rules", "RULE", Rule, key="code").items()))


def needs_gpu_rows(analysis: Analysis) -> str:
    """Why there is no GPU work to judge, "" if there is some."""
    if analysis.has_gpu_rows:
        return ""
    return analysis.trace.why_missing("kernels") or "no GPU work was recorded"


def needs_calls(analysis: Analysis) -> str:
    """Why there are no CUDA calls to judge, "" if there are some."""
    if analysis.trace.rows("calls"):
        return ""
    return analysis.trace.why_missing("calls") or "no CUDA calls were recorded"


def needs_copies(analysis: Analysis) -> str:
    """Why copies cannot be judged although there were some, "" where they can, or where nothing was copied."""
    trace = analysis.trace
    reason = trace.why_missing("copies")
    if reason and not trace.why_missing("kernels"):
        return reason
    if not trace.rows("copies") and (analysis.call_kind == COPY).any():
        return "copies were asked for, and have no rows in this capture"
    return ""


def needs_joined_work(analysis: Analysis) -> str:
    """Why no GPU work can be traced back to a call, "" if some can."""
    if (analysis.work.call >= 0).any():
        return ""
    return "no GPU row could be joined to the call that submitted it"


def needs_owned_work(analysis: Analysis) -> str:
    """Why GPU rows cannot be given to processes, "" if all can."""
    if (analysis.work.process >= 0).all():
        return ""
    return "the trace does not say which process some of its GPU rows belong to"


def needs_steps(analysis: Analysis) -> str:
    """Why there are no steps, "" if there are some."""
    if len(analysis.steps):
        return ""
    return "no steps in this trace: put profkit.stage('prefill') and profkit.stage('decode') around them"


def needs_many_steps(found: int, fewest: int) -> str:
    """Why there are too few counted steps, "" if there are enough."""
    return "" if found >= fewest else f"{found} of the {fewest} whole steps behind warm-up that tell what is usual"


def needs_all(*needs: Callable[[Analysis], str]) -> Callable[[Analysis], str]:
    """The first reason that one of ``needs`` gives."""
    return lambda analysis: next((reason for need in needs if (reason := need(analysis))), "")
