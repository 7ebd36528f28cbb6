"""Kernels far longer than their launches and no one who waits: the launch queue fills and blocks the host."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


def build(world: World) -> None:
    world.settings.setdefault("slack", world.chance.uniform("queue slack", 2.5, 4.0))
    host = world.host(world.process(), "python3", main=True)
    host.run(program(eager_engine(world, host, RunningAhead)))


class RunningAhead(Engine):
    """It never reads its tokens: they stay on the device."""

    def readback(self, step: int) -> Iterator[Instruction]:
        return iter(())


def program(engine: Engine) -> Iterator[Instruction]:
    yield from engine.decode(engine.world.steps)
    yield from engine.finish()


SCENARIO = Scenario(
    name="queue_full",
    what="a host that runs ahead until 1,024 operations wait",
    offers=(STEP_POINTS - {"readback"}) | {"layer", "null_stream"},
    build=build,
)
