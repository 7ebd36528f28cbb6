"""nsys exports that are odd, half-written or damaged: what is sound is read, the rest is said, nothing is guessed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.schema import FLAG_OPEN_END, FLAG_REPAIRED

PID, TID = 100 << 24, (100 << 24) + 100
KERNEL_COLUMNS = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName"
NVTX_COLUMNS = "start, end, eventType, text, globalTid, domainId"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def export(
    path: Path, *statements: str, kernels: Iterable[tuple[Any, Any]] = ((0, 50),), without: bool = False
) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        if not without:
            db.execute(f"CREATE TABLE {KERNEL} ({KERNEL_COLUMNS})")
            for start, end in kernels:
                db.execute(f"INSERT INTO {KERNEL} VALUES (?, ?, 0, 1, 7, 1, {PID}, 1, 1)", (start, end))
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


def test_a_view_stands_for_a_table(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite",
        f"CREATE TABLE kept ({KERNEL_COLUMNS})",
        f"INSERT INTO kept VALUES (5, 9, 0, 1, 7, 1, {PID}, 1, 1)",
        f"CREATE VIEW {KERNEL} AS SELECT * FROM kept",
        without=True,
    )
    assert open_trace(path).array("kernels", "start_ns").tolist() == [5]


def test_a_table_without_rowid(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite",
        f"CREATE TABLE {KERNEL} ({KERNEL_COLUMNS}, PRIMARY KEY (start)) WITHOUT ROWID",
        f"INSERT INTO {KERNEL} VALUES (5, 9, 0, 1, 7, 1, {PID}, 1, 1)",
        without=True,
    )
    assert open_trace(path).array("kernels", "dur_ns").tolist() == [4]


def test_negative_rowids_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.ingest.nsys.sqlite._FEWEST_ROWS_TO_SPLIT", 2)
    monkeypatch.setattr("profkit.ingest.nsys.sqlite.os.cpu_count", lambda: 3)
    path = export(tmp_path / "a.sqlite", kernels=[(i, i + 1) for i in range(20)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {KERNEL} SET rowid = rowid - 9")
        db.commit()
    assert open_trace(path).array("kernels", "start_ns").tolist() == list(range(20))


@pytest.mark.parametrize("start", [None, "text", 2.0**63, 1 << 62, -(1 << 62)])
def test_rows_without_a_possible_start_are_left_out_and_said(tmp_path: Path, start: Any) -> None:
    trace = open_trace(export(tmp_path / "a.sqlite", kernels=[(10, 20), (start, 30), (40, 50)]))
    assert trace.array("kernels", "start_ns").tolist() == [10, 40]
    assert f"{KERNEL}: 1 rows without a possible time were left out" in trace.meta.warnings


@pytest.mark.parametrize("end", [None, 0, "text"])
def test_rows_without_an_end_have_no_length(tmp_path: Path, end: Any) -> None:
    trace = open_trace(export(tmp_path / "a.sqlite", kernels=[(10, 20), (30, end)]))
    assert trace.array("kernels", "dur_ns").tolist() == [10, 0]
    assert trace.array("kernels", "flags").tolist() == [0, FLAG_OPEN_END]
    assert any(warning.startswith("1 row of kernels without an end") for warning in trace.meta.warnings)


def test_a_clock_that_jumped_back(tmp_path: Path) -> None:
    rows = [f"INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, 'x', {TID}, 0)" for start, end in ((100, 40), (5, 9))]
    path = export(tmp_path / "a.sqlite", f"CREATE TABLE NVTX_EVENTS ({NVTX_COLUMNS})", *rows, kernels=[(300, 200)])
    trace = open_trace(path)
    for table, at in (("kernels", 0), ("spans", 1)):
        assert trace.array(table, "dur_ns")[at] == 0
        assert trace.array(table, "flags")[at] == FLAG_REPAIRED | FLAG_OPEN_END
    for table in (KERNEL, "NVTX_EVENTS"):
        assert any(f"{table}: 1 rows end before they start" in warning for warning in trace.meta.warnings)


def test_numbers_beyond_their_column_are_absent_and_said(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", f"UPDATE {KERNEL} SET contextId = {1 << 40}")
    trace = open_trace(path)
    assert trace.array("tracks", "context").tolist() == [-1]
    assert f"{KERNEL}.contextId: 1 values beyond 32 bits were read as absent" in trace.meta.warnings


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_file_that_another_program_has_locked(tmp_path: Path, journal: str) -> None:
    """What was committed is read: no lock is asked for, and none is waited for."""
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode={journal}")
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        assert open_trace(path).array("kernels", "dur_ns").tolist() == [50]


def test_a_rollback_journal_beside_the_file(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    path.with_name("a.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9 half of a transaction")
    with pytest.raises(InputError, match=r"rollback journal \(a\.sqlite-journal\) stands beside it"):
        open_trace(path)


def test_a_write_ahead_log_that_no_program_holds(tmp_path: Path) -> None:
    """A dead program left it: it is read, and nothing is written beside the user's file."""
    path, copy = export(tmp_path / "a.sqlite"), tmp_path / "copy"
    copy.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute(f"INSERT INTO {KERNEL} VALUES (60, 70, 0, 1, 7, 1, {PID}, 1, 1)")
        db.commit()
        for name in ("a.sqlite", "a.sqlite-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    trace = open_trace(copy / "a.sqlite")
    assert trace.array("kernels", "start_ns").tolist() == [0, 60]
    assert any("write-ahead log" in warning for warning in trace.meta.warnings)
    assert sorted(file.name for file in copy.iterdir()) == ["a.sqlite", "a.sqlite-wal"]


@pytest.mark.parametrize(("age", "words"), [(10, "newer than"), (-10, "older than")])
def test_an_export_of_zeros_beside_its_report(tmp_path: Path, age: int, words: str) -> None:
    report, path = tmp_path / "run.nsys-rep", tmp_path / "run.sqlite"
    report.write_bytes(b"report")
    path.write_bytes(bytes(8192))
    now = report.stat().st_mtime
    os.utime(path, (now + age, now + age))
    with pytest.raises(InputError, match=rf"8192 bytes.*zero.*{words} its report run\.nsys-rep.*nsys export"):
        open_trace(path)


def test_an_export_of_zeros_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(bytes(8192))
    with pytest.raises(InputError, match="never written to the end"):
        open_trace(path)


def zero_table(path: Path, table: str) -> None:
    """Overwrite the pages of one table with zeros, its first one included."""
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("PRAGMA page_size").fetchone()
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    data = bytearray(path.read_bytes())
    data[(root - 1) * page : root * page] = bytes(page)
    path.write_bytes(bytes(data))


NVTX = (f"CREATE TABLE NVTX_EVENTS ({NVTX_COLUMNS})", f"INSERT INTO NVTX_EVENTS VALUES (0, 9, 59, 'x', {TID}, 0)")


def test_sound_tables_are_read_beside_a_damaged_one(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", *NVTX)
    zero_table(path, "NVTX_EVENTS")
    trace = open_trace(path)
    assert trace.array("kernels", "dur_ns").tolist() == [50]
    assert trace.rows("spans") == 0
    assert trace.meta.partial
    assert trace.why_missing("spans") == "the table NVTX_EVENTS of this export is damaged"
    assert any("table NVTX_EVENTS is damaged" in warning and "not read" in warning for warning in trace.meta.warnings)


@pytest.mark.parametrize("table", [KERNEL, "StringIds"])
def test_damage_of_a_table_that_every_number_rests_on(tmp_path: Path, table: str) -> None:
    path = export(tmp_path / "a.sqlite", *NVTX)
    zero_table(path, table)
    with pytest.raises(InputError, match=rf"table {table} is damaged"):
        open_trace(path)


def test_damage_of_a_table_about_the_capture(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite",
        "CREATE TABLE PROCESSES (globalPid, pid, name)",
        f"INSERT INTO PROCESSES VALUES ({PID}, 100, 'python')",
    )
    zero_table(path, "PROCESSES")
    trace = open_trace(path)
    assert trace.array("kernels", "dur_ns").tolist() == [50]
    assert trace.meta.partial
    (warning,) = trace.meta.warnings
    assert "table PROCESSES is damaged" in warning
    assert trace.text("processes", "name") == [""]
