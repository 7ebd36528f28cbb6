"""Traces for ``whatif``: saved as stores, simulated ones, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from profkit.cli import main
from profkit.model import Trace
from profkit.store import save
from profkit.testing import Row, build_trace, call, launch, span

SCENARIOS = ("continuous_batching", "graph_decode_nodes", "copy_heavy")


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out, parse_constant=_refuse)

    def row(self, first: str) -> list[str]:
        """The cells of the only line that begins with a text; cells are two spaces apart."""
        (line,) = [line for line in self.out.splitlines() if line.strip().startswith(first)]
        return [cell.strip() for cell in line.split("  ") if cell.strip()]


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    """Runs ``profkit`` in this process."""

    def run_command(*args: object) -> Output:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Output(code, out, err)

    return run_command


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """A trace of some rows in a file that the command line opens."""

    def store(*rows: Row | Iterable[Row] | Trace, **options: Any) -> Path:
        trace = rows[0] if rows and isinstance(rows[0], Trace) else build_trace(*rows, **options)
        path = tmp_path / "trace"
        save(trace, path)
        return path

    return store


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound run of some scenarios, by name."""
    folder = tmp_path_factory.mktemp("simulated")
    paths = {name: folder / f"{name}.sqlite" for name in SCENARIOS}
    for name, path in paths.items():
        assert main(["simulate", "--scenario", name, "--fault", "none", "--seed", "3", "-o", str(path)]) == 0
    return paths


def waiting_steps(count: int = 5) -> list[Row]:
    """Decode steps of 100,000: a kernel of 50,000 from 9,000 on, and a wait for it until 65,000."""
    rows: list[Row] = []
    for t in range(0, count * 100_000, 100_000):
        rows.append(span("decode", t, 99_000, payload=1))
        rows += launch("k", at=t, start=t + 9_000, dur=50_000)
        rows.append(call(t + 10_000, 55_000, "cudaStreamSynchronize"))
    return rows


@pytest.fixture
def waiting() -> list[Row]:
    return waiting_steps()
