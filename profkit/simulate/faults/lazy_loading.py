"""PK206: modules are loaded long after the start."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import cuda
from profkit.simulate.engine import SAMPLER, Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def load(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed or step % planted.chance.integer("every", 3, 8) != 2:
        return
    share = 0.2 * planted.scale
    if planted.chance.happens("inside of a launch", 0.5):
        yield cuda.launch_loading(engine.stream, SAMPLER, 2_000, share, 1_500)
    else:
        yield cuda.module_load(1_500, share)


FAULT = Fault(
    name="lazy_loading",
    code="PK206",
    what="a module is loaded every few steps; fix: all at the start",
    needs=frozenset({"after_forward"}),
    at={"after_forward": load},
)
