"""Findings of rules whose fault is what a fix changes: what was seen of it in numbers, and the price of the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Found
from profkit.analysis.fixes._find import step_of_calls
from profkit.model import Evidence, Ints, Window, evidence
from profkit.rules import Rule
from profkit.rules._evidence import longest_first, of_rows
from profkit.rules._price import Priced, found_by, half_up, priced_by_replay

_LONGEST_NS = 1 << 52


@dataclass(frozen=True)
class Seen:
    """What a fix concerns: ``count`` calls, pieces of host work or operations, which took ``ns`` together.

    ``steps`` of ``of_steps`` hold one; ``names`` are those of the calls, most frequent first. Counts are those of what
    was replayed: ``where`` says which part that is, empty for all of it.
    """

    count: int
    ns: int
    longest_ns: int
    steps: int
    of_steps: int
    names: str
    where: str
    evidence: tuple[Evidence, ...]

    @property
    def each_step(self) -> str:
        """``, 12.00 a step in 40 of 40 steps``; nothing without steps."""
        if not self.of_steps or not self.steps:
            return ""
        part = f" that were replayed ({self.where})" if self.where else ""
        each, steps = text.ratio(self.count, self.steps), text.count(self.of_steps, "step")
        return f", {each} a step in {self.steps:,} of {steps}{part}"

    @property
    def on_host(self) -> str:
        """Both, for what takes the host's time."""
        return f"{self.each_step}, {self.time} of the host's time"

    @property
    def time(self) -> str:
        """``3.20 ms, 80.0 µs a step``."""
        each = f", {text.ns(half_up(self.ns, self.steps))} a step" if self.steps else ""
        return f"{text.ns(self.ns)}{each}"


def by_fix(
    analysis: Analysis, rule: Rule, fixes: tuple[str, ...], say: Callable[[Seen], str], cause: str,
    everywhere: bool = False, **rest: Any,
) -> Iterator[Priced]:  # fmt: skip
    """The finding of a rule whose fault these fixes take away; nothing where they find or would save nothing.

    It is priced on the device of the process that most of it is in; ``everywhere``: over all devices.
    """
    found = found_by(analysis, fixes)
    if found is None:
        return
    seen = look(analysis, found)
    device = -1 if everywhere else _device_of_most(analysis, found)
    facts = {"count": seen.count, "time_ns": seen.ns, "longest_ns": seen.longest_ns, "steps_with_it": seen.steps}
    item = priced_by_replay(
        analysis,
        found,
        measured=0,  # what the host spent says nothing of the GPU
        fixes=fixes,
        device=device,
        code=rule.code,
        title=rule.title,
        key=f"{rule.code}:{device if device >= 0 else 'all'}:fault:",
        message=say(seen),
        cause=cause,
        facts=facts | ({"calls": seen.names} if seen.names else {}) | rest.pop("facts", {}),
        evidence=seen.evidence,
        **{"advice": rule.advice, **rest},
    )
    if item.finding.saving_ns != 0 or item.finding.saving_ns_per_step > 0:
        yield item


def _device_of_most(analysis: Analysis, found: Found) -> int:
    """The device of the process that most of a fault is in, where that has only one; -1: it is priced over all.

    Another engine in the same trace has steps and an end of its own.
    """
    model = analysis.replayed.model
    calls, ops = found.calls, found.ops
    if len(calls):
        process = analysis.trace.array("calls", "process")[model.calls.row[calls]]
        length = found.host_ns if found.host_ns is not None else model.calls.end[calls] - model.calls.start[calls]
    else:
        process, length = model.work.process[ops], model.work.end[ops] - model.work.start[ops]
    known = process >= 0
    if not known.any():
        return -1
    total = np.bincount(process[known], weights=np.minimum(length[known], _LONGEST_NS))
    devices = np.unique(model.work.device[model.work.process == int(total.argmax())])
    return int(devices[0]) if len(devices) == 1 else -1


def look(analysis: Analysis, found: Found) -> Seen:
    """Count and time what a fix concerns."""
    model = analysis.replayed.model
    calls, ops = found.calls, found.ops
    if len(calls):
        length = found.host_ns if found.host_ns is not None else model.calls.end[calls] - model.calls.start[calls]
        step = step_of_calls(analysis, model)[calls]
        proof = _of_calls(analysis, found, length)
    else:
        length = model.work.end[ops] - model.work.start[ops]
        step = analysis.replayed.step[ops]
        proof = ()
    count = len(calls) or len(ops)
    all_steps = np.unique(analysis.replayed.step)
    return Seen(
        count=count,
        ns=int(length.sum()),
        longest_ns=int(length.max(initial=0)),
        steps=len(np.unique(step[step >= 0])),
        of_steps=int((all_steps >= 0).sum()),
        names=_names(analysis, calls) if found.host_ns is None else "",
        where=analysis.replayed.sampled,
        evidence=(*proof, *_of_ops(analysis, ops)),
    )


def _names(analysis: Analysis, calls: Ints) -> str:
    names = Counter(analysis.trace.array("calls", "name")[_rows(analysis, calls)].tolist())
    return ", ".join(text.clip(analysis.trace.name(code, "base"), 60) for code, _ in names.most_common(3))


def _rows(analysis: Analysis, calls: Ints) -> Ints:
    return analysis.replayed.model.calls.row[calls]


def _of_calls(analysis: Analysis, found: Found, length: Ints) -> tuple[Evidence, ...]:
    """The calls, longest first; of host work the calls behind it, and its own time as the window."""
    order = longest_first(length)
    rows = _rows(analysis, found.calls[order])
    first, calls = int(found.calls[order[0]]), analysis.replayed.model.calls
    end = int(calls.end[first]) if found.host_ns is None else int(calls.start[first])
    window = Window(min(int(calls.start[first]), end - int(length[order[0]])), max(end, int(calls.start[first]) + 1))
    tracks = tuple(np.unique(analysis.trace.array("calls", "track")[rows[:100]]).tolist())
    return (evidence("calls", rows, tracks=tracks, window=window),)


def _of_ops(analysis: Analysis, ops: Ints) -> tuple[Evidence, ...]:
    """The operations by the table that they are from, longest first."""
    work = analysis.replayed.model.work
    return of_rows(work, ops[longest_first(work.end[ops] - work.start[ops])])
