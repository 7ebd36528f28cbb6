"""PK307: memory is pinned for each upload."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def upload(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    size = max(int(planted.chance.integer("bytes", 1 << 16, 1 << 21) * planted.scale), 4096)
    if not planted.fixed and not planted.free:
        registers = planted.chance.happens("cudaHostRegister", 0.3)
        yield (memory.host_register if registers else memory.host_alloc)(size, 1_500)
    yield memory.copy_async(engine.stream, memory.H2D, size, after=1_500)


FAULT = Fault(
    name="pin_per_call",
    code="PK307",
    what="each step allocates pinned memory for its upload; fix: allocated once",
    needs=frozenset({"inputs"}),
    at={"inputs": upload},
    partly=True,  # the upload is there either way: the fault is the pinning
)
