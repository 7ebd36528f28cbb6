"""What several scenarios draw in the same way."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import Engine, Model
from profkit.simulate.host import Host, Instruction
from profkit.simulate.plan import World


def eager_engine(world: World, host: Host, slack: float | None = None) -> Engine:
    """An engine that launches each kernel, with kernels long enough to keep the device busy.

    ``slack``: length of a kernel as a multiple of what its launch takes the host; drawn if None. Under 1 the engine is
    launch-bound.
    """
    chance = world.chance
    layers = int(world.settings.get("layers", chance.integer("layers", 8, 20)))
    dispatch = chance.integer("dispatch", 2_500, 9_000)
    ratio = world.settings.get("slack", slack) or chance.uniform("slack", 1.15, 2.2)
    per_kernel = dispatch + world.hardware.launch_kernel_ns
    unit = per_kernel * ratio * 11 / 82
    return _engine(world, host, Model(chance, layers, unit), dispatch)


def graph_engine(world: World, host: Host, whole: bool) -> Engine:
    """An engine that replays one graph a step."""
    chance = world.chance
    layers = int(world.settings.get("layers", chance.integer("layers", 8, 20)))
    dispatch = chance.integer("dispatch", 2_500, 9_000)
    engine = _engine(world, host, Model(chance, layers, chance.uniform("unit", 600, 1_500)), dispatch)
    engine.whole = whole
    return engine


def _engine(world: World, host: Host, model: Model, dispatch: int) -> Engine:
    chance = world.chance
    batch = chance.integer("batch", 1, 64)
    engine = Engine(world, host, model, dispatch, batch, host.process.default)
    engine.schedule_ns = int(model.forward_ns * chance.uniform("schedule", 0.01, 0.06))
    engine.detokenize_ns = int(model.forward_ns * chance.uniform("detokenize", 0.01, 0.06))
    return engine


def graph_program(engine: Engine) -> Iterator[Instruction]:
    """Warm up with launches, capture the graph, decode."""
    engine.host.begin_step("other")
    yield from engine.eager(0)
    yield from engine.finish()
    yield from engine.capture()
    yield from engine.decode(engine.world.steps)
    yield from engine.finish()
