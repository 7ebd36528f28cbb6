"""PK302: cudaMemcpy, which waits for its copy, from pinned memory."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def upload(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    size = planted.chance.integer("bytes", 1 << 12, 1 << 19)
    call = memory.copy_async if planted.fixed else memory.copy
    for _ in range(max(round(planted.chance.integer("copies", 1, 3) * planted.scale), 1)):
        yield call(engine.null_stream, memory.H2D, size, memory.PINNED, after=2_000)


FAULT = Fault(
    name="sync_copy",
    code="PK302",
    what="each step uploads with cudaMemcpy from pinned memory; fix: cudaMemcpyAsync on the same stream",
    needs=frozenset({"inputs", "null_stream"}),
    at={"inputs": upload},
)
