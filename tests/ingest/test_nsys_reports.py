"""nsys reports: exported by the nsys of the machine, kept in the cache, never beside the user's file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.ingest.nsys.exports import MOST_EXPORTS

STUB = """#!/bin/sh
echo run >> "{log}"
while [ $# -gt 0 ]; do case "$1" in -o) out=$2; shift 2 ;; *) shift ;; esac; done
{action}
"""


def export_to(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"
            " (start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName)"
        )
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 50, 0, 1, 7, 1, {100 << 24}, 1, 1)")
        db.commit()
    return path


class Machine:
    """A folder with reports, a cache, and an nsys that may be there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.bin = folder, folder / "cache", folder / "bin"
        self.work = folder / "work"
        for made in (self.work, self.bin):
            made.mkdir()
        self.sample = export_to(folder / "sample.sqlite")
        self.log = folder / "log"

    def install(self, action: str = "") -> None:
        nsys = self.bin / "nsys"
        nsys.write_text(STUB.format(log=self.log, action=action or f'cp "{self.sample}" "$out"'))
        nsys.chmod(0o755)

    def report(self, name: str = "run.nsys-rep") -> Path:
        path = self.work / name
        path.write_bytes(b"a report of nsys")
        return path

    @property
    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.cache))
    monkeypatch.delenv("NSYS_DIR", raising=False)
    monkeypatch.setattr("profkit.capture.nsys._INSTALLS", ())
    return made


@pytest.mark.parametrize("name", ["run.nsys-rep", "run.qdrep"])
def test_a_report_is_exported_once_into_the_cache(machine: Machine, name: str) -> None:
    machine.install()
    report = machine.report(name)
    for _ in range(2):
        trace = open_trace(report)
        assert trace.array("kernels", "dur_ns").tolist() == [50]
        assert trace.meta.path == name
    assert machine.runs == 1
    assert [file.name for file in machine.work.iterdir()] == [name]
    report.write_bytes(b"a report that was made again")
    open_trace(report)
    assert machine.runs == 2


def test_only_the_last_exports_are_kept(machine: Machine) -> None:
    machine.install()
    for i in range(MOST_EXPORTS + 2):
        open_trace(machine.report(f"run{i}.nsys-rep"))
    assert len(list((machine.cache / "profkit" / "nsys-exports").iterdir())) == MOST_EXPORTS


def test_without_nsys_one_line_says_how(machine: Machine) -> None:
    with pytest.raises(InputError, match=r"run\.nsys-rep: an Nsight Systems report: export it first, with nsys export"):
        open_trace(machine.report())


def test_a_failed_export_gives_the_last_lines_of_nsys(machine: Machine) -> None:
    machine.install('echo "Importer error: wrong event order" >&2; exit 3')
    with pytest.raises(InputError, match=r"run\.nsys-rep.*exit code 3.*wrong event order") as raised:
        open_trace(machine.report())
    assert raised.value.exit_code == 1
    assert list((machine.cache / "profkit" / "nsys-exports").iterdir()) == []


def test_an_export_beside_the_report_stands_for_it(machine: Machine) -> None:
    report = machine.report()
    export_to(machine.work / "run.sqlite")
    trace = open_trace(report)
    assert trace.meta.path == "run.nsys-rep"
    assert trace.meta.notes == ("read from run.sqlite, the export beside the report",)


def test_an_export_of_zeros_beside_the_report_does_not(machine: Machine) -> None:
    report = machine.report()
    (machine.work / "run.sqlite").write_bytes(bytes(4096))
    with pytest.raises(InputError, match=r"run\.sqlite beside it is no sound export: delete it"):
        open_trace(report)
    machine.install()
    assert open_trace(report).rows("kernels") == 1


def test_an_export_older_than_the_report_does_not(machine: Machine) -> None:
    old = export_to(machine.work / "run.sqlite")
    report = machine.report()
    os.utime(old, (1, 1))
    with pytest.raises(InputError, match=r"run\.sqlite beside it is older than the report"):
        open_trace(report)


def test_where_nothing_can_be_cached(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.sample))
    assert open_trace(machine.report()).rows("kernels") == 1


def test_a_renamed_export_is_no_report(machine: Machine) -> None:
    renamed = machine.sample.rename(machine.work / "run.nsys-rep")
    assert open_trace(renamed).rows("kernels") == 1
    assert machine.runs == 0
