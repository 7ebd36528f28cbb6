"""``profkit trace`` by the PyTorch profiler: what is recorded, and that the program runs as if nobody watched."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.capture.kineto import Notes, clean, explain_nothing
from profkit.capture.runmeta import mask_command

LOOP = """
import sys, torch
from torch.profiler import record_function
def steps(n):
    for i in range(n):
        with record_function("profkit::decode#1"):
            torch.ones(3) + 1
"""
# All that a program can see of how it was started; ``sitecustomize`` is the one module that differs.
STATE = """
import json, os, sys
print(json.dumps([sys.argv, sys.path, sorted(os.environ.items()), __name__, globals().get("__file__"), list(sys.flags),
                  sorted(set(sys.modules) - {"sitecustomize"}), sys.stdin.read()]))
"""


def start(cwd: Path, *arguments: str, flags: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "profkit", "trace", "--profiler", "torch", "-o", "r", *flags, "--", *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def trace(
    cwd: Path, *arguments: str, flags: tuple[str, ...] = (), stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    process = start(cwd, *arguments, flags=flags, **env)
    stdout, stderr = process.communicate(stdin, timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def python(cwd: Path, code: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    return trace(cwd, sys.executable, "-c", LOOP + code, flags=flags)


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def count_steps(path: Path) -> int:
    return sum(event["name"] == "profkit::decode#1" for event in load(path)["traceEvents"])


def test_exit_code_of_a_program_without_torch(tmp_path: Path) -> None:
    done = trace(tmp_path, sys.executable, "-c", "import sys; sys.exit(42)")
    assert done.returncode == 42
    assert b"the program did not import torch" in done.stderr
    assert b"exit code 42 is the program's own" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_without_torch_that_succeeds_does_so(tmp_path: Path) -> None:
    assert trace(tmp_path, sys.executable, "-c", "pass").returncode == 0


def test_streams_are_byte_equal(tmp_path: Path) -> None:
    data = bytes(range(256)) * 400
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    assert trace(tmp_path, sys.executable, "-c", code, stdin=data).stdout == data[::-1]


def test_program_ended_by_sigterm(tmp_path: Path) -> None:
    process = start(tmp_path, sys.executable, "-c", "import time; print('up', flush=True); time.sleep(30)")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143


@pytest.mark.parametrize("kind", ["script", "module", "code", "stdin", "console script", "flags"])
def test_m12_the_program_sees_nothing_of_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "state.py").write_text(STATE)
    (tmp_path / "tool").write_text(f"#!{sys.executable} -s\n{STATE}")
    (tmp_path / "tool").chmod(0o755)
    program = {
        "script": [sys.executable, "state.py", "--x", "a b", "--y=$HOME", "--", "-o", "z"],
        "module": [sys.executable, "-m", "state", "-m", "x"],
        "code": [sys.executable, "-c", STATE, "-c"],
        "stdin": [sys.executable, "-"],
        "console script": ["./tool", "--help"],
        "flags": [sys.executable, "-sBuW", "ignore", "-Xutf8", "state.py"],
    }[kind]
    stdin = STATE.replace("sys.stdin.read()", "0").encode() if kind == "stdin" else b"input"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for _ in range(2 if kind == "script" else 1):
        alone = subprocess.run(program, cwd=tmp_path, env={**os.environ}, input=stdin, capture_output=True, check=True)
        done = trace(tmp_path, *program, stdin=stdin)
        assert done.returncode == 0
        assert done.stdout == alone.stdout
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_an_existing_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.from_site = __name__\n")
    code = "import sys, sitecustomize; print(sys.from_site, sitecustomize.__file__)"
    done = trace(tmp_path, sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.decode().split() == ["sitecustomize", str(tmp_path / "sitecustomize.py")]


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-Is"])
def test_an_interpreter_that_cannot_be_reached_is_not_started(tmp_path: Path, flag: str) -> None:
    done = trace(tmp_path, sys.executable, flag, "-c", "open('started', 'w')")
    assert done.returncode == 127
    assert b"the program was not started" in done.stderr
    assert not list(tmp_path.iterdir())


def test_m05_a_command_that_is_no_python_is_not_started(tmp_path: Path) -> None:
    done = trace(tmp_path, "touch", "started")
    assert done.returncode == 127
    assert b"touch is no Python" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_torch_program_yields_a_trace_without_private_things(tmp_path: Path) -> None:
    done = python(tmp_path, "steps(3); print(sys.argv)")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"['-c']\n"
    assert b"USDT" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["r.json.gz"]
    assert count_steps(tmp_path / "r.json.gz") == 3
    document = load(tmp_path / "r.json.gz")
    assert document["traceName"] == "r.json.gz"
    assert document["host_name"] == ""
    assert document["profkit"]["steps"] == "3"
    document.pop("trace_id")
    text = json.dumps(document)
    assert str(tmp_path) not in text
    assert sys.executable not in text
    assert len(socket.gethostname()) < 4 or socket.gethostname() not in text


def test_torch_that_runs_nothing_is_no_failure(tmp_path: Path) -> None:
    done = trace(tmp_path, sys.executable, "-c", "import torch")
    assert done.returncode == 0
    assert b"no trace: torch was imported, but ran nothing" in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_trace_is_overwritten_without_force(tmp_path: Path) -> None:
    (tmp_path / "r.json.gz").write_text("precious")
    done = trace(tmp_path, sys.executable, "-c", "open('started', 'w')")
    assert done.returncode == 125
    assert b"r.json.gz exists" in done.stderr
    assert not (tmp_path / "started").exists()


def test_steps_limit_and_a_caught_exit(tmp_path: Path) -> None:
    done = python(tmp_path, "steps(9)\nraise ValueError('its own')", flags=("--steps", "5"))
    assert done.returncode == 1
    assert b"ValueError: its own" in done.stderr
    assert b"profkit/" not in done.stderr
    assert count_steps(tmp_path / "r.json.gz") == 5
    assert load(tmp_path / "r.json.gz")["profkit"]["stopped_by"] == "5 steps recorded"


def test_seconds_limit_and_os_exit(tmp_path: Path) -> None:
    code = "import os, time\nsteps(1)\nfor i in range(12): time.sleep(0.05)\nsteps(1)\nos._exit(7)"
    done = python(tmp_path, code, flags=("--seconds", "0.3"))
    assert done.returncode == 7
    assert count_steps(tmp_path / "r.json.gz") == 1


def test_sigterm_while_recording_still_gives_a_trace(tmp_path: Path) -> None:
    code = LOOP + "import time\nsteps(2); print('up', flush=True); time.sleep(30)"
    process = start(tmp_path, sys.executable, "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert count_steps(tmp_path / "r.json.gz") == 2


def test_why_there_is_no_trace() -> None:
    said: list[str] = []

    def why(**events: str) -> str:
        return explain_nothing([Notes(1, events)], False, said.append)

    assert "ended (by a signal" in why(torch="2.13", started="CPU")
    assert "failed: RuntimeError" in why(torch="2.13", error="RuntimeError: no")
    assert "before the PyTorch profiler had started" in why(torch="2.13")
    assert why(armed="3.11") == ""
    assert "did not import torch" in said[-1]


def test_the_programs_own_profiler_works_and_ends_ours(tmp_path: Path) -> None:
    code = """
steps(2)
with torch.profiler.profile() as own:
    steps(4)
print(sum(event.name == "profkit::decode#1" for event in own.events()))
"""
    done = python(tmp_path, code)
    assert done.stdout == b"4\n"
    assert b"the program started its own PyTorch profiler" in done.stderr
    assert count_steps(tmp_path / "r.json.gz") == 2


def test_forked_children_leave_the_record_alone(tmp_path: Path) -> None:
    code = """
import os
steps(1)
for leave in (sys.exit, os._exit):
    if os.fork() == 0:
        steps(5)
        leave(3)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
steps(1)
"""
    done = python(tmp_path, code)
    assert done.stdout == b"3\n3\n"
    assert [path.name for path in tmp_path.iterdir()] == ["r.json.gz"]
    assert count_steps(tmp_path / "r.json.gz") == 2


def test_children_are_recorded_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(LOOP + "steps(int(sys.argv[1]))")
    code = """
import os, subprocess, sys
command = [sys.executable, "worker.py", "4"]
for child in [subprocess.Popen(command, env={**os.environ, "RANK": rank}) for rank in "01"]:
    child.wait()
"""
    trace(tmp_path, sys.executable, "-c", code, flags=("--children",))
    assert {path.name for path in tmp_path.glob("*.gz")} == {"r.rank0.json.gz", "r.rank1.json.gz"}
    assert count_steps(tmp_path / "r.rank1.json.gz") == 4


def test_cleaning_keeps_names_and_numbers_and_hides_places() -> None:
    lines = [
        '  "schemaVersion": 1,\n',
        '  "hostname": "gpu-node-7",\n',
        '  "distributedInfo": {"backend": "nccl", "init": "tcp://gpu-node-7:29500", "files": ["/a/a.py", "x"]},\n',
        '  "name": "void /home/ann/kernel<gpu-node-7>", "ts": 5206645480920.917,\n',
        '  "kernel_file": "/tmp/torchinductor_ann/ab/cabc.py", "unit": "GB/s", "ratio": "1/2/3"\n',
        '  ],"traceName": "/home/ann/r.json" }',
    ]
    text = "".join(clean(lines, "r.json.gz", "gpu-node-7", {"torch": "2.9"}))
    assert text == (
        '  "schemaVersion": 1,\n    "profkit": {"torch": "2.9"},\n'
        '  "hostname": "",\n'
        '  "distributedInfo": {"backend": "nccl", "init": "tcp://host:29500", "files": ["a.py", "x"]},\n'
        '  "name": "void /home/ann/kernel<gpu-node-7>", "ts": 5206645480920.917,\n'
        '  "kernel_file": "cabc.py", "unit": "GB/s", "ratio": "1/2/3"\n'
        '  ],"traceName": "r.json.gz" }'
    )


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["/usr/bin/python3", "/home/ann/x.py", "--n", "3"], "python3 x.py --n 3"),
        (["x", "--hf-token", "abc", "--api_key=abc"], "x --hf-token *** --api_key=***"),
        (["x", "hf_abcdefghijkl", "https://ann:pw@host/x"], "x *** https://***@host/x"),
        (["x", "--model=/data/models/llama", "a/b"], "x --model=llama a/b"),
    ],
)
def test_commands_are_masked(command: list[str], masked: str) -> None:
    assert mask_command(command) == masked
