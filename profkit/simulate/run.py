"""From a seed to a trace and its truth: draw the program and the faults, run, and price each fault by running again."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from profkit.errors import UsageError
from profkit.plugins import discover
from profkit.simulate.causes import GIL, OFF_CPU, OS_WAIT, IdleLog
from profkit.simulate.chance import Chance
from profkit.simulate.core import Simulation
from profkit.simulate.hardware import draw_hardware
from profkit.simulate.plan import FIXED, FREE, PLANTED, Fault, Planted, Scenario, World
from profkit.simulate.records import Recorder

RANDOM, NONE = "random", "none"
SKIPPED_STEPS = 2
"""Steps at the beginning that count for no mean."""
_TRIAL_STEPS = 14
_TRIALS = 6
_LEAST_SHARE, _MOST_SHARE = 0.02, 0.4
"""Of a step: what a planted fault usually saves."""
_FELT_SHARE = 0.01
"""A fault that saves less is not drawn."""
_STYLES = ("profkit", "profkit", "profkit", "vllm", "none")


def scenarios() -> dict[str, Scenario]:
    return discover("profkit.simulate.scenarios", "SCENARIO", Scenario)


def faults() -> dict[str, Fault]:
    return discover("profkit.simulate.faults", "FAULT", Fault)


@dataclass(frozen=True)
class Plan:
    """What to simulate: everything that is not the mode of a fault. ``faults``: (fault, scale)."""

    seed: int
    scenario: Scenario
    faults: tuple[tuple[Fault, float], ...]
    steps: int
    settings: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Times:
    """What a run took, ns. ``step_ns`` is the mean period of the decoding steps; -1 where there are too few."""

    window: tuple[int, int]
    step_ns: int

    @property
    def window_ns(self) -> int:
        return self.window[1] - self.window[0]


def make_plan(seed: int, scenario: str = RANDOM, fault: str = NONE, steps: int = 0) -> Plan:
    """Draw what is left open. Raises UsageError for a name that does not exist, or a fault that does not fit."""
    chance = Chance(seed, "plan/")
    known, kinds = scenarios(), faults()
    if fault not in (RANDOM, NONE) and fault not in kinds:
        raise UsageError(f"no fault {fault!r}: there are {', '.join(kinds)}, {NONE} and {RANDOM}")
    if scenario == RANDOM:
        fitting = [s for s in known.values() if fault in (RANDOM, NONE) or kinds[fault].needs <= s.offers]
        chosen = chance.choice("scenario", fitting)
    elif scenario in known:
        chosen = known[scenario]
    else:
        raise UsageError(f"no scenario {scenario!r}: there are {', '.join(known)} and {RANDOM}")
    if fault in kinds and not kinds[fault].needs <= chosen.offers:
        fits = ", ".join(s.name for s in known.values() if kinds[fault].needs <= s.offers)
        raise UsageError(f"scenario {chosen.name} cannot have {fault}: it fits {fits}")
    plan = Plan(seed, chosen, (), steps or chosen.steps, tuple(_settings(chance).items()))
    if fault == RANDOM:
        return replace(plan, faults=_drawn_faults(plan, chance, list(kinds.values())))
    planted = [] if fault == NONE else [kinds[fault]]
    return replace(plan, faults=tuple((kind, _sized(plan, kind, chance)) for kind in planted))


def _settings(chance: Chance) -> dict[str, Any]:
    """How the program is instrumented and recorded."""
    waits = [cause for cause in (OS_WAIT, OFF_CPU, GIL) if chance.happens(f"recorded/{cause}", 0.8)]
    return {
        "style": chance.choice("style", _STYLES),
        "recorded_waits": frozenset(waits),
        "overhead_ns": chance.choice("overhead", (0, 0, 0, 600, 1_500)),
        "flush_every": chance.choice("flush", (0, 0, 0, 9)),
        "lost_calls": chance.choice("lost calls", (0, 0, 0, 0, 0, 0, 0, 60)),
    }


def _drawn_faults(plan: Plan, chance: Chance, kinds: list[Fault]) -> tuple[tuple[Fault, float], ...]:
    """Up to three faults, with their sizes, that the scenario can have and that do not exclude each other.

    One that is not felt, or beside which an earlier one is not felt any more, is left out.
    """
    order = _shuffled([fault for fault in kinds if fault.needs <= plan.scenario.offers], chance)
    wanted = chance.choice("number of faults", (0, 1, 1, 1, 2, 2, 3))
    chosen: tuple[tuple[Fault, float], ...] = ()
    for fault in order:
        if len(chosen) >= wanted:
            break
        taken = {part for other, _ in chosen for part in other.instead}
        if taken & set(fault.instead) or (fault.alone and wanted > 1):
            continue
        more = (*chosen, (fault, _sized(replace(plan, faults=chosen), fault, chance)))
        if all(_share(replace(plan, faults=more), each) >= _FELT_SHARE for each, _ in more):
            chosen = more
    return chosen


def _shuffled(kinds: list[Fault], chance: Chance) -> list[Fault]:
    """In random order; what few scenarios can have stands in front more often where it can be had."""
    draw = chance.stream("faults")
    known = scenarios().values()
    fits = {fault.name: sum(fault.needs <= scenario.offers for scenario in known) / len(known) for fault in kinds}
    return sorted(kinds, key=lambda fault: -(draw.random() ** fits[fault.name]))


def _share(plan: Plan, fault: Fault) -> float:
    """Share of the window that the fix of a planted fault saves."""
    world = build(plan, {})
    before = run(world)
    return 1 - simulate(plan, {fault.name: FIXED}, world.decisions).window_ns / before.window_ns


def _sized(plan: Plan, fault: Fault, chance: Chance) -> float:
    """A size at which the fault saves about a drawn share of the window, found by trial beside what is planted."""
    if not fault.scales:
        return 1.0
    target = chance.uniform(f"share/{fault.name}", 0.04, 0.3)
    least, most = max(target * 0.6, _LEAST_SHARE), min(target * 1.6, _MOST_SHARE)
    scale, low, high = 1.0, 0.0, 0.0
    for _ in range(_TRIALS):
        more = (*plan.faults, (fault, scale))
        share = _share(replace(plan, faults=more, steps=min(plan.steps, _TRIAL_STEPS)), fault)
        if least <= share <= most:
            break
        low, high = (scale, high) if share < target else (low, scale)
        scale = scale * 4 if not high else (low + high) / 2 if low else scale / 4
    return scale


def build(
    plan: Plan,
    modes: dict[str, str],
    recorder: Recorder | None = None,
    idle: IdleLog | None = None,
    follow: Sequence[bool] | None = None,
) -> World:
    """The world of a run before anything has happened.

    ``modes`` of faults: PLANTED where not named. ``follow``: decisions of another run, which are made here too.
    """
    chance = Chance(plan.seed, f"{plan.scenario.name}/")
    settings = dict(plan.settings)
    simulation = Simulation(draw_hardware(Chance(plan.seed)), recorder, idle)
    planted = [
        Planted(fault, modes.get(fault.name, PLANTED), scale, chance.child(f"fault/{fault.name}"))
        for fault, scale in plan.faults
    ]
    world = World(simulation, chance, plan.steps, planted, settings, follow=follow)
    simulation.recorded_waits = settings["recorded_waits"]
    plan.scenario.build(world)
    return world


def run(world: World) -> Times:
    """Let it happen."""
    with _no_collection():
        world.simulation.run()
    if world.simulation.recorder is not None:
        world.simulation.recorder.flush()
    return Times(world.simulation.window(), _step_ns(world))


def simulate(plan: Plan, modes: dict[str, str] | None = None, follow: Sequence[bool] | None = None) -> Times:
    """Run for the times alone."""
    return run(build(plan, modes or {}, follow=follow))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Operations make no cycles worth looking for, and there are many of them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _step_ns(world: World) -> int:
    """Mean period of the decoding steps of the main thread, from the end of one step's GPU work to that of the next.

    Only periods between two decoding steps in a row; without such steps those of all kinds.
    """
    steps = [step for step in world.main.steps if step.gpu_end >= 0] if world.main is not None else []
    for kinds in (("decode",), ("decode", "mixed", "prefill", "other")):
        periods = [
            after.gpu_end - before.gpu_end
            for before, after in pairwise(steps)
            if before.kind in kinds and after.kind in kinds
        ]
        periods = periods[SKIPPED_STEPS:]
        if periods:
            return round(sum(periods) / len(periods))
    return -1


def prices(plan: Plan, times: Times, decisions: Sequence[bool]) -> list[dict[str, Any]]:
    """Cost and saving of each planted fault: the difference to a run with that fault free, or fixed."""
    out = []
    for fault, _ in plan.faults:
        free, fixed = (simulate(plan, {fault.name: mode}, decisions) for mode in (FREE, FIXED))
        known = min(times.step_ns, free.step_ns, fixed.step_ns) >= 0
        out.append(
            {
                "fault": fault.name,
                "code": fault.code,
                "cost_ns": times.window_ns - free.window_ns,
                "saving_ns": times.window_ns - fixed.window_ns,
                "cost_ns_per_step": times.step_ns - free.step_ns if known else None,
                "saving_ns_per_step": times.step_ns - fixed.step_ns if known else None,
            }
        )
    return out


def truth_head(plan: Plan, times: Times, decisions: Sequence[bool]) -> dict[str, Any]:
    """The content of a truth file, all but its idle time."""
    return {
        "schema": "profkit.simulate/1",
        "profkit_version": version("profkit"),
        "simulated": True,
        "seed": plan.seed,
        "scenario": plan.scenario.name,
        "steps": plan.steps,
        "window_ns": times.window_ns,
        "step_ns": times.step_ns if times.step_ns >= 0 else None,
        "faults": prices(plan, times, decisions),
    }
