"""Decoding with one launch a kernel, long kernels: the device is busy."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


def build(world: World) -> None:
    host = world.host(world.process(), "python3", main=True)
    host.run(program(eager_engine(world, host)))


def program(engine: Engine) -> Iterator[Instruction]:
    yield from engine.decode(engine.world.steps)
    yield from engine.finish()


SCENARIO = Scenario(
    name="eager_decode",
    what="decoding, each kernel launched by the host",
    offers=STEP_POINTS | {"layer", "eager_forward", "null_stream"},
    build=build,
)
