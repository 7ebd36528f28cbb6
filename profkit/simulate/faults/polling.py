"""PK209: the end of a step is asked for again and again."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import events, memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.plan import Fault, Planted


def read(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    event = events.Event()
    yield memory.copy_async(engine.stream, memory.D2H, 8 * engine.batch, after=2_000)
    yield events.record_event(engine.stream, event)
    if planted.planted:
        yield from _poll(planted, engine, event)
        return
    engine.host.free = planted.free
    yield events.synchronize_event(event)
    engine.host.free = False


def _poll(planted: Planted, engine: Engine, event: events.Event) -> Iterator[Instruction]:
    host = engine.host
    pause = int(planted.chance.integer("pause", 50_000, 300_000) * planted.scale)
    while True:
        yield events.query_event(event, 800)
        if host.value:
            return
        yield host.os_wait(pause + host.hardware.sleep_slack_ns, "clock_nanosleep", 500)


FAULT = Fault(
    name="polling",
    code="PK209",
    what="each step asks for its event and sleeps in between; fix: cudaEventSynchronize",
    needs=frozenset({"readback"}),
    instead={"readback": read},
    alone=True,
)
