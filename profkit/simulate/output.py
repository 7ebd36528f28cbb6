"""Writes what ``profkit simulate`` makes: the trace, the truth, the list of what there is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from profkit import text
from profkit.errors import ProfkitError
from profkit.simulate.causes import IdleLog
from profkit.simulate.nsys_file import NsysFile
from profkit.simulate.records import Recorder
from profkit.simulate.run import Plan, build, faults, graph_mode, run, scenarios, truth


def listing() -> str:
    """Scenarios and faults, a line each."""
    lines = ["Scenarios"]
    lines += [f"  {scenario.name:22} {scenario.what}" for scenario in scenarios().values()]
    lines += ["Faults (code of the rule that must report each)"]
    lines += [f"  {fault.name:22} {fault.code}  {fault.what}" for fault in faults().values()]
    return "\n".join(lines)


def write_run(plan: Plan, output: Path, truth_file: Path | None = None, kineto: Path | None = None) -> list[str]:
    """Simulate and write; returns remarks. A file appears when it is complete. Raises ProfkitError if it cannot be."""
    idle = IdleLog() if truth_file is not None else None
    with _new_file(output) as path:
        file = NsysFile(path)
        counts: dict[str, int] = {}

        def sink(table: str, rows: list[Any]) -> None:
            counts[table] = counts.get(table, 0) + len(rows)
            file.write(table, rows)

        try:
            world = build(plan, {}, Recorder(sink), idle)
            times = run(world)
            facts = {"seed": str(plan.seed), "scenario": plan.scenario.name, "profkit_version": version("profkit")}
            file.finish(world.simulation, facts, graph_mode(plan), world.simulation.recorded_waits)
        finally:
            file.close()
    if truth_file is not None:
        with _new_file(truth_file) as path:
            path.write_text(json.dumps(truth(plan, world, times), allow_nan=False) + "\n", "utf-8")
    planted = ", ".join(fault.name for fault, _ in plan.faults) or "none"
    work = sum(counts.get(table, 0) for table in ("kernels", "copies", "memsets", "graphs"))
    rows = text.count(work, "row of GPU work", "rows of GPU work")
    calls = text.count(counts.get("calls", 0), "call")
    return [
        f"SIMULATED: scenario {plan.scenario.name}, faults: {planted}, seed {plan.seed}",
        f"{rows}, {calls}, window {text.ns(times.window_ns)}",
    ]


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A path beside the target that takes its place when the body is done."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(target)
    except OSError as error:
        raise ProfkitError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
