"""PK212: the host stops now and then, as for garbage collection."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def pause(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if not planted.fixed and step % planted.chance.integer("every", 4, 9) == 3:
        yield engine.host.work(engine.own(int(engine.model.forward_ns * planted.scale), step, 41))


FAULT = Fault(
    name="host_stalls",
    code="PK212",
    what="the host pauses in some steps; fix: it does not",
    needs=frozenset({"step_end"}),
    at={"step_end": pause},
)
