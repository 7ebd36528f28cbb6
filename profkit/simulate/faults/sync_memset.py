"""PK309: cudaMemset of pinned host memory, which waits for its end."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def clear(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    size = planted.chance.integer("bytes", 1 << 10, 1 << 17)
    call = memory.memset_async if planted.fixed else memory.memset
    for _ in range(max(round(planted.chance.integer("calls", 1, 3) * planted.scale), 1)):
        yield call(engine.null_stream, size, memory.PINNED, after=1_500)


FAULT = Fault(
    name="sync_memset",
    code="PK309",
    what="each step clears pinned memory with cudaMemset; fix: cudaMemsetAsync",
    needs=frozenset({"inputs", "null_stream"}),
    at={"inputs": clear},
)
