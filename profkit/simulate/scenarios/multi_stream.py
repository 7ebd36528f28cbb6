"""The legacy default stream, a blocking and a non-blocking stream: what waits for what without an event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from profkit.simulate import cuda, events
from profkit.simulate.engine import STEP_POINTS, Engine, Work
from profkit.simulate.host import Instruction
from profkit.simulate.ops import BLOCKING, NON_BLOCKING, Kernel, Stream
from profkit.simulate.plan import Scenario, World
from profkit.simulate.scenarios._common import eager_engine

_SIDE = Kernel("void expert_prefetch_kernel(const T1*, T1*, int)", "expert_prefetch_kernel", (16, 1, 1), share=20)


class ManyStreams(Engine):
    """Each layer's last kernels run on a blocking stream; small kernels run beside, on a non-blocking one."""

    blocking: Stream
    beside: Stream

    def forward(self, step: int) -> Iterator[Instruction]:
        joined = events.Event()
        every = 3
        durs = self.model.durs(self.kernels, step)
        for i, (work, dur) in enumerate(zip(self.kernels, durs, strict=True)):
            last = i + 1 == len(self.kernels) or self.kernels[i + 1].layer != work.layer
            stream = self.blocking if last else self.stream
            yield cuda.launch(stream, work.kernel, dur, self.own(self.dispatch_ns, step, work.key))
            if last and work.layer % every == 0:
                yield cuda.launch(self.beside, _SIDE, dur * 2, self.own(self.dispatch_ns, step, 30))
            if last and self.world.has("layer"):
                yield from self.world.point("layer", self, step)
        yield events.record_event(self.beside, joined, 500)
        yield events.wait_event(self.stream, joined, 500)


def build(world: World) -> None:
    process = world.process()
    host = world.host(process, "python3", main=True)
    engine = eager_engine(world, host, ManyStreams)
    assert isinstance(engine, ManyStreams)
    engine.blocking, engine.beside = process.stream(BLOCKING), process.stream(NON_BLOCKING)
    for i, work in enumerate(engine.kernels):
        if work.kernel.share == 100:
            engine.kernels[i] = narrowed(work)
    host.run(program(engine))


def narrowed(work: Work) -> Work:
    """Kernels that leave room for others beside them."""
    return replace(work, kernel=replace(work.kernel, share=70))


def program(engine: Engine) -> Iterator[Instruction]:
    yield from engine.decode(engine.world.steps)
    yield events.synchronize_device(2_000)


SCENARIO = Scenario(
    name="multi_stream",
    what="kernels on the default stream, a blocking and a non-blocking one",
    offers=STEP_POINTS | {"layer", "null_stream"},
    build=build,
)
