"""Training: forward on the main thread, backward on the thread of the automatic differentiation, then the optimiser."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import cuda, memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Host, Instruction, Queue
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine


class Trainer(Engine):
    """An engine whose step is one of training."""

    def train_step(self, step: int, asked: Queue, done: Queue) -> Iterator[Instruction]:
        host, world = self.host, self.world
        host.begin_step("other")
        host.push(f"ProfilerStep#{step}", domain="")
        yield memory.copy_async(self.stream, memory.H2D, 1 << 18, after=self.own(4 * self.dispatch_ns, step, 3))
        yield from world.point("inputs", self, step)
        yield from self.forward(step)
        yield host.put(asked, (step, host.step), 2_000)
        yield host.get(done, 500)
        yield from world.point("after_forward", self, step)
        for i, (work, dur) in enumerate(zip(self.kernels[:24], self.model.durs(self.kernels[:24], step), strict=True)):
            yield cuda.launch(self.stream, work.kernel, dur * 2, self.own(self.dispatch_ns, step, 50 + i))
        yield from self.readback(step)
        host.pop()
        yield from world.point("step_end", self, step)


def build(world: World) -> None:
    process = world.process()
    host = world.host(process, "python3", main=True)
    helper = world.host(process, "pt_autograd_0")
    engine = eager_engine(world, host, Trainer)
    assert isinstance(engine, Trainer)
    asked, done = Queue(), Queue()
    host.run(program(engine, asked, done))
    helper.run(backward(engine, helper, asked, done))


def program(engine: Trainer, asked: Queue, done: Queue) -> Iterator[Instruction]:
    yield from engine.begin()
    for step in range(engine.world.steps):
        yield from engine.train_step(step, asked, done)
    yield from engine.finish()


def backward(engine: Trainer, host: Host, asked: Queue, done: Queue) -> Iterator[Instruction]:
    """Launch the kernels in reverse order, each twice as long."""
    for _ in range(engine.world.steps):
        yield host.get(asked)
        step, host.step = host.value
        durs = engine.model.durs(engine.kernels, step)
        for work, dur in zip(reversed(engine.kernels), reversed(durs), strict=True):
            yield cuda.launch(engine.stream, work.kernel, 2 * dur, engine.own(engine.dispatch_ns, step, work.key))
        yield host.put(done, step, 500)


SCENARIO = Scenario(
    name="training_step",
    what="training: forward, backward on a thread of its own, optimiser",
    offers=frozenset({"inputs", "after_forward", "step_end", "kernels", "null_stream", "layer"}),
    build=build,
    steps=20,
)
