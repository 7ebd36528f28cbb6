"""The command: what stands on stdout, what on stderr, which exit code, and that no name can break a format."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profkit.cli import main

HOSTILE = 'a "quoted", <b>\n</script>\ttab \\ \x00\x1b[31m\x85\u2028 核函数 '
PID = 100 * 0x1000000
CORPUS = os.environ.get("PROFKIT_CORPUS", "")
Export = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Makes an nsys export of kernels (start, end, name) and calls (start, end, name)."""

    def make(kernels: Sequence[tuple[int, int, str]], calls: Sequence[tuple[int, int, str]] = ()) -> Path:
        path = tmp_path / "run.sqlite"
        names = list(dict.fromkeys(name for _, _, name in (*kernels, *calls)))
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
            db.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, busLocation TEXT, uuid TEXT)")
            db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', '0000:01:00.0', 'u')")
            db.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
                "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
                "demangledName INTEGER, shortName INTEGER, gridX INTEGER)"
            )
            rows = [
                (s, e, 0, 1, 7, i, PID, names.index(n), names.index(n), 4) for i, (s, e, n) in enumerate(kernels, 1)
            ]
            db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 10)})", rows)
            if calls:
                db.execute(
                    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, "
                    "globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER)"
                )
                rows = [(s, e, 0, PID + 100, i, names.index(n), 0) for i, (s, e, n) in enumerate(calls, 1)]
                db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({','.join('?' * 7)})", rows)
            db.commit()
        return path

    return make


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: object) -> tuple[int, str, str]:
        code = main(["stats", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_table_is_titled_and_aligned_and_names_are_whole(export: Export, run: Run) -> None:
    long = "void k<" + "x, " * 100 + ">()"
    code, printed, _ = run(export([(0, 10, "gemm"), (20, 35, long)]), "cuda_gpu_kern_sum")
    assert code == 0
    title, blank, heading, rule, first, second = printed.rstrip("\n").split("\n")
    assert (title, blank) == (" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):", "")
    assert heading.split("  ")[0] == " Time (%)"
    assert (
        first == "     60.0               15          1      15.0      15.0        15        15          0.0  " + long
    )
    assert second.endswith("  gemm")
    assert len(rule.split()[-1]) == 100


def test_csv_is_pure_data(export: Export, run: Run) -> None:
    path = export([(0, 10, "gemm"), (20, 25, "f<a, b>")], [(0, 5, "cudaLaunchKernel_v7000")])
    assert run(path, "gpukernsum", "--format", "csv") == (
        0,
        (
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
            "66.7,10,1,10.0,10.0,10,10,0.0,gemm\n"
            '33.3,5,1,5.0,5.0,5,5,0.0,"f<a, b>"\n'
        ),
        "",
    )
    code, printed, remarks = run(path, "--format", "csv")
    assert code == 0
    assert [part.count("\n") for part in printed.split("\n\n")] == [1, 3]
    assert "in this order, a blank line between: cuda_api_sum, cuda_gpu_kern_sum" in remarks


def test_missing_data_is_said_on_stderr_and_is_no_failure(export: Export, run: Run) -> None:
    path = export([(0, 10, "gemm")])
    for form in ("table", "csv", "tsv"):
        code, printed, remarks = run(path, "cuda_gpu_mem_size_sum", "--format", form)
        assert (code, printed) == (0, "")
        assert remarks.startswith("cuda_gpu_mem_size_sum: no GPU ")
        assert remarks.count("\n") == 1


def test_json_is_strict_with_units_in_its_keys(export: Export, run: Run) -> None:
    path = export([(0, 10, "gemm"), (20, 31, "gemm"), ((1 << 53) + 1, (1 << 53) + 2, HOSTILE)])
    code, printed, _ = run(path, "cuda_gpu_kern_sum", "cuda_gpu_trace", "osrt_sum", "--format", "json")
    document = json.loads(printed, parse_constant=pytest.fail)
    assert (code, document["schema"]) == (0, "profkit.stats/1")
    assert list(document) == ["schema", "profkit_version", "reports"]
    kernels, trace = document["reports"]
    assert kernels["rows"][0] == {
        "time_percent": pytest.approx(95.4545454545), "total_time_ns": 21, "instances": 2, "avg_ns": 10.5,
        "med_ns": 10.5, "min_ns": 10, "max_ns": 11, "stddev_ns": pytest.approx(0.5**0.5), "name": "gemm",
    }  # fmt: skip
    assert isinstance(kernels["rows"][0]["total_time_ns"], int)
    assert kernels["rows"][1]["name"] == HOSTILE
    assert (trace["rows"][0]["start_ns"], trace["rows"][0]["bytes"]) == (0, None)
    assert trace["rows"][2]["start_ns"] == "9007199254740993"  # no double holds it


def test_json_without_any_data_is_still_a_document(export: Export, run: Run) -> None:
    _, printed, _ = run(export([(0, 10, "gemm")]), "osrt_sum", "--format", "json")
    assert json.loads(printed)["reports"] == []


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_a_hostile_name_stays_one_field_of_one_line(export: Export, run: Run, form: str, delimiter: str) -> None:
    path = export([(0, 30, HOSTILE), (40, 50, "gemm")])
    for report in ("cuda_gpu_kern_sum", "cuda_gpu_trace"):
        _, printed, _ = run(path, report, "--format", form)
        assert len(printed.splitlines()) == 3
        rows = list(csv.reader(io.StringIO(printed), delimiter=delimiter))
        assert {len(row) for row in rows} == {len(rows[0])}
        assert rows[1][-1].startswith('a "quoted", <b>\\n</script>\\ttab \\ \\x00\\x1b[31m\\x85\\u2028')


def test_a_hostile_name_stays_one_line_of_the_table(export: Export, run: Run) -> None:
    path = export([(0, 30, HOSTILE), (40, 50, "gemm")])
    for report in ("cuda_gpu_kern_sum", "cuda_gpu_trace"):
        _, printed, _ = run(path, report)
        assert len(printed.splitlines()) == 7
        assert not any(ord(char) < 32 and char != "\n" for char in printed)


def test_list_names_every_report_without_a_trace(run: Run) -> None:
    code, printed, _ = run("--list")
    assert code == 0
    lines = printed.splitlines()
    assert (len(lines), lines[0].split()[0]) == (21, "nvtx_sum")
    assert "cuda_gpu_kern_sum[:base][:mangled]      CUDA GPU Kernel Summary" in lines
    assert "nvtx_pushpop_trace                      NVTX Push/Pop Range Trace (only when named)" in lines


def test_an_unknown_report_is_a_usage_error_before_the_trace_is_read(run: Run) -> None:
    code, printed, said = run("nowhere.sqlite", "openmp_sum")
    assert (code, printed) == (2, "")
    assert said.startswith("profkit: unknown report 'openmp_sum'; reports: nvtx_sum, ")


def test_no_trace_is_a_usage_error(run: Run) -> None:
    assert run()[0] == 2


def test_help_has_an_example_and_loads_nothing_heavy() -> None:
    program = (
        "import sys; from profkit.cli import main; code = main(['stats', '--help']); "
        "heavy = {'numpy', 'pyarrow', 'pandas'} & set(sys.modules); sys.exit(str(heavy) if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "profkit stats run.sqlite cuda_api_sum --format csv" in done.stdout


@pytest.mark.parametrize("form", ["table", "csv", "tsv", "json"])
def test_output_does_not_depend_on_the_size_of_a_batch(
    export: Export, run: Run, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export([(i * 10, i * 10 + i, f"kernel {i % 3}") for i in range(8)])
    whole = run(path, "cuda_gpu_trace", "--format", form)
    monkeypatch.setattr("profkit.stats._render.BATCH_ROWS", 3)
    assert run(path, "cuda_gpu_trace", "--format", form) == whole


def test_the_command_filters_by_time_and_by_range(export: Export, run: Run) -> None:
    path = export([(0, 10, "early"), (20, 35, "late"), (30, 60, "later")])
    heading = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    code, printed, said = run(path, "cuda_gpu_kern_sum", "--format", "csv", "--filter-time", "20ns/40ns")
    assert (code, printed, said) == (0, heading + "100.0,15,1,15.0,15.0,15,15,0.0,late\n", "")
    _, printed, _ = run(path, "cuda_gpu_kern_sum", "--format", "csv", "--filter-time", "20/40:")
    assert [line.split(",")[-1] for line in printed.splitlines()] == ["Name", "later", "late"]
    code, printed, said = run(path, "--filter-time", "soon")
    assert (code, printed) == (2, "")
    assert said.startswith("profkit: no time filter: 'soon'; write START/END")
    code, printed, said = run(path, "--filter-nvtx", "step")
    assert (code, printed, said) == (2, "", "profkit: no NVTX range 'step' in this trace\n")


def test_a_report_with_arguments_carries_them_in_its_title(export: Export, run: Run) -> None:
    path = export([(0, 10, "gemm")])
    assert run(path, "cuda_gpu_kern_sum:base")[1].startswith(" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum:base):\n")
    document = json.loads(run(path, "cuda_gpu_kern_sum:mangled", "--format", "json")[1])
    assert document["reports"][0]["report"] == "cuda_gpu_kern_sum:mangled"


@pytest.mark.skipif(not CORPUS, reason="PROFKIT_CORPUS names no folder of real exports")
def test_every_real_export_agrees_with_its_own_rows(run: Run) -> None:
    """Counts and times straight from the SQLite rows of each export."""
    exports = sorted((Path(CORPUS) / "nsys").glob("*.sqlite"))
    assert exports
    for path in exports:
        code, printed, said = run(path, "cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_trace", "--format", "json")
        assert code == 0, said
        listed = {report["report"]: report["rows"] for report in json.loads(printed)["reports"]}
        keys = ("name", "instances", "total_time_ns", "min_ns", "max_ns")
        kernels = [tuple(row[key] for key in keys) for row in listed.get("cuda_gpu_kern_sum", [])]
        assert sorted(kernels) == recorded(path, "KERNEL", KERNELS_BY_NAME), path.name
        calls = sum(row["num_calls"] for row in listed.get("cuda_api_sum", []))
        assert calls == sum(row[0] for row in recorded(path, "RUNTIME", CALLS)), path.name
        copies = sum(row["name"].startswith("[CUDA mem") for row in listed.get("cuda_gpu_trace", []))
        assert len(listed.get("cuda_gpu_trace", [])) - copies == sum(row[1] for row in kernels), path.name


KERNELS_BY_NAME = (
    "SELECT value, count(*), sum(end - start), min(end - start), max(end - start) "
    "FROM {} JOIN StringIds ON id = demangledName GROUP BY value ORDER BY value"
)
CALLS = "SELECT count(*) FROM {} WHERE eventClass IN (0, 1)"


def recorded(path: Path, kind: str, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query on a CUPTI table of an export, [] where it has no such table."""
    table = f"CUPTI_ACTIVITY_KIND_{kind}"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return []
        return db.execute(query.format(table)).fetchall()
