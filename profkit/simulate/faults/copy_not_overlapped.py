"""PK305: an upload that the same step waits for, where it could run beside the step before."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.simulate import events, memory
from profkit.simulate.engine import Engine
from profkit.simulate.host import Instruction
from profkit.simulate.ops import NON_BLOCKING, Stream
from profkit.simulate.plan import Fault, Planted


def upload(planted: Planted, engine: Engine, step: int) -> Iterator[Instruction]:
    size = max(int(planted.chance.integer("bytes", 1 << 20, 16 << 20) * planted.scale), 4096)
    if not planted.fixed:
        yield memory.copy_async(engine.stream, memory.H2D, size, after=2_000)
        return
    side = planted.state.get(engine)
    if side is None:
        side = planted.state[engine] = engine.host.process.stream(NON_BLOCKING)
        yield from _ahead(planted, engine, side, size)
    yield events.wait_event(engine.stream, planted.state[side], 1_000)
    yield from _ahead(planted, engine, side, size)


def _ahead(planted: Planted, engine: Engine, side: Stream, size: int) -> Iterator[Instruction]:
    """Copy what the next step needs; the event says when it is there."""
    planted.state[side] = events.Event()
    yield memory.copy_async(side, memory.H2D, size, after=2_000)
    yield events.record_event(side, planted.state[side])


FAULT = Fault(
    name="copy_not_overlapped",
    code="PK305",
    what="each step uploads from pinned memory what it needs at once; fix: one step ahead, on a side stream",
    needs=frozenset({"inputs"}),
    at={"inputs": upload},
)
