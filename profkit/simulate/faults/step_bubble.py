"""PK102: the host schedules and detokenizes for longer than the device has work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def with_ranges(planted: Planted, settings: dict[str, Any]) -> None:
    """Without ranges no one could tell this work from other work."""
    settings["style"] = "profkit"


def work(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed:
        return
    for key, name in enumerate(("detokenize", "schedule")):
        with engine.stage(name, engine.batch):
            yield engine.host.work(engine.own(int(engine.model.forward_ns * 0.3 * planted.scale), step, 42 + key))


FAULT = Fault(
    name="step_bubble",
    code="PK102",
    what="each step's scheduling and detokenizing keeps the device waiting; fix: beside the work of the device",
    needs=frozenset({"step_end", "profkit_ranges"}),
    at={"step_end": work},
    setup=with_ranges,
)
