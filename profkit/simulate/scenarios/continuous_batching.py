"""A server: requests arrive, are tokenized by a thread of their own, join the batch, and leave it one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Host, Instruction, Queue
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine

_TOKENS_A_REQUEST = 8
_MOST_RUNNING = 16


@dataclass
class Request:
    """One request: tokens whose step was launched, and those that the host has read. Times in ns, -1 for not yet."""

    number: int
    arrival: int
    prompt_tokens: int
    output_tokens: int
    done: int = 0
    read: int = 0
    first_token: int = -1


def build(world: World) -> None:
    process = world.process()
    host = world.host(process, "engine", main=True)
    front = world.host(process, "frontend")
    engine = eager_engine(world, host)
    ready = Queue()
    requests = draw_requests(world, engine, host.now)
    host.run(serve(engine, ready, len(requests)))
    front.run(tokenize(front, engine, requests, ready))


def draw_requests(world: World, engine: Engine, start: int) -> list[Request]:
    """Arrivals at random, so dense that the batch is seldom empty."""
    count = max(world.steps // 4, 2)
    step_ns = engine.model.forward_ns * 1.2
    draw = world.chance.stream("requests")
    out, at = [], start
    for number in range(count):
        tokens = draw.randint(3, 2 * _TOKENS_A_REQUEST)
        out.append(Request(number, at, draw.randint(32, 1024), tokens))
        at += int(draw.expovariate(1.0) * step_ns * 3)
    return out


def tokenize(host: Host, engine: Engine, requests: list[Request], ready: Queue) -> Iterator[Instruction]:
    for request in requests:
        yield host.sleep_until(request.arrival)
        if engine.style == "profkit":
            host.push("tokenize", payload=request.prompt_tokens)
        yield host.work(request.prompt_tokens * 700)
        if engine.style == "profkit":
            host.pop()
        yield host.put(ready, request, 500)


def serve(engine: Engine, ready: Queue, count: int) -> Iterator[Instruction]:
    """Steps until all requests are answered: a prefill for a new one, decoding for all that run, or both in one step.

    The tokens of a step are known to the host at the end of the next one.
    """
    host = engine.host
    running: list[Request] = []
    unread: list[Request] = []
    yield from engine.begin()
    mixes = engine.world.chance.happens("mixed steps", 0.4)
    left = count
    step = 0
    while left:
        yield from admit(engine, ready, running, step)
        new: Request | None = host.value
        decoding = list(running) if new is None or mixes else []
        engine.batch = max(len(decoding), 1)
        if new is None:
            yield from engine.decode_step(step)
        elif decoding:
            yield from engine.mixed_step(step, new.prompt_tokens)
        else:
            yield from engine.prefill_step(step, new.prompt_tokens)
        deliver(engine, unread)
        unread = decoding + ([new] if new is not None else [])
        running += [new] if new is not None else []
        for request in unread:
            request.done += 1
        left -= sum(request.done == request.output_tokens for request in unread)
        running = [request for request in running if request.done < request.output_tokens]
        step += 1
    yield from engine.finish()
    deliver(engine, unread)


def admit(engine: Engine, ready: Queue, running: list[Request], step: int) -> Iterator[Instruction]:
    """Put the request that joins in this step into ``host.value``, None if there is none.

    Who joins when depends on the time. A run that prices a fault follows the run that has it, to do the same work.
    """
    host, world = engine.host, engine.world
    yield host.work(0)  # what other threads do until now must have happened
    if world.follow is not None:
        joins = world.follow[step]
    else:
        joins = not running or (bool(ready.items) and len(running) < _MOST_RUNNING)
    world.decisions.append(joins)
    host.value = None
    if joins:
        yield host.get(ready)


def deliver(engine: Engine, requests: list[Request]) -> None:
    """One more token of each request is known now."""
    host = engine.host
    for request in requests:
        request.read += 1
        if request.read == 1:
            request.first_token = host.now
        if request.read == request.output_tokens and engine.style == "profkit":
            host.request(request.number, request.arrival, request.first_token, request.read)


SCENARIO = Scenario(
    name="continuous_batching",
    what="a server with requests that come and go",
    offers=STEP_POINTS | {"layer", "null_stream"},
    build=build,
    steps=48,
)
