"""PK304: cudaFree in every step waits for the device."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def release(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if not planted.fixed:
        yield memory.free(1_500)


FAULT = Fault(
    name="implicit_sync",
    code="PK304",
    what="each step frees device memory, which waits for the device; fix: a pool",
    needs=frozenset({"after_forward"}),
    at={"after_forward": release},
    scales=False,
)
