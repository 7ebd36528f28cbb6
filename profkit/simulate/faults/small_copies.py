"""PK306: many uploads of a few bytes."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def upload(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    count = max(round(planted.chance.integer("copies", 6, 24) * planted.scale), 2)
    size = planted.chance.integer("bytes", 64, 8192)
    if planted.fixed:
        yield memory.copy_async(engine.stream, memory.H2D, size * count, after=1_500)
        return
    for _ in range(count):
        yield memory.copy_async(engine.stream, memory.H2D, size, after=1_500)


FAULT = Fault(
    name="small_copies",
    code="PK306",
    what="each step makes many small uploads; fix: one with all of the bytes",
    needs=frozenset({"inputs"}),
    at={"inputs": upload},
)
