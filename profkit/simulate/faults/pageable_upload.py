"""PK301: a copy from pageable memory in every step."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import memory
from profkit.simulate.engine import Engine
from profkit.simulate.hardware import SMALL_COPY_BYTES
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def upload(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    """The same bytes, from pinned memory that is already there if fixed."""
    size = max(int(planted.chance.integer("bytes", 1 << 20, 8 << 20) * planted.scale), SMALL_COPY_BYTES + 1)
    kind = memory.PINNED if planted.fixed else memory.PAGEABLE
    yield memory.copy_async(engine.null_stream, memory.H2D, size, kind, after=2_000)


FAULT = Fault(
    name="pageable_upload",
    code="PK301",
    what="each step uploads from pageable memory; fix: from pinned memory, allocated once",
    needs=frozenset({"inputs", "null_stream"}),
    at={"inputs": upload},
)
