"""Real exports and generated ones: both lie outside the project and are found through PROFKIT_CORPUS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from profkit.cli import main

CORPUS = os.environ.get("PROFKIT_CORPUS", "")


@dataclass(frozen=True)
class Generated:
    """Files that a generator wrote, and the JSON line that it printed: the truth about them."""

    nsys: Path
    kineto: Path
    truth: dict[str, Any]


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture(scope="session")
def corpus() -> Path:
    if not CORPUS:
        pytest.skip("PROFKIT_CORPUS names no folder of real exports")
    return Path(CORPUS)


@pytest.fixture(scope="session")
def generate(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Generated]:
    """Runs a script of the corpus's tools: ``generate("make_llm_trace.py", ...)``; with ``kineto`` also the JSON."""

    def run_script(script: str, *options: str, kineto: bool = False) -> Generated:
        tool = corpus.parent / "tools" / script
        if not tool.exists():
            pytest.skip(f"{tool} does not exist")
        folder = tmp_path_factory.mktemp("generated")
        made = Generated(folder / "trace.sqlite", folder / "trace.json", {})
        command = [sys.executable, str(tool), *options, "-o", str(made.nsys)]
        command += ["--kineto", str(made.kineto)] if kineto else []
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        return Generated(made.nsys, made.kineto, json.loads(printed.stdout.splitlines()[-1]))

    return run_script


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """(exit code, stdout, stderr) of the command line, run in this process."""

    def run_command(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        return code, *capsys.readouterr()

    return run_command


@pytest.fixture
def check(run: Callable[..., tuple[int, str, str]]) -> Callable[..., dict[str, Any]]:
    """The document of ``check --json``, which must be strict JSON and all of stdout."""

    def check_file(path: Path, *options: str) -> dict[str, Any]:
        code, out, err = run("check", path, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out, parse_constant=refuse_constant)

    return check_file
