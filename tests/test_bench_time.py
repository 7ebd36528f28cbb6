"""The benchmark of the analysis measures the parts that it names, each in a process of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from profkit.samples import launch_bound_decode
from profkit.store import save

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import time as bench_time  # noqa: E402
from bench._measure import Measured  # noqa: E402

MIB = 1 << 20
PARTS = {
    "idle": ["open", "idle"],
    "replay": ["open", "model", "one replay"],
    "check": ["check"],
    "whatif": ["whatif"],
    "whatif --fix": ["whatif --fix cuda-graphs"],
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "trace"
    save(launch_bound_decode(), path)
    return path


def test_every_process_has_its_parts() -> None:
    assert list(bench_time.BODIES) == list(PARTS)


@pytest.mark.parametrize("name", ["idle", "replay", "whatif --fix"])
def test_a_process_tells_how_long_its_parts_took(trace: Path, name: str) -> None:
    found, parts = bench_time.measure_body(name, trace, runs=1, timeout_s=300)
    assert found.problem == ""
    assert list(parts) == PARTS[name]
    assert all(0 < seconds < found.seconds[0] for seconds in parts.values())
    assert found.peak_bytes > 10 * MIB


def test_a_failure_has_no_parts(tmp_path: Path) -> None:
    found, parts = bench_time.measure_body("idle", tmp_path / "not there", runs=1, timeout_s=300)
    assert parts == {}
    assert "not there" in found.problem
    record = bench_time.record_of("easy", "1m", "idle", found, parts)
    assert record["wall_s"] is None
    assert bench_time.lines_of(record)[0].startswith("easy 1m    idle")


def test_the_budget_is_for_the_model_and_one_replay() -> None:
    parts = {"open": 3.0, "model": 1.25, "one replay": 2.5}
    measured = Measured((8.0, 7.0, 9.0), 700 * MIB, "", (8.5, 7.5, 9.5))
    record = bench_time.record_of("hard", "1m", "replay", measured, parts)
    assert (record["wall_s"], record["cpu_s"], record["peak_mib"], record["budget_s"]) == (8.0, 8.5, 700, 20.0)
    lines = [line.split() for line in bench_time.lines_of(record)]
    assert lines[0] == ["hard", "1m", "open", "3.000", "8.0", "8.5", "700"]
    assert lines[-1] == ["hard", "1m", "model", "and", "one", "replay", "3.750", "budget", "20", "s"]
    assert bench_time.record_of("easy", "1m", "idle", measured, parts)["budget_s"] is None


def test_sizes_and_processes_are_those_that_were_asked_for(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, str]] = []
    monkeypatch.setattr(bench_time, "make_file", lambda tools, data, kind, size: tmp_path / f"{kind}-{size}")
    monkeypatch.setattr(bench_time, "warm", lambda path: None)

    def measured(name: str, path: Path, runs: int, timeout_s: float) -> tuple[Measured, dict[str, float]]:
        asked.append((*path.name.split("-"), name))  # type: ignore[arg-type]
        return Measured((1.0,), MIB, "", (1.0,)), {"open": 0.5}

    monkeypatch.setattr(bench_time, "measure_body", measured)
    options = argparse.Namespace(
        hard=True, large=True, sizes=None, only=["idle"], runs=1, timeout=1.0, tools=tmp_path, data=tmp_path
    )
    records = list(bench_time.measure_all(options))
    wanted = [(kind, size, "idle") for size in ("100k", "1m", "10m") for kind in ("easy", "hard")]
    assert asked == wanted
    assert [record["trace"] for record in records] == [f"{kind} {size}" for kind, size, _ in wanted]
