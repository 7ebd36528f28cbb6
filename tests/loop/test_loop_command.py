"""``profkit loop`` as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.cli import main
from profkit.errors import MissingExtra

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--preset", "tiny", "--device", "cpu", "--requests", "2", "--max-new", "3", "--prompt-tokens", "5"]


def strict(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    record: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return record


def test_the_last_line_is_the_result_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", *SMALL]) == 0
    *words, line = capsys.readouterr().out.splitlines()
    record = strict(line)
    assert record["schema"] == "profkit.loop/1"
    assert record["device"] == "cpu"
    assert (record["output_tokens"], record["requests_done"]) == (6, 2)
    assert set(record["ttft_ns"]) == {"p50", "p90", "p99", "n"}
    assert all(type(record[key]) is int for key in record if key.endswith("_ns") and not isinstance(record[key], dict))
    assert [line.split()[0] for line in words] == ["model", "load", "TTFT", "TPOT", "tokens", "memory", "KV"]


def test_json_alone_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", *SMALL, "--max-new", "1", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert strict(line)["tpot_ns"] is None, "one token has no time between tokens"


def test_an_impossible_run_is_one_line_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", *SMALL, "--copies", "pinned"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("profkit: --copies pinned needs a GPU")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from profkit.cli.loop import loop

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"profkit loop needs packages .*profkit\[loop\]"):
        loop()


def test_the_loop_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "profkit.loop", *SMALL, "--prompt", "def f", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert strict(done.stdout)["output_tokens"] == 6


def test_help_loads_no_torch() -> None:
    code = "import sys; from profkit.cli import main; main(['loop', '--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "profkit loop --preset tiny" in done.stdout
