"""PK211: the launching thread is kept from running: by the scheduler, or by the interpreter's lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profkit.simulate.causes import GIL, OFF_CPU
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def recorded(planted: Planted, settings: dict[str, Any]) -> None:
    """Only what a trace holds can be found."""
    settings["recorded_waits"] = settings["recorded_waits"] | {OFF_CPU, GIL}


def wait(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed or step % planted.chance.integer("every", 1, 3):
        return
    host = engine.host
    ns = engine.own(int(engine.model.forward_ns * 0.5 * planted.scale), step, 44)
    yield host.gil_wait(ns, 2_000) if planted.chance.happens("gil", 0.5) else host.off_cpu(ns, 2_000)


FAULT = Fault(
    name="gil_or_descheduled",
    code="PK211",
    what="the launching thread waits for the GIL or for a CPU; fix: it does not",
    needs=frozenset({"step_end"}),
    at={"step_end": wait},
    setup=recorded,
)
