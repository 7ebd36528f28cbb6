"""An engine thread, and a thread that tokenizes new prompts and turns tokens into text beside it."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Host, Instruction, Queue
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


def build(world: World) -> None:
    process = world.process()
    host = world.host(process, "engine", main=True)
    other = world.host(process, "tokenizer")
    engine = eager_engine(world, host)
    engine.detokenize_ns //= 4
    tokens = Queue()
    host.run(decode(engine, tokens))
    other.run(tokenize(world, other, engine, tokens))


def decode(engine: Engine, tokens: Queue) -> Iterator[Instruction]:
    yield from engine.begin()
    for step in range(engine.world.steps):
        yield from engine.decode_step(step)
        yield engine.host.put(tokens, step, 800)
    yield from engine.finish()


def tokenize(world: World, host: Host, engine: Engine, tokens: Queue) -> Iterator[Instruction]:
    """For each step: text of its tokens, now and then a new prompt."""
    for step in range(world.steps):
        yield host.get(tokens)
        new_prompt = step % 3 == 0
        for name, part in (("detokenize", 0.2), ("tokenize", 0.5)):
            if name == "tokenize" and not new_prompt:
                continue
            if engine.style == "profkit":
                host.push(name, payload=engine.batch)
            yield host.work(engine.own(int(engine.model.forward_ns * part), step, 31))
            if engine.style == "profkit":
                host.pop()


SCENARIO = Scenario(
    name="tokenizer_thread",
    what="decoding on one thread, tokenizing and detokenizing on another",
    offers=STEP_POINTS | {"layer", "eager_forward", "null_stream"},
    build=build,
)
