"""What several scenarios draw in the same way."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import Engine, Model
from profkit.simulate.host import Host, Instruction
from profkit.simulate.plan import World

_UNITS_A_KERNEL = 82 / 11
"""Mean length of a kernel of the model, in its units."""


def eager_engine(world: World, host: Host, kind: type[Engine] = Engine, parallel: bool = False) -> Engine:
    """An engine that launches each kernel, with kernels long enough to keep the device busy.

    ``slack`` of the settings is the length of a kernel as a multiple of what its launch takes the host: drawn if it is
    not there; under 1 the engine is launch-bound.
    """
    chance = world.chance
    dispatch = chance.integer("dispatch", 2_500, 9_000)
    slack = world.settings.get("slack") or chance.uniform("slack", 1.15, 2.2)
    unit = (dispatch + world.hardware.launch_kernel_ns) * slack / _UNITS_A_KERNEL
    return _engine(world, host, kind, Model(chance, _layers(world), unit, parallel), dispatch)


def graph_engine(world: World, host: Host, whole: bool = False) -> Engine:
    """An engine that replays one graph a step."""
    chance = world.chance
    unit = world.settings.get("unit") or chance.uniform("unit", 600, 1_500)
    model = Model(chance, _layers(world), unit)
    engine = _engine(world, host, Engine, model, chance.integer("dispatch", 2_500, 9_000))
    engine.whole = whole
    return engine


def graph_program(engine: Engine) -> Iterator[Instruction]:
    """Warm up with launches, capture the graph, decode."""
    engine.host.begin_step("other")
    yield from engine.eager(0)
    yield from engine.finish()
    yield from engine.capture()
    yield from engine.decode(engine.world.steps)
    yield from engine.finish()


def _layers(world: World) -> int:
    return world.chance.integer("layers", 8, 20)


def _engine(world: World, host: Host, kind: type[Engine], model: Model, dispatch: int) -> Engine:
    chance = world.chance
    engine = kind(world, host, model, dispatch, chance.integer("batch", 1, 64), host.process.default)
    engine.schedule_ns = int(model.forward_ns * chance.uniform("schedule", 0.01, 0.06))
    engine.detokenize_ns = int(model.forward_ns * chance.uniform("detokenize", 0.01, 0.06))
    engine.pdl = chance.happens("pdl", 0.2)
    return engine
