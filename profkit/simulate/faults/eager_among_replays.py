"""PK204: steps for which there is no graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def shorten(planted: Planted, settings: dict[str, Any]) -> None:
    """Kernels for which a graph is worth it."""
    settings["unit"] = planted.chance.uniform("unit", 300, 700)


def forward(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    every = max(round(planted.chance.integer("every", 3, 8) / planted.scale), 2)
    if planted.fixed or step % every != every - 1:
        yield from engine.replay(step)
    else:
        yield from engine.eager(step, free=planted.free)


FAULT = Fault(
    name="eager_among_replays",
    code="PK204",
    what="some steps find no graph and launch each kernel; fix: they replay too",
    needs=frozenset({"graph_forward"}),
    instead={"forward": forward},
    setup=shorten,
)
