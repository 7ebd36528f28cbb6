"""PK203: the graph is made anew, again and again."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def forward(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    often = planted.scale / planted.chance.integer("every", 2, 6)
    every, graphs = max(round(1 / often), 1), max(round(often), 1)
    if step and step % every == 0 and planted.planted:
        for _ in range(graphs):
            yield from engine.capture()
    yield from engine.replay(step)


FAULT = Fault(
    name="graph_reinstantiate",
    code="PK203",
    what="a graph is captured and instantiated again every few steps; fix: once",
    needs=frozenset({"graph_forward"}),
    instead={"forward": forward},
)
