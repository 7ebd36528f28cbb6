"""PK303: the tokens of each step are read at once, into pageable memory, as ``.item()`` does."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import events, memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def read(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed:
        yield from engine.readback(step)
    elif not planted.free:
        yield memory.copy_async(engine.stream, memory.D2H, 8 * engine.batch, memory.PAGEABLE, after=3_000)
        yield events.synchronize_stream(engine.stream, 500)


FAULT = Fault(
    name="readback_sync",
    code="PK303",
    what="each step reads its tokens into pageable memory and waits; fix: one step later, from pinned memory",
    needs=frozenset({"readback"}),
    instead={"readback": read},
    scales=False,
)
