"""The model of a small trace, with its constraints and its times in a form to write down by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.replay import Model, build_model, edits, replay
from profkit.analysis.replay.model import EDGE_KINDS
from profkit.model import Ints
from profkit.testing import Row, build_trace, span
from profkit.whatif import what_if

Times = list[tuple[int, int]]


@dataclass(frozen=True)
class Retimed:
    """A trace and its model. Calls are numbered by (thread, start), operations by start."""

    analysis: Analysis
    model: Model

    def edges(self, *kinds: str) -> list[tuple[str, str, int]]:
        """(from, to, ns at least) of all constraints of these kinds, points as ``call 0 end`` and ``op 2 start``."""
        edges = self.model.edges
        mine = np.flatnonzero(np.isin(edges.kind, [EDGE_KINDS.index(kind) for kind in kinds]))
        columns = (edges.src[mine].tolist(), edges.dst[mine].tolist(), edges.weight[mine].tolist())
        return sorted((self._point(src), self._point(dst), weight) for src, dst, weight in zip(*columns, strict=True))

    def _point(self, number: int) -> str:
        first = self.model.first_op
        word, number = ("call", number) if number < first else ("op", number - first)
        return f"{word} {number // 2} {'end' if number % 2 else 'start'}"

    def ops(self, model: Model | None = None) -> Times:
        """(start, end) of every operation of a replay."""
        times = replay(model or self.model)
        return list(zip(times.start.tolist(), times.end.tolist(), strict=True))

    def calls(self, model: Model | None = None) -> Times:
        """(start, end) of every outermost call of a replay."""
        times = replay(model or self.model)
        return list(zip(times.call_start.tolist(), times.call_end.tolist(), strict=True))

    @property
    def recorded_ops(self) -> Times:
        return list(zip(self.model.work.start.tolist(), self.model.work.end.tolist(), strict=True))

    @property
    def recorded_calls(self) -> Times:
        return list(zip(self.model.calls.start.tolist(), self.model.calls.end.tolist(), strict=True))

    def own(self, changes: dict[int, int]) -> Model:
        """What these calls take by themselves, ns."""
        return edits.with_own(self.model, *_arrays(changes))

    def gap(self, changes: dict[int, int]) -> Model:
        """The host's own work before these calls, ns."""
        return edits.with_gap(self.model, *_arrays(changes))

    def length(self, changes: dict[int, int]) -> Model:
        """How long these operations take, ns."""
        return edits.with_length(self.model, *_arrays(changes))


def _arrays(changes: dict[int, int]) -> tuple[Ints, Ints]:
    return np.asarray(list(changes), np.int64), np.asarray(list(changes.values()), np.int64)


@dataclass(frozen=True)
class Prices:
    """What a fix says of a trace, ns; each over all and per step."""

    count: int
    cost: tuple[int, int | None]
    saving: tuple[int, int | None]
    facts: dict[str, Any]
    assumed: tuple[str, ...]


@pytest.fixture
def price_of() -> Callable[..., Prices | None]:
    """``price_of("pinned-copies", *rows)``: prices of one fix, None where it finds nothing of its kind."""

    def price(fix: str, *rows: Row | Iterable[Row]) -> Prices | None:
        result = what_if(build_trace(*rows), [fix])
        assert not result.why_not, result.why_not
        if not result.fixes:
            return None
        (found,) = result.fixes
        assert found.known
        return Prices(
            found.count,
            (found.cost_ns, found.cost_ns_per_step),
            (found.saving_ns, found.saving_ns_per_step),
            dict(found.facts),
            found.assumed,
        )

    return price


@pytest.fixture
def steps_of() -> Callable[..., list[Row]]:
    """``steps_of(5, 100_000, make)``: the rows that ``make(start)`` gives for a decode step, one every 100,000 ns."""

    def steps(count: int, period: int, make: Callable[[int], Iterable[Row | list[Row]]]) -> list[Row]:
        rows = [span("decode", i * period, period - 1_000, payload=1) for i in range(count)]
        for i in range(count):
            for row in make(i * period):
                rows += [row] if isinstance(row, Row) else row
        return rows

    return steps


@pytest.fixture
def model_of() -> Callable[..., Retimed]:
    """The model of some rows, whose unchanged replay gives every recorded time to the nanosecond.

    ``asking`` are the calls that take no time in a replay: all but the last of several queries in a row.
    """

    def build(*rows: Row | Iterable[Row], asking: tuple[int, ...] = ()) -> Retimed:
        analysis = Analysis(build_trace(*rows))
        found = Retimed(analysis, build_model(analysis))
        assert found.ops() == found.recorded_ops
        again = found.calls()
        for place, (recorded, replayed) in enumerate(zip(found.recorded_calls, again, strict=True)):
            assert (replayed == recorded) == (place not in asking), f"call {place}: {replayed}"
        return found

    return build
