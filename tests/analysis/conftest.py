"""The model of a small trace, with its constraints and its times in a form to write down by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.replay import Model, build_model, edits, replay
from profkit.analysis.replay.model import EDGE_KINDS
from profkit.model import Ints
from profkit.testing import Row, build_trace

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
