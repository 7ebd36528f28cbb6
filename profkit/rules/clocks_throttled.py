"""PK403 clocks fall under load.

What it finds
    Samples of the SM clock (GPC clock) while the GPU worked, 40 or more, in ten parts of equal count: a part after the
    fastest one with a median under 95 % of it, in which the GPU was busy half of the time or more. And a run whose
    fastest part stays under 80 % of the boost clock that the driver names. Power and reasons for throttling are quoted
    where they were sampled.

Why it costs time
    Kernels that compute take as much longer as the clock is lower. A comparison of two captures at two clocks says
    nothing about the program.

How the cost is computed
    cost: the busy time of each slow part times what its clock is short of the fastest part's; so much would be gone
    if every kernel followed the clock. Kernels that wait for memory do not: the saving is not known.

What to do
    nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE names the reason: raise the power limit, cool better, spread the
    load. To compare two programs, fix the clocks of both (nvidia-smi -lgc).

When it is wrong
    Clocks that were fixed below their boost on purpose are no fault. A clock that falls with the load's own kind (large
    GEMMs draw more power than decode) is the GPU at its limit, as designed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from profkit import text
from profkit.analysis.busy import Runs
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals
from profkit.model import Array, Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_gpu_rows
from profkit.rules._price import priced
from profkit.testing import build_trace, counter, kernel

FEWEST = 40
"""Samples under load: four for each part."""
PARTS = 10
FALLS = 0.95
"""Of the fastest part's median: boost clocks of a busy GPU move by some steps of 15 MHz, about 3 %."""
BUSY = 0.5
"""Of a part: a GPU that mostly waits lowers its clock because it may."""
LOW = 0.80
"""Of the boost clock: under sustained load a GPU may well stay 10 % below it."""
_WARNS = 0.90
"""A clock that falls so far makes other numbers of this capture doubtful."""
_CLOCK = re.compile(r"\b(?:gpc|sm|graphics|gr)\b.*clock|clock.*\b(?:gpc|sm|graphics)\b", re.IGNORECASE)
_NO_CLOCK = re.compile(r"throttl|reason|event|max", re.IGNORECASE)
_POWER = re.compile(r"\bpower\b", re.IGNORECASE)
_REASON = re.compile(r"throttl|slowdown|power.?brake|clocks?.(?:event.)?reason", re.IGNORECASE)
_SCALES = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}


@dataclass(frozen=True)
class Clocks:
    """Samples of a device's SM clock while it worked, in order of time."""

    device: int
    counter: int
    time: Ints
    hertz: Array


def check(analysis: Analysis) -> Iterator[Finding]:
    for clocks in _clocks(analysis):
        yield from _judge(analysis, clocks)


def _judge(analysis: Analysis, clocks: Clocks) -> Iterator[Finding]:
    bounds = np.linspace(0, len(clocks.time), PARTS + 1).astype(int)
    level = np.asarray([np.median(clocks.hertz[a:b]) for a, b in pairwise(bounds)])
    best = int(np.argmax(level))
    edges = np.append(clocks.time[bounds[:-1]], clocks.time[-1])
    busy = _busy(analysis, clocks.device).covered(edges[:-1], edges[1:])
    low = (level < FALLS * level[best]) & (np.arange(PARTS) > best) & (busy >= BUSY * np.diff(edges))
    boost = int(analysis.trace.array("devices", "clock_hz")[clocks.device])
    if low.any():
        yield _falls(analysis, clocks, edges, busy, level, low)
    elif boost > 0 and level[best] < LOW * boost:
        yield _stays_low(analysis, clocks, float(level[best]), boost)


def _falls(analysis: Analysis, clocks: Clocks, edges: Ints, busy: Ints, level: Array, low: Mask) -> Finding:
    device, trace = clocks.device, analysis.trace
    before, after = float(level.max()), float(np.median(level[low]))
    cost = np.rint(busy * (1 - level / before) * low).astype(np.int64)
    first = int(np.flatnonzero(low)[0])
    since = int(edges[first])
    taken = int(busy[low].sum())
    beside, facts = _beside(trace, clocks, since)
    share = taken / max(int(busy.sum()), 1)
    finding = priced(
        analysis,
        device=device,
        cost=cost[cost > 0],
        saving=-1,
        step=np.full(int((cost > 0).sum()), -1),
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:falls:",
        message=(
            f"The SM clock of {analysis.device_name(device)} fell under load from {_mhz(before)} to {_mhz(after)} "
            f"({text.percent(1 - after / before)} less) from {text.moment(since)} on: {text.percent(share)} of "
            f"{text.ns(int(busy.sum()))} of busy time was slow{beside}"
        ),
        cause="a limit of power or temperature, or clocks that were set lower meanwhile",
        advice=RULE.advice,
        facts={
            "before_hz": round(before),
            "after_hz": round(after),
            "since_ns": since,
            "slow_busy_ns": taken,
            "busy_ns": int(busy.sum()),
            "samples": len(clocks.time),
            "counter": text.clip(trace.text("counter_names", "name")[clocks.counter], 80),
            **facts,
        },
    )
    return replace(finding, severity="warning") if after < _WARNS * before else finding


def _stays_low(analysis: Analysis, clocks: Clocks, best: float, boost: int) -> Finding:
    name = analysis.trace.text("counter_names", "name")[clocks.counter]
    beside, facts = _beside(analysis.trace, clocks, int(clocks.time[0]))
    return Finding(
        code=RULE.code,
        title="Clocks below boost throughout",
        key=f"{RULE.code}:{clocks.device}:low:",
        message=(
            f"The SM clock of {analysis.device_name(clocks.device)} never passed {_mhz(best)} under load, "
            f"{text.percent(best / boost)} of its boost clock of {_mhz(boost)}{beside}"
        ),
        cause="clocks that were fixed, or a limit of power or temperature from the start",
        advice=RULE.advice,
        facts={
            "fastest_hz": round(best),
            "boost_hz": boost,
            "samples": len(clocks.time),
            "counter": text.clip(name, 80),
            **facts,
        },
    )


def _mhz(hertz: float) -> str:
    return f"{hertz / 1e6:,.0f} MHz"


def _clocks(analysis: Analysis) -> list[Clocks]:
    """Samples of SM clocks, one entry a device that has enough of them under load."""
    out: list[Clocks] = []
    for device, row, time, value in _samples(analysis.trace, _CLOCK, _NO_CLOCK):
        scale = _scale(analysis.trace, row, value)
        busy = _busy(analysis, device)
        under_load = busy.covered(time, time + 1) > 0
        under_load &= value > 0
        if scale and int(under_load.sum()) >= FEWEST and device not in [found.device for found in out]:
            out.append(Clocks(device, row, time[under_load], value[under_load] * scale))
    return out


def _samples(trace: Trace, wanted: re.Pattern[str], but: re.Pattern[str]) -> list[tuple[int, int, Ints, Array]]:
    """(device, counter, times, values) of counters by name, in order of time; inside a window or not."""
    counter, track = trace.array("counters", "counter"), trace.array("counters", "track")
    device = np.append(trace.array("tracks", "device"), -1)[track]
    out = []
    for row, name in enumerate(trace.text("counter_names", "name")):
        if not wanted.search(name) or but.search(name):
            continue
        mine = counter == row
        for one in np.unique(device[mine]).tolist():
            rows = np.flatnonzero(mine & (device == one))
            rows = rows[np.argsort(trace.array("counters", "time_ns")[rows], kind="stable")]
            value = trace.array("counters", "value")[rows]
            sound = np.isfinite(value)
            if one >= 0:
                out.append((one, row, trace.array("counters", "time_ns")[rows][sound], value[sound]))
    return out


def _scale(trace: Trace, row: int, value: Array) -> float:
    """What turns values of a clock into Hz; 0 where their unit is not known."""
    unit = trace.text("counter_names", "unit")[row]
    named = re.search(r"[kMG]?Hz", trace.text("counter_names", "name")[row])
    if unit in _SCALES:
        return _SCALES[unit]
    if named is None or not len(value):
        return 0.0
    # Some versions of nsys write Hz under a name that says MHz.
    return 1.0 if named[0] == "MHz" and float(value.max()) > 100_000 else _SCALES[named[0]]


def _busy(analysis: Analysis, device: int) -> Intervals:
    none = np.zeros(0, np.int64)
    runs: Runs | None = next((runs for runs in analysis.runs if runs.owner == device), None)
    return Intervals(none, none) if runs is None else Intervals(runs.start, runs.end)


def _beside(trace: Trace, clocks: Clocks, since: int) -> tuple[str, dict[str, int | float | str]]:
    """What was sampled of power and of reasons for throttling, in words and as facts."""
    words = ""
    facts: dict[str, int | float | str] = {}
    for device, row, time, value in _samples(trace, _POWER, _REASON):
        late = value[(time >= since) & (time <= clocks.time[-1])]
        if device == clocks.device and len(late) and not facts:
            name = text.clip(trace.text("counter_names", "name")[row], 60)
            words += f"; {name} was {np.median(late):,.0f} (median) then"
            facts["power_counter"], facts["power_p50"] = name, float(np.median(late))
    for device, row, time, value in _samples(trace, _REASON, re.compile("$^")):
        late = value[(time >= since) & (time <= clocks.time[-1])]
        if device == clocks.device and len(late) and (late != 0).any():
            name = text.clip(trace.text("counter_names", "name")[row], 60)
            words += f"; {name} was set in {text.percent(float((late != 0).mean()))} of its samples then"
            facts[f"reason_{len(facts)}"] = name
            break
    return words, facts


def _unmet(analysis: Analysis) -> str:
    trace = analysis.trace
    if reason := needs_gpu_rows(analysis):
        return reason
    if not trace.rows("counters"):
        return trace.why_missing("counters") or "no GPU counters were recorded"
    if not _samples(trace, _CLOCK, _NO_CLOCK):
        return "no counter of the SM clock is among those recorded"
    return "" if _clocks(analysis) else f"fewer than {FEWEST} samples of the SM clock fall into busy time"


def _run(after: float) -> Trace:
    """A second of work; from 0.5 s on the clock is ``after`` MHz."""
    rows = [kernel(i * 10_000_000, 9_900_000) for i in range(100)]
    rows += [
        counter(i * 10_000_000 + 5_000_000, "GPC Clock Frequency [MHz]", 1_980.0 if i < 50 else after)
        for i in range(100)
    ]
    return build_trace(*rows, gpu={"name": "H100", "clock_hz": 1_980_000_000})


def fires() -> Trace:
    return _run(1_410.0)


def quiet() -> Trace:
    return _run(1_950.0)


RULE = Rule(
    code="PK403",
    title="Clocks fall under load",
    unmet=_unmet,
    check=check,
    advice="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE names the reason; fix clocks to compare runs (-lgc).",
    fires=fires,
    quiet=quiet,
    record="nsys profile --gpu-metrics-devices=all samples clocks; it needs permission to read counters.",
)
