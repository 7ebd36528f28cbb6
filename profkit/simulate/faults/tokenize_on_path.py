"""PK208: the engine's thread tokenizes between its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def with_ranges(planted: Planted, settings: dict[str, Any]) -> None:
    """Without ranges no one could tell tokenizing from other work."""
    settings["style"] = "profkit"


def tokenize(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    if planted.fixed:
        return
    tokens = planted.chance.integer("tokens", 100, 900)
    with engine.stage("tokenize", tokens):
        yield engine.host.work(engine.own(int(engine.model.forward_ns * 0.3 * planted.scale), step, 40))


FAULT = Fault(
    name="tokenize_on_path",
    code="PK208",
    what="the engine's thread tokenizes new prompts between steps; fix: another thread does",
    needs=frozenset({"step_end", "profkit_ranges"}),
    at={"step_end": tokenize},
    setup=with_ranges,
)
