"""PK210: cudaMalloc in every step."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def allocate(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if not planted.fixed:
        for _ in range(max(round(planted.chance.integer("calls", 1, 3) * planted.scale), 1)):
            yield memory.malloc(1 << 21, 1_500)


FAULT = Fault(
    name="allocator_in_step",
    code="PK210",
    what="each step allocates device memory; fix: allocated once",
    needs=frozenset({"after_forward"}),
    at={"after_forward": allocate},
)
