"""PK206: modules are loaded long after the start."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import cuda
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def load(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if not planted.fixed and step % planted.chance.integer("every", 3, 8) == 2:
        yield cuda.module_load(1_500, 0.2 * planted.scale)


FAULT = Fault(
    name="lazy_loading",
    code="PK206",
    what="a module is loaded every few steps; fix: all at the start",
    needs=frozenset({"after_forward"}),
    at={"after_forward": load},
)
