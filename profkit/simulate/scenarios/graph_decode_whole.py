"""Decoding with one CUDA graph a step, recorded as one piece."""

from __future__ import annotations

from profkit.simulate.engine import STEP_POINTS
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import graph_engine, graph_program


def build(world: World) -> None:
    host = world.host(world.process(), "python3", main=True)
    host.run(graph_program(graph_engine(world, host, whole=True)))


SCENARIO = Scenario(
    name="graph_decode_whole",
    what="decoding by CUDA graphs, recorded as one piece",
    offers=STEP_POINTS | {"graph_forward", "null_stream"},
    build=build,
    whole_graphs=True,
)
