"""A scheduler that is one step ahead: it plans on a thread of its own while the device still works."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate.engine import STEP_POINTS, Engine
from profkit.simulate.host import Host, Instruction, Queue
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


def build(world: World) -> None:
    process = world.process()
    worker = world.host(process, "worker", main=True)
    scheduler = world.host(process, "scheduler")
    engine = eager_engine(world, worker)
    plans, done = Queue(), Queue()
    plan_ns, engine.schedule_ns = engine.schedule_ns * 3, 0
    worker.run(work(engine, plans, done))
    scheduler.run(schedule(world, scheduler, engine, plan_ns, plans, done))


def schedule(
    world: World, host: Host, engine: Engine, plan_ns: int, plans: Queue, done: Queue
) -> Iterator[Instruction]:
    """Plan each step; no more than one step ahead of the worker."""
    for step in range(world.steps):
        if engine.style == "profkit":
            host.push("schedule", payload=engine.batch)
        yield host.work(engine.own(plan_ns, step, 30))
        if engine.style == "profkit":
            host.pop()
        yield host.put(plans, step)
        if step:
            yield host.get(done)


def work(engine: Engine, plans: Queue, done: Queue) -> Iterator[Instruction]:
    host = engine.host
    yield from engine.begin()
    for step in range(engine.world.steps):
        yield host.get(plans)
        yield from engine.decode_step(step)
        yield host.put(done, step, 500)
    yield from engine.finish()


SCENARIO = Scenario(
    name="async_scheduling",
    what="decoding with a scheduler on a thread of its own, one step ahead",
    offers=STEP_POINTS | {"layer", "eager_forward", "null_stream"},
    build=build,
)
