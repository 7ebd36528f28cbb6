"""Weights of adapters come in and keys and values go out beside each step, on side streams ordered by events."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import events, memory
from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Instruction
from profkit.simulate.ops import NON_BLOCKING
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


def build(world: World) -> None:
    host = world.host(world.process(), "python3", main=True)
    host.run(program(eager_engine(world, host)))


def program(engine: Engine) -> Iterator[Instruction]:
    chance, process, main = engine.world.chance, engine.host.process, engine.stream
    incoming, outgoing = process.stream(NON_BLOCKING), process.stream(NON_BLOCKING)
    step_bytes = engine.model.forward_ns * engine.world.hardware.pinned_h2d_bytes_per_us // 1000
    weights = int(step_bytes * chance.uniform("weights", 0.1, 0.6))
    cache = int(step_bytes * chance.uniform("cache", 0.05, 0.4))
    loaded, ready = events.Event(), events.Event()
    yield from engine.begin()
    yield memory.memset_async(main, 1 << 22, after=2_000)
    yield memory.copy_async(incoming, memory.H2D, weights, after=2_000)
    yield events.record_event(incoming, loaded, 300)
    for step in range(engine.world.steps):
        yield events.wait_event(main, loaded, 1_000)
        yield from engine.decode_step(step)
        yield memory.copy_async(main, memory.D2D, cache // 4, after=1_500)
        yield events.record_event(main, ready, 300)
        yield events.wait_event(outgoing, ready, 300)
        yield memory.copy_async(outgoing, memory.D2H, cache, after=1_500)
        yield memory.copy_async(incoming, memory.H2D, weights, after=1_500)
        loaded = events.Event()
        yield events.record_event(incoming, loaded, 300)
    yield events.synchronize_device(2_000)


SCENARIO = Scenario(
    name="copy_heavy",
    what="adapter weights in, keys and values out, on side streams",
    offers=STEP_POINTS | {"layer", "null_stream"},
    build=build,
)
