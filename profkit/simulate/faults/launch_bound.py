"""PK201: kernels shorter than their launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def shorten(planted: Planted, settings: dict[str, Any]) -> None:
    """Kernels that take less than the host needs to launch them."""
    settings["slack"] = planted.chance.uniform("slack", 0.5, 0.9)


def prepare(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed:
        yield from engine.capture()


def forward(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed and engine.graph is not None:
        yield from engine.replay(step)
    else:
        yield from engine.eager(step, free=planted.free)


FAULT = Fault(
    name="launch_bound",
    code="PK201",
    what="a launch for each of many short kernels; fix: one graph launch a step",
    needs=frozenset({"eager_forward"}),
    at={"prepare": prepare},
    instead={"forward": forward},
    setup=shorten,
    scales=False,
)
