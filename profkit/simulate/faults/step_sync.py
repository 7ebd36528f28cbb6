"""PK303: a synchronisation in every step that nothing needs."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import events
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def between_layers(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    """Where one a step is not felt, more of them, after some layers."""
    state = planted.state
    layer = state[engine] = 0 if state.get("step") != (engine, step) else state[engine] + 1
    state["step"] = (engine, step)
    more = min(round(planted.scale) - 1, engine.model.layers - 1)
    if more > 0 and (layer + 1) * more // engine.model.layers > layer * more // engine.model.layers:
        yield from synchronize(planted, engine, step)


def synchronize(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed:
        return
    if planted.chance.happens("whole device", 0.5):
        yield events.synchronize_device(1_500)
    else:
        yield events.synchronize_stream(engine.stream, 1_500)


FAULT = Fault(
    name="step_sync",
    code="PK303",
    what="each step synchronises after the model has run, which nothing needs; fix: no synchronisation",
    needs=frozenset({"after_forward", "null_stream"}),
    at={"after_forward": synchronize, "layer": between_layers},
)
