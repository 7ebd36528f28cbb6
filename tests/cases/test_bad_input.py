"""Files that are no trace, or no whole one: one line that says what was found and what to do, and no number."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

US = 1_000
COMMANDS = (("check",), ("check", "--json"), ("stats",), ("stats", "--format", "json"))


def refused(run: Callable[..., Any], path: Path, *words: str) -> str:
    """The line that every command gives for a file: exit 1, nothing on stdout; it names the file and says ``words``."""
    lines = set()
    for command, *options in (*COMMANDS, ("report", "-o", path.parent / "report.html")):
        seen = run(command, path, *options)
        assert (seen.code, seen.out) == (1, "")
        (line,) = seen.err.splitlines()
        lines.add(line)
    assert not (path.parent / "report.html").exists()
    (line,) = lines
    assert line.startswith(f"profkit: {path}: ")
    for word in words:
        assert word in line
    assert "Error" not in line
    return line


READABLE = ("profkit reads", "Nsight Systems SQLite exports", "PyTorch profiler JSON")


def test_a_text_file(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("step 1 took 20 ms\n")
    refused(run, path, "not a trace", *READABLE)


def test_random_bytes(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "noise.sqlite"
    path.write_bytes(b"\x00\x01" + random.Random(5).randbytes(10_000))
    refused(run, path, "binary file of an unknown format", *READABLE)


@pytest.mark.parametrize("name", ["x.zip", "x.json.gz"])
def test_a_zip_archive(tmp_path: Path, run: Any, kineto: Any, name: str) -> None:
    kineto.base()
    trace = kineto.write("x.json")
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(trace, "x.json")
    refused(run, path, "zip archive", "unpack it")


def test_an_nsys_report_that_was_not_exported(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"QDSS\x00\x00\x00")
    refused(run, path, "Nsight Systems report", "nsys export --type sqlite")


def test_sqlite_of_something_else(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE moz_places (id INTEGER, url TEXT)")
        db.execute("INSERT INTO moz_places VALUES (1, 'https://example.org')")
        db.commit()
    refused(run, path, "SQLite file, but no Nsight Systems export", "StringIds", "moz_places")


@pytest.mark.parametrize("content", [{"name": "profkit", "version": "1"}, {"nodes": [], "samples": [1, 2]}, {}])
def test_json_without_trace_events(tmp_path: Path, run: Any, content: Any) -> None:
    path = tmp_path / "package.json"
    path.write_text(json.dumps(content))
    refused(run, path, "no traceEvents", *content)


@pytest.mark.parametrize("content", ["[1, 2, 3]", '["a"]', '[{"id": 1}]', '{"traceEvents": []}', '{"traceEvents": {}}'])
def test_json_with_events_that_are_none(tmp_path: Path, run: Any, content: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(content)
    refused(run, path)


@pytest.mark.parametrize("name", ["empty.sqlite", "empty.json", "empty.json.gz", "empty"])
def test_an_empty_file(tmp_path: Path, run: Any, name: str) -> None:
    path = tmp_path / name
    path.touch()
    refused(run, path, "empty")


def test_a_file_that_is_not_there(tmp_path: Path, run: Any) -> None:
    refused(run, tmp_path / "run.sqlite", "no such file")


def test_a_folder_without_a_trace(tmp_path: Path, run: Any) -> None:
    refused(run, tmp_path, "folder that holds no trace")


def cut(path: Path, share: float, to: Path) -> tuple[Path, int, int]:
    """(a copy of the first part of the file, its size, the whole size)."""
    data = path.read_bytes()
    kept = int(len(data) * share)
    to.write_bytes(data[:kept])
    return to, kept, len(data)


def test_a_truncated_export(tmp_path: Path, run: Any, whole: Path) -> None:
    path, kept, size = cut(whole / "run.sqlite", 0.6, tmp_path / "run.sqlite")
    refused(run, path, "truncated", f"{size} bytes", str(kept), "copy or export it again")


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.3, 0.99])
def test_an_export_cut_anywhere(tmp_path: Path, run: Any, whole: Path, share: float) -> None:
    path, _, _ = cut(whole / "run.sqlite", share, tmp_path / "run.sqlite")
    refused(run, path)


def test_an_export_with_a_damaged_middle(tmp_path: Path, run: Any, whole: Path) -> None:
    path = tmp_path / "run.sqlite"
    data = bytearray((whole / "run.sqlite").read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    path.write_bytes(data)
    refused(run, path, "damaged")


@pytest.mark.parametrize("share", [0.0005, 0.3, 0.6, 0.999])
def test_truncated_json(tmp_path: Path, run: Any, whole: Path, share: float) -> None:
    path, _, _ = cut(whole / "trace.json", share, tmp_path / "trace.json")
    refused(run, path, "truncated")


@pytest.mark.parametrize("share", [0.02, 0.7, 0.999])
def test_a_gzip_cut(tmp_path: Path, run: Any, whole: Path, share: float) -> None:
    path, _, _ = cut(whole / "trace.json.gz", share, tmp_path / "trace.json.gz")
    refused(run, path, "compressed file ends early")


def test_a_gzip_with_damaged_bytes(tmp_path: Path, run: Any, whole: Path) -> None:
    data = bytearray((whole / "trace.json.gz").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    refused(run, path, "damaged")


def test_a_gzip_of_something_else(tmp_path: Path, run: Any) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        file.write(b"not a trace\n" * 100)
    path = tmp_path / "notes.gz"
    path.write_bytes(buffer.getvalue())
    refused(run, path, "not a trace")


def rename_column(path: Path, table: str, old: str, new: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f'ALTER TABLE {table} RENAME COLUMN "{old}" TO "{new}"')
        db.commit()


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
        ("NVTX_EVENTS", "eventType"),
    ],
)
def test_a_needed_column_is_missing(run: Any, nsys: Any, table: str, column: str) -> None:
    nsys.call(0, 5 * US, "cudaLaunchKernel_v7000", correlation=1)
    nsys.kernel(10 * US, 20 * US, correlation=1)
    nsys.memcpy(30 * US, 40 * US, 1, 4_096, 1, 2, correlation=2)
    nsys.nvtx(0, 50 * US, text="decode")
    path = nsys.write()
    assert run("check", path).code == 0
    rename_column(path, table, column, "renamed")

    refused(run, path, f"{table}.{column} is missing", "renamed", "export the report again")


def test_absent_tables_are_normal_and_said(run: Any, nsys: Any, check: Any) -> None:
    nsys.kernel(10 * US, 20 * US)
    path = nsys.write(tables=("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"))

    seen = check(path)

    assert (seen.device["busy_ns"], seen.device["idle_ns"]) == (10 * US, 0)
    missing = seen.document["trace"]["missing"]
    tables = {
        "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
        "syncs": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "spans": "NVTX_EVENTS",
        "os_calls": "OSRT_API",
    }
    assert {
        table: name for table, name in tables.items() if f"the export has no table {name}" in missing[table]
    } == tables
    for table in tables:
        assert missing[table] in seen.line(f"no {table}: ")
    assert seen.document["trace"]["captured"] == ["kernels"]
    stats = run("stats", path, "cuda_api_sum")
    assert (stats.code, stats.out) == (0, "")
    assert "no CUDA calls in this capture" in stats.err


def test_a_renamed_copy_is_known_by_its_content(tmp_path: Path, run: Any, whole: Path) -> None:
    for source, name in (("run.sqlite", "a.json"), ("trace.json", "b.json.gz"), ("trace.json.gz", "c.sqlite")):
        path = tmp_path / name
        shutil.copy(whole / source, path)
        ours, theirs = (json.loads(run("check", p, "--json").out) for p in (path, whole / source))
        assert ours["summary"] == theirs["summary"]
        assert ours["summary"]["counts"]["kernels"] in (5_000, 20_000)
