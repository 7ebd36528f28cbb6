"""The benchmark of opening measures what it says, and prints numbers with their budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._measure import Measured, measure  # noqa: E402
from bench.open import line_of, record_of  # noqa: E402

PYTHON = sys.executable
MIB = 1 << 20


def test_memory_of_the_whole_tree_is_counted() -> None:
    """A child that holds 64 MiB for a while counts as much as the process itself."""
    hold = "import time; x = b'x' * (64 << 20); time.sleep(0.3)"
    alone = measure((PYTHON, "-c", hold), runs=1)
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}], check=True)"
    tree = measure((PYTHON, "-c", child), runs=1)
    assert 64 * MIB < alone.peak_bytes < 120 * MIB
    assert tree.peak_bytes > alone.peak_bytes
    assert len(alone.seconds) == len(alone.cpu_seconds) == 1


def test_every_run_counts() -> None:
    found = measure((PYTHON, "-c", "pass"), runs=3)
    assert len(found.seconds) == 3
    assert found.median == sorted(found.seconds)[1]
    assert found.problem == ""


@pytest.mark.parametrize(
    ("code", "timeout", "problem"),
    [("raise SystemExit('no such file')", 60.0, "exit 1: no such file"), ("while True: pass", 0.2, "over 0.2 s")],
)
def test_a_failure_gives_no_time(code: str, timeout: float, problem: str) -> None:
    found = measure((PYTHON, "-c", code), runs=2, timeout_s=timeout)
    assert (found.seconds, found.median, found.problem) == ((), None, problem)


def test_a_line_shows_time_memory_and_budget(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    file.write_bytes(bytes(3 * MIB))
    record = record_of("hard", "1m", file, "profkit open", Measured((1.0, 5.0, 2.0), 700 * MIB, "", (1.5, 1.25, 1.75)))
    assert (record["wall_s"], record["peak_mib"], record["budget_s"], record["budget_mib"]) == (2.0, 700, 4.0, 1200)
    assert line_of(record).split() == [
        "hard",
        "1m",
        "3",
        "profkit",
        "open",
        "2.00",
        "1.50",
        "700",
        "4",
        "s,",
        "1200",
        "MiB",
    ]
    failed = record_of("easy", "100k", file, "other", Measured((), 0, "over 600 s"))
    assert line_of(failed).endswith("over 600 s")


def test_the_program_ends_with_one_json_line(tmp_path: Path) -> None:
    """On a file that is there already, so that no generator is needed."""
    (tmp_path / "easy_100k.sqlite").write_bytes(b"no trace")
    command = [PYTHON, "-m", "bench.open", "--data", str(tmp_path), "--sizes", "100k", "--kinds", "easy", "--runs", "1"]
    done = subprocess.run(
        [*command, "--only", "profkit"], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["bench"] == "open"
    assert [(r["reader"], r["wall_s"]) for r in record["results"]] == [
        ("profkit open", None),
        ("profkit open + all rules", None),
    ]
    assert all("no trace" in r["problem"] or "not a trace" in r["problem"] for r in record["results"])
