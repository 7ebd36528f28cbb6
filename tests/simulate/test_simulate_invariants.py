"""What holds in every run, whatever the program: order, engines, causality, and idle time that is what busy is not."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profkit.simulate import causes
from profkit.simulate.causes import IdleLog
from profkit.simulate.hardware import QUEUE_ENTRIES
from profkit.simulate.ops import COPY_IN, COPY_OUT, Op
from profkit.simulate.output import write_run
from profkit.simulate.plan import World
from profkit.simulate.records import Recorder
from profkit.simulate.run import build, make_plan, run, scenarios


def played(scenario: str, seed: int, fault: str = "none") -> tuple[World, dict[str, list[Any]]]:
    """A run and all of its rows."""
    rows: dict[str, list[Any]] = defaultdict(list)
    world = build(make_plan(seed, scenario, fault, 6), {}, Recorder(lambda t, found: rows[t].extend(found)), IdleLog())
    run(world)
    return world, rows


def device_ops(rows: dict[str, list[Any]]) -> list[Op]:
    return sorted([*rows["kernels"], *rows["copies"], *rows["memsets"]], key=lambda op: (op.start, op.end))


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_streams_keep_their_order_and_engines_do_one_copy_at_a_time(scenario: str) -> None:
    _, rows = played(scenario, 1, "random")
    streams, engines = defaultdict(list), defaultdict(list)
    for op in device_ops(rows):
        assert op.end > op.start
        streams[op.stream].append(op)
        if op.kind in (COPY_IN, COPY_OUT):
            engines[op.stream.device, op.kind].append(op)
    for ops in streams.values():
        for before, after in pairwise(ops):
            assert after.start >= before.end or after.pdl
    for ops in engines.values():
        assert all(after.start >= before.end for before, after in pairwise(ops))


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_nothing_happens_before_its_cause(scenario: str) -> None:
    world, rows = played(scenario, 3)
    calls = {(host.process.pid, correlation): (start, end) for start, end, host, correlation, _ in rows["calls"]}
    for op in device_ops(rows):
        start, end = calls[op.host.process.pid, op.correlation]
        assert op.start > start
        assert op.arrival <= op.start
        assert op.call_end == end
    for host in world.simulation.hosts:
        mine = sorted((start, end) for start, end, other, _, name in rows["calls"] if other is host and name[2] == "d")
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_kernels_that_run_at_once_fit_the_device(scenario: str) -> None:
    _, rows = played(scenario, 4)
    changes: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for op in [*rows["kernels"], *rows["memsets"]]:
        if not op.pdl:
            changes[op.stream.device] += [(op.start, op.share), (op.end, -op.share)]
    for steps in changes.values():
        used = 0
        for _, share in sorted(steps):
            used += share
            assert used <= 100


@pytest.mark.parametrize("scenario", sorted(scenarios()))
def test_idle_time_is_what_busy_time_is_not(scenario: str) -> None:
    world, rows = played(scenario, 5)
    window = world.simulation.window()
    assert world.simulation.idle is not None
    busy: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for op in device_ops(rows):
        busy[op.stream.device.ordinal].append((op.start, op.end))
    for start, end, op, _ in rows["graphs"]:
        busy[op.stream.device.ordinal].append((start, end))
    for device, intervals in busy.items():
        gaps, at = [], window[0]
        for start, end in sorted(intervals):
            if start > at:
                gaps.append((at, start))
            at = max(at, end)
        gaps += [(at, window[1])] if at < window[1] else []
        pieces = [(s, e) for d, s, e, _ in world.simulation.idle.rows(world.simulation.devices, window) if d == device]
        joined: list[tuple[int, int]] = []
        for start, end in pieces:
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        assert joined == gaps


def test_no_more_than_the_queue_holds_is_launched_and_has_not_begun() -> None:
    _, rows = played("queue_full", 6)
    events = [(end, 1) for _, end, _, _, name in rows["calls"] if "Launch" in name or "Memcpy" in name]
    events += [(op.start, -1) for op in device_ops(rows)]
    waiting = most = 0
    for _, change in sorted(events):
        waiting += change
        most = max(most, waiting)
    assert most <= QUEUE_ENTRIES + 1


def test_recording_changes_nothing(tmp_path: Path) -> None:
    plan = make_plan(9, "copy_heavy", "random", 6)
    world = build(plan, {})
    bare = run(world)
    recorded = run(build(plan, {}, Recorder(lambda table, rows: None), IdleLog()))
    assert bare == recorded
    write_run(plan, tmp_path / "s.sqlite")


def test_forgetting_what_is_past_changes_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle() -> list[tuple[int, int, int, str]]:
        world, _ = played("tensor_parallel", 12, "step_sync")
        assert world.simulation.idle is not None

        return list(world.simulation.idle.rows(world.simulation.devices, world.simulation.window()))

    whole = idle()
    monkeypatch.setattr(causes, "_KEEP", 7)
    assert idle() == whole
