"""A batch of prompts, all there at once: some steps of prefill, then decoding to the end."""

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
    chance = engine.world.chance
    prompts = chance.integer("prompts", 2, 5)
    tokens = [chance.integer(f"prompt/{number}", 128, 2048) for number in range(prompts)]
    yield from engine.begin()
    with engine.stage("tokenize", sum(tokens)):
        yield engine.host.work(sum(tokens) * 700)
    for number, count in enumerate(tokens):
        yield from engine.prefill_step(number, count)
    yield from engine.decode(engine.world.steps, first=prompts)
    yield from engine.finish()


SCENARIO = Scenario(
    name="offline_batch",
    what="all prompts at once: prefill, then decoding",
    offers=STEP_POINTS | {"layer", "null_stream"},
    build=build,
)
