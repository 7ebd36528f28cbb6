"""What a reader of a PyTorch trace has to say about it: what is missing, was mended, or looks wrong, each once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from profkit import text
from profkit.builder import Builder
from profkit.ingest.kineto.mend import NOT_FINITE, Damage
from profkit.ingest.kineto.source import line_of
from profkit.model import Trace
from profkit.schema import DEVICE_TABLES, FLAG_BEFORE_ITS_LAUNCH

if TYPE_CHECKING:
    from profkit.ingest.kineto.pairs import Paired

_LAUNCH = re.compile(r"Launch")
_NO_GPU = re.compile(r"category (mtia|hpu|npu|glow|privateuse1)")


def say_damage(builder: Builder, path: Path, damage: Damage) -> None:
    """One warning for what was mended, by reason, and one for what was left out, with the place of the first."""
    for reason, count in damage.mended.items():
        what = "value ignored" if reason == NOT_FINITE else "event mended"
        plural = "values ignored" if reason == NOT_FINITE else "events mended"
        builder.warnings.append(f"{text.count(count, what, plural)}: {reason}, {_place(path, damage.first[reason])}")
    if damage.lost:
        builder.warnings.append(
            f"{text.count(damage.lost, 'event')} left out: not JSON (quotes inside a text?), "
            f"{_place(path, damage.first['lost'])}"
        )


def _place(path: Path, at: int) -> str:
    return f"first in line {line_of(path, at)}, at byte {at}"


def say_ignored(builder: Builder, ignored: Counter[str]) -> None:
    """One warning for categories that are not read; devices that are no GPU are called so."""
    if not ignored:
        return
    other = any(_NO_GPU.match(what) for what in ignored)
    builder.warnings.append(
        f"events not read: {listed(ignored)}" + ("; the device is no GPU: profkit reads GPUs only" if other else "")
    )


def listed(ignored: Counter[str]) -> str:
    return ", ".join(f"{count} of {what}" for what, count in ignored.most_common(6))


def say_halves(builder: Builder, threads: Paired, others: Paired) -> None:
    """Begins and ends without their other half."""
    open_, alone = threads.open + others.open, threads.ends_alone + others.ends_alone
    if open_ or alone:
        builder.warnings.append(
            f"{text.count(open_ + alone, 'begin or end event')} without the other half: "
            f"{open_} opened only (drawn to the end of the capture), {alone} closed only (left out)"
        )
    lost = threads.without_time + others.without_time
    if lost:
        builder.warnings.append(f"{text.count(lost, 'range')} left out: the begin or the end has no time, or time 0")


def say_missing(builder: Builder, legacy: bool) -> None:
    """Why tables hold nothing."""
    builder.miss("os_calls", "the PyTorch profiler does not record operating system calls")
    if not any(builder.count(table) for table in ("kernels", "copies")):
        launches = builder.count_calls(lambda name: _LAUNCH.search(name) is not None)
        if legacy:
            why = "legacy list form without GPU activity"
        elif launches:
            why = (
                "no GPU kernels in this capture, although kernels were launched; likely causes: another profiler held "
                "CUPTI, records were lost or out of the window, or the platform (WSL, Windows) gives none"
            )
        else:
            why = "no GPU activity in this trace: it ran on the CPU, or the profiler was not asked for CUDA"
        for table in ("kernels", "copies", "graphs"):
            builder.miss(table, why)
    for table, what in (
        ("calls", "CUDA calls"),
        ("spans", "operators or annotations"),
        ("syncs", "synchronisation records"),
        ("allocs", "allocations (profile_memory was off)"),
    ):
        if not builder.count(table):
            builder.miss(table, f"no {what} in this trace")


def explanations(trace: Trace) -> list[str]:
    """Notes on why device rows have no launch delay: no correlation ids, or a start before their launch."""
    out: list[str] = []
    total = sum(trace.rows(table) for table in DEVICE_TABLES)
    known = sum(int((trace.array(table, "correlation") >= 0).sum()) for table in DEVICE_TABLES)
    if total and not known:
        out.append("the GPU rows carry no correlation ids: launch delays and what launched a kernel are not known")
    lead = _lead(trace)
    if lead > 0:
        out.append(
            f"clock skew: a GPU row begins up to {text.ns(lead)} before its launch call; such rows have no launch delay"
        )
    return out


def _lead(trace: Trace) -> int:
    """The longest time by which a kernel or a copy begins before its call."""
    from profkit.arrays import first_match, pack

    longest = 0
    for table in DEVICE_TABLES:
        rows = np.flatnonzero(trace.array(table, "flags") & FLAG_BEFORE_ITS_LAUNCH)
        if not len(rows):
            continue
        calls, keys = pack([[trace.array("calls", c), trace.array(table, c)[rows]] for c in ("process", "correlation")])
        call = first_match(calls, keys)
        longest = max(
            longest, int((trace.array("calls", "start_ns")[call] - trace.array(table, "start_ns")[rows]).max())
        )
    return longest
