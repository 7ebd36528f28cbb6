"""PK602: one rank comes late to each collective."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def delay(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    late = planted.chance.integer("rank", 0, 1)
    if not planted.fixed and engine.host.process.rank == late:
        yield engine.host.work(engine.own(int(engine.model.forward_ns * 0.05 * planted.scale), step, 45))


FAULT = Fault(
    name="straggler",
    code="PK602",
    what="one rank is late at each collective; fix: it is not",
    needs=frozenset({"before_collective"}),
    at={"before_collective": delay},
)
