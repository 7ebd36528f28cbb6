"""Two ranks, each a process on its own GPU, with two all-reduces a layer."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine

RANKS = 2


def build(world: World) -> None:
    for rank in range(RANKS):
        host = world.host(world.process(rank, rank), f"rank {rank}", main=rank == 0)
        host.run(program(eager_engine(world, host, parallel=True)))


def program(engine: Engine) -> Iterator[Instruction]:
    yield from engine.decode(engine.world.steps)
    yield from engine.finish()


SCENARIO = Scenario(
    name="tensor_parallel",
    what="decoding on two GPUs, tensor parallel",
    offers=(STEP_POINTS - {"kernels"}) | {"layer", "null_stream", "before_collective"},
    build=build,
    steps=24,
    processes=RANKS,
)
