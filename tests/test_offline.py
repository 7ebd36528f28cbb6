"""No network, ever: the product in a network namespace without a route gives the same bytes as outside of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

_TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, contextId, streamId, correlationId, globalPid, shortName",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "NVTX_EVENTS": "start, end, eventType, text TEXT, globalTid",
}
_PROCESS = 100 << 24
COMMANDS = (
    ("check",), ("check", "--json"), ("stats",), ("stats", "--format", "json"), ("report", "-o", "out.html"),
    ("export", "--to", "perfetto", "-o", "out.json"),
)  # fmt: skip


@pytest.fixture(scope="module")
def isolated() -> list[str]:
    """The command that runs another one without a network; skipped where the kernel does not permit it."""
    for flags in (["-n"], ["-r", "-n"]):
        tried = ["unshare", *flags]
        if shutil.which("unshare") and subprocess.run([*tried, "true"], capture_output=True).returncode == 0:
            return tried
    pytest.skip("unshare -n is not permitted here: nothing shows that profkit works without a network")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A small export and a small trace of the PyTorch profiler."""
    folder = tmp_path_factory.mktemp("offline")
    export, trace = folder / "run.sqlite", folder / "trace.json"
    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in _TABLES}
    rows["StringIds"] = [(1, "gemm"), (2, "cudaLaunchKernel_v7000")]
    events: list[dict[str, object]] = []
    for i in range(20):
        at = 100_000 * i
        rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((at + 9_000, at + 50_000, 0, 1, 7, i + 1, _PROCESS, 1))
        rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((at + 2_000, at + 6_000, 0, _PROCESS + 100, i + 1, 2, 0))
        rows["NVTX_EVENTS"].append((at + 1_000, at + 80_000, 59, "decode", _PROCESS + 100))
        for cat, name, ts, dur, tid in (("cuda_runtime", "cudaLaunchKernel", 2, 4, 100), ("kernel", "gemm", 9, 41, 7)):
            args = {"correlation": i + 1, **({"device": 0, "stream": 7} if cat == "kernel" else {})}
            event = {"ph": "X", "cat": cat, "name": name, "ts": 100 * i + ts, "dur": dur, "args": args}
            events.append(event | {"pid": 0 if cat == "kernel" else 100, "tid": tid})
    with closing(sqlite3.connect(export)) as db:
        for table, columns in _TABLES.items():
            db.execute(f"CREATE TABLE {table} ({columns})")
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * (columns.count(',') + 1))})", rows[table])
        db.commit()
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return [export, trace]


def _run(command: tuple[str, ...], trace: Path, folder: Path, prefix: list[str]) -> dict[str, bytes | int]:
    """Exit code, output and files that a command leaves in an empty folder."""
    folder.mkdir()
    name, *options = command
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "profkit", name, str(trace), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        capture_output=True,
        check=False,
    )
    files: dict[str, bytes | int] = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    return {"exit code": done.returncode, "stdout": done.stdout, "stderr": done.stderr, **files}


def test_the_namespace_has_no_route(isolated: list[str]) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    done = subprocess.run([*isolated, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Network is unreachable" in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_network_nothing_changes(
    command: tuple[str, ...], isolated: list[str], traces: list[Path], tmp_path: Path
) -> None:
    for trace in traces:
        inside = _run(command, trace, tmp_path / f"in-{trace.name}", isolated)
        outside = _run(command, trace, tmp_path / f"out-{trace.name}", [])
        assert inside == outside
        assert inside["exit code"] == 0
        assert inside["stdout"]
