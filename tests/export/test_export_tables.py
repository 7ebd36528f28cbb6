"""The command, and the folders of tables: decoded, quoted, with what is known of the capture beside them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from profkit.analysis.context import Analysis
from profkit.cli import main
from profkit.cli.export import Target
from profkit.export import exporters
from profkit.model import Trace, Window
from profkit.store import is_store, save
from profkit.testing import build_trace, copy, kernel, launch, span

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
FILES = sorted(path for kind in ("nsys", "kineto") for path in (Path(CORPUS) / kind).glob("*")) if CORPUS else []
HOSTILE = 'a "quoted", <b>\r\n</script>\ttab \\ \x1b[31m\u2028 核函数 =1+1'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        return code, *capsys.readouterr()

    return run_command


@pytest.fixture
def trace() -> Trace:
    return build_trace(
        launch(HOSTILE, at=0, start=10_000, dur=50_000),
        kernel(70_000, 5_000, ""),
        copy(80_000, 1_000, "h2d", 4096, "pageable", "device"),
        copy(85_000, 1_000, "memset", -1),
        span("decode", 0, 100_000, payload=8),
        span("mark", 5, 0, kind="mark"),
        missing={"allocs": "not asked for"},
    )


@pytest.fixture
def stored(trace: Trace, tmp_path: Path) -> Path:
    save(trace, tmp_path / "run.store")
    return tmp_path / "run.store"


def test_the_command_knows_every_exporter() -> None:
    assert {target.value for target in Target} == set(exporters())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_names_and_words_and_empty_cells_for_what_is_absent(trace: Trace, tmp_path: Path) -> None:
    exporters()["csv"].write(Analysis(trace), tmp_path / "out")
    kernels = read_csv(tmp_path / "out" / "kernels.csv")
    assert [(row["id"], row["start_ns"], row["name"]) for row in kernels] == [
        ("0", "10000", HOSTILE),
        ("1", "70000", ""),
    ]
    assert kernels[0]["grid_x"] == ""
    copies = read_csv(tmp_path / "out" / "copies.csv")
    assert [(row["kind"], row["bytes"], row["src_kind"]) for row in copies] == [
        ("h2d", "4096", "pageable"),
        ("memset", "", "unknown"),
    ]
    spans = read_csv(tmp_path / "out" / "spans.csv")
    assert [(row["name"], row["stage"], row["payload_kind"], row["payload_int"]) for row in spans] == [
        ("decode", "decode", "int", "8"),
        ("mark", "", "none", ""),
    ]
    steps = read_csv(tmp_path / "out" / "steps.csv")
    assert [(row["kind"], row["host_end_ns"], row["period_ns"]) for row in steps] == [("decode", "100000", "")]
    assert [row["id"] for row in read_csv(tmp_path / "out" / "names.csv")] == [
        str(row) for row in range(trace.rows("names"))
    ]


def test_parquet_has_dictionaries_and_nulls(trace: Trace, tmp_path: Path) -> None:
    exporters()["parquet"].write(Analysis(trace), tmp_path / "out")
    kernels = pq.read_table(tmp_path / "out" / "kernels.parquet")
    assert kernels.column("name").to_pylist() == [HOSTILE, ""]
    assert kernels.column("registers").to_pylist() == [None, None]
    assert kernels.column("start_ns").to_pylist() == [10_000, 70_000]
    launches = pq.read_table(tmp_path / "out" / "launches.parquet").to_pylist()
    assert launches[0] == {"id": 0, "table": "kernels", "row": 0, "call": 0, "queue_ns": 5_000}
    assert launches[1]["call"] is None


def test_a_folder_says_what_it_is_and_what_is_missing(trace: Trace, tmp_path: Path) -> None:
    exporters()["csv"].write(Analysis(trace, Window(0, 75_000)), tmp_path / "out")
    meta = json.loads((tmp_path / "out" / "meta.json").read_text("utf-8"))
    assert meta["schema"] == "profkit.csv/1"
    assert meta["missing"] == {"allocs": {"-1": "not asked for"}}
    assert meta["window"] == [0, 75_000]
    assert meta["tables"]["kernels"]["rows"] == 2
    assert meta["tables"]["kernels"]["columns"]["dur_ns"] == {"unit": "ns", "doc": "Length; never negative."}
    assert "allocs" not in meta["tables"]
    assert not (tmp_path / "out" / "allocs.csv").exists()
    assert not (tmp_path / "out" / "copies.csv").exists()
    assert not is_store(tmp_path / "out")


def test_rows_keep_their_numbers_in_a_window(trace: Trace, tmp_path: Path) -> None:
    exporters()["csv"].write(Analysis(trace, Window(65_000, 75_000)), tmp_path / "out")
    assert [row["id"] for row in read_csv(tmp_path / "out" / "kernels.csv")] == ["1"]


@pytest.mark.parametrize("to", ["store", "perfetto", "parquet", "csv"])
def test_every_format_from_the_command_line(to: str, stored: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "out"
    assert run("export", stored, "--to", to, "-o", target) == (0, f"{target}\n", "")
    code, out, err = run("export", stored, "--to", to, "-o", target)
    assert (code, out) == (1, "")
    assert "exists: choose another name, or " in err
    assert run("export", stored, "--to", to, "-o", target, "--force")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run.store"]


def test_a_folder_of_another_kind_is_replaced_only_when_profkit_wrote_it(
    stored: Path, tmp_path: Path, run: Run
) -> None:
    assert run("export", stored, "--to", "csv", "-o", tmp_path / "out")[0] == 0
    assert run("export", stored, "--to", "store", "-o", tmp_path / "out", "--force")[0] == 0
    assert is_store(tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").touch()
    code, _, err = run("export", stored, "--to", "csv", "-o", tmp_path / "mine", "--force")
    assert (code, "was not written by profkit" in err) == (1, True)


def test_a_trace_is_never_written_over_itself(stored: Path, tmp_path: Path, run: Run) -> None:
    for target in (stored, tmp_path, stored / "kernels.arrow" / ".."):
        code, _, err = run("export", stored, "--to", "store", "-o", target, "--force")
        assert (code, "is or holds the trace itself" in err) == (2, True)


def test_a_store_takes_no_window(stored: Path, tmp_path: Path, run: Run) -> None:
    code, _, err = run("export", stored, "--to", "store", "-o", tmp_path / "out", "--window", "1us:2us")
    assert (code, "a store keeps the whole trace" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_window_by_name(stored: Path, tmp_path: Path, run: Run) -> None:
    assert run("export", stored, "--to", "csv", "-o", tmp_path / "out", "--window", "65us:75us")[0] == 0
    assert [row["id"] for row in read_csv(tmp_path / "out" / "kernels.csv")] == ["1"]


def test_no_folder_to_write_to(stored: Path, tmp_path: Path, run: Run) -> None:
    for to in ("store", "perfetto"):
        code, _, err = run("export", stored, "--to", to, "-o", tmp_path / "none" / "out")
        assert (code, "there is no folder" in err) == (1, True)


def test_what_a_store_derived_is_what_is_derived_from_it(stored: Path, tmp_path: Path, run: Run) -> None:
    assert run("export", stored, "--to", "store", "-o", tmp_path / "full")[0] == 0
    query = "SELECT cause, sum(dur_ns) FROM idle GROUP BY cause ORDER BY 1"
    assert run("sql", tmp_path / "full", query) == run("sql", stored, query)


@pytest.mark.skipif(not FILES, reason="PROFKIT_CORPUS names no folder of real exports")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_real_export_in_every_format(path: Path, tmp_path: Path, run: Run) -> None:
    for to in ("store", "parquet", "csv"):
        assert run("export", path, "--to", to, "-o", tmp_path / to) == (0, f"{tmp_path / to}\n", "")
    meta = json.loads((tmp_path / "csv" / "meta.json").read_text("utf-8"))
    for name, table in meta["tables"].items():
        rows = read_csv(tmp_path / "csv" / f"{name}.csv")
        assert len(rows) == table["rows"] == pq.read_metadata(tmp_path / "parquet" / f"{name}.parquet").num_rows
