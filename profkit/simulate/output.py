"""Writes what ``profkit simulate`` makes: the trace, the truth, the list of what there is."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from profkit import text
from profkit.errors import ProfkitError, UsageError
from profkit.simulate.causes import IdleLog
from profkit.simulate.device import Device
from profkit.simulate.kineto_file import KinetoFiles, rank_paths
from profkit.simulate.nsys_file import NsysFile
from profkit.simulate.records import Recorder
from profkit.simulate.run import Plan, Times, build, faults, run, scenarios, truth_head


def listing() -> str:
    """Scenarios and faults, a line each."""
    lines = ["Scenarios"]
    lines += [f"  {scenario.name:22} {scenario.what}" for scenario in scenarios().values()]
    lines += ["Faults (code of the rule that must report each)"]
    lines += [f"  {fault.name:22} {fault.code}  {fault.what}" for fault in faults().values()]
    return "\n".join(lines)


def write_run(plan: Plan, output: Path, truth_file: Path | None = None, kineto: Path | None = None) -> list[str]:
    """Simulate and write; returns remarks. A file appears when it is complete. Raises ProfkitError if it cannot be."""
    if kineto is not None and plan.scenario.whole_graphs:
        raise UsageError(f"{plan.scenario.name}: the PyTorch profiler does not record graphs as one piece")
    idle = IdleLog() if truth_file is not None else None
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        file = stack.enter_context(closing(NsysFile(stack.enter_context(_new_file(output)))))
        sinks: list[Callable[[str, list[Any]], None]] = [file.write]
        if kineto is not None:
            paths = [stack.enter_context(_new_file(path)) for path in rank_paths(kineto, plan.scenario.processes)]
            files = stack.enter_context(closing(KinetoFiles(paths)))
            sinks.append(files.write)

        def sink(table: str, rows: list[Any]) -> None:
            counts[table] += len(rows)
            for write in sinks:
                write(table, rows)

        world = build(plan, {}, Recorder(sink), idle)
        times = run(world)
        facts = {"seed": str(plan.seed), "scenario": plan.scenario.name, "profkit_version": version("profkit")}
        file.finish(world.simulation, facts, "Graph" if plan.scenario.whole_graphs else "Node")
        if kineto is not None:
            files.finish(world.simulation)
        if truth_file is not None and idle is not None:
            head = truth_head(plan, times, world.decisions)
            _write_truth(stack.enter_context(_new_file(truth_file)), head, times, idle, world.simulation.devices)
    return _remarks(plan, counts, times)


def _write_truth(path: Path, head: dict[str, Any], times: Times, idle: IdleLog, devices: list[Device]) -> None:
    """The truth as JSON, the idle time last and a piece a line: there may be millions."""
    keys = ("device", "start_ns", "end_ns", "cause")
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, allow_nan=False)[:-1] + ', "idle": [')
        for i, row in enumerate(idle.rows(devices, times.window)):
            file.write((",\n" if i else "\n") + json.dumps(dict(zip(keys, row, strict=True))))
        file.write("\n]}\n")


def _remarks(plan: Plan, counts: Counter[str], times: Times) -> list[str]:
    planted = ", ".join(fault.name for fault, _ in plan.faults) or "none"
    work = sum(counts[table] for table in ("kernels", "copies", "memsets", "graphs"))
    rows, calls = text.count(work, "row of GPU work", "rows of GPU work"), text.count(counts["calls"], "call")
    return [
        f"SIMULATED: scenario {plan.scenario.name}, faults: {planted}, seed {plan.seed}",
        f"{rows}, {calls}, window {text.ns(times.window_ns)}",
    ]


def targets(plan: Plan, output: Path, truth_file: Path | None, kineto: Path | None) -> list[Path]:
    """All files that :func:`write_run` will write."""
    ranks = rank_paths(kineto, plan.scenario.processes) if kineto is not None else []
    return [path for path in (output, truth_file, *ranks) if path is not None]


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A path beside the target that takes its place when the body is done."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise ProfkitError(f"{target}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    finally:
        part.unlink(missing_ok=True)
