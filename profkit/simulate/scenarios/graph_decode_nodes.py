"""Decoding with one CUDA graph a step, recorded node by node."""

from __future__ import annotations

from profkit.simulate.engine import STEP_POINTS
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import graph_engine, graph_program


def build(world: World) -> None:
    host = world.host(world.process(), "python3", main=True)
    host.run(graph_program(graph_engine(world, host, whole=False)))


SCENARIO = Scenario(
    name="graph_decode_nodes",
    what="decoding by CUDA graphs, recorded node by node",
    offers=STEP_POINTS | {"graph_forward", "null_stream"},
    build=build,
)
