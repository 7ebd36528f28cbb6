"""Which commands run Python, under which name, and whether a recorder can be loaded into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.capture.interpreter import PythonCommand, label_of, python_command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python script.py -m x", PythonCommand("script")),
        ("/opt/py/bin/python3.11 -u dir/gen.py", PythonCommand("gen", "u")),
        ("python3.13t -Wd -X utf8 -um pkg.mod --x", PythonCommand("pkg.mod", "u")),
        ("python -W ignore -OOc pass", PythonCommand("python", "OO")),
        ("python -mpkg", PythonCommand("pkg")),
        ("python --check-hash-based-pycs never x.py", PythonCommand("x")),
        ("python -", PythonCommand("python")),
        ("python", PythonCommand("python")),
        ("python -m torch.distributed.run x.py", PythonCommand("torch.distributed.run", launcher=True)),
        ("python -m vllm.entrypoints.openai.api_server", PythonCommand("vllm.entrypoints.openai.api_server", "", True)),
        ("env A=1 python -I x.py", PythonCommand("x", "I")),
        ("uv run python x.py", PythonCommand("x")),
        ("uv sync", None),
        ("sh -c python", None),
        ("pythonic x.py", None),
    ],
)
def test_command_lines(command: str, expected: PythonCommand | None) -> None:
    assert python_command(command.split()) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("#!/usr/bin/python3", PythonCommand("torchrun", "", True)),
        ("#!/usr/bin/env python3", PythonCommand("torchrun", "", True)),
        ("#!/usr/bin/env -S python3 -sP", PythonCommand("torchrun", "sP", True)),
        ("#!/bin/sh\n'''exec' /long/python3 \"$0\" \"$@\"\n' '''", PythonCommand("torchrun", "", True)),
        ("#!/bin/sh\npython x.py", None),
        ("\x7fELF", None),
        ("", None),
    ],
)
def test_console_scripts(tmp_path: Path, lines: str, expected: PythonCommand | None) -> None:
    script = tmp_path / "torchrun"
    script.write_text(lines)
    script.chmod(0o755)
    assert python_command([str(script), "x.py"]) == expected


@pytest.mark.parametrize(("flags", "reachable"), [("", True), ("uB", True), ("I", False), ("sE", False), ("S", False)])
def test_obstacles(flags: str, reachable: bool) -> None:
    assert (PythonCommand("x", flags).obstacle == "") is reachable


def test_labels_are_fit_for_file_names() -> None:
    assert label_of(["python", "-m", "a/../b c"]) == "a_.._b_c"
    assert label_of(["./x.sh"]) == "x"
    assert label_of(["/"]) == "program"
