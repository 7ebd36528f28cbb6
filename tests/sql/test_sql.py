"""SQL over a trace: what tables hold, what may be said, what is refused, how answers are printed."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profkit import sql
from profkit.analysis.context import Analysis
from profkit.cli import main
from profkit.derived import Derived
from profkit.errors import MissingExtra, ProfkitError, UsageError
from profkit.model import Trace
from profkit.schema import TABLES
from profkit.store import save
from profkit.testing import build_trace, call, copy, kernel, launch, span

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
FILES = sorted(path for kind in ("nsys", "kineto") for path in (Path(CORPUS) / kind).glob("*")) if CORPUS else []
HOSTILE = 'a "quoted", <b>\n</script>\ttab \\ \x1b[31m\u2028 核函数 ; DROP TABLE kernels'
Run = Callable[..., tuple[int, str, str]]
Ask = Callable[..., list[tuple[Any, ...]]]


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
        launch("norm", at=6_000, start=70_000, dur=5_000),
        kernel(80_000, 5_000, "norm"),
        copy(90_000, 1_000, "h2d", 4096, "pageable", "device"),
        copy(95_000, 1_000, "d2h", -1),
        span("decode", 0, 100_000, payload=8),
        span("plain", 5, 10),
    )


@pytest.fixture
def ask(trace: Trace) -> Ask:
    def rows(query: str, **options: Any) -> list[tuple[Any, ...]]:
        table = sql.query(trace, query, Derived(Analysis(trace)), **options).table
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    return rows


@pytest.fixture
def stored(trace: Trace, tmp_path: Path) -> Path:
    save(trace, tmp_path / "run.store")
    return tmp_path / "run.store"


def test_names_and_codes_are_text(ask: Ask) -> None:
    assert ask("SELECT name, count(*), sum(dur_ns) FROM kernels GROUP BY name ORDER BY 3") == [
        ("norm", 2, 10_000),
        (HOSTILE, 1, 50_000),
    ]
    assert ask("SELECT kind, src_kind, dst_kind FROM copies ORDER BY id") == [
        ("h2d", "pageable", "device"),
        ("d2h", "unknown", "unknown"),
    ]
    assert ask("SELECT name FROM kernels WHERE name = 'norm'") == [("norm",), ("norm",)]


def test_what_is_absent_is_null_and_no_number(ask: Ask) -> None:
    assert ask("SELECT sum(bytes), count(bytes), count(*) FROM copies") == [(4096, 1, 2)]
    assert ask("SELECT count(registers), count(grid_x), count(correlation) FROM kernels") == [(0, 0, 2)]
    assert ask("SELECT stage, payload_int, domain FROM spans ORDER BY id") == [
        ("decode", 8, None),
        (None, None, None),
    ]
    assert ask("SELECT stream_priority, stream_kind FROM tracks WHERE kind = 'stream'") == [(None, None)]


def test_raw_tables_are_as_they_are_stored(ask: Ask, trace: Trace) -> None:
    assert ask("SELECT bytes FROM raw.copies ORDER BY id") == [(4096,), (-1,)]
    assert ask("SELECT n.text FROM raw.kernels k JOIN raw.names n ON n.id = k.name ORDER BY k.id")[0] == (HOSTILE,)
    for name, table in trace.tables.items():
        columns = [row[0] for row in ask(f"DESCRIBE raw.{name}")]
        assert columns[-len(table.column_names) :] == table.column_names


def test_rows_are_joined_by_number_and_have_an_end(ask: Ask) -> None:
    assert ask(
        "SELECT k.id, k.end_ns, t.stream, d.id, p.pid FROM kernels k JOIN tracks t ON t.id = k.track "
        "JOIN devices d ON d.id = t.device JOIN processes p ON p.id = k.process ORDER BY k.id LIMIT 1"
    ) == [(0, 60_000, 7, 0, 100)]


def test_derived_tables(ask: Ask) -> None:
    assert ask('SELECT "table", row, call, queue_ns FROM launches ORDER BY id')[:3] == [
        ("kernels", 0, 0, 5_000),
        ("kernels", 1, 1, 59_000),
        ("kernels", 2, None, 0),
    ]
    assert ask("SELECT kind, host_start_ns, period_ns, span FROM steps") == [("decode", 0, None, 0)]
    assert ask("SELECT count(*) FROM requests") == [(0,)]
    assert ask("SELECT start_ns, dur_ns, cause, launch FROM idle ORDER BY start_ns") == [
        (60_000, 10_000, "launch_latency", 1),
        (75_000, 5_000, "unknown", 2),
        (85_000, 5_000, "unknown", 3),
        (91_000, 4_000, "unknown", 4),
    ]
    assert ask("SELECT count(*) FROM FINDINGS WHERE severity <> 'info'") == [(0,)]


def test_a_derived_table_is_made_only_when_it_is_named(trace: Trace) -> None:
    made = []

    def derive(name: str) -> pa.Table:
        made.append(name)
        return Derived(Analysis(trace))(name)

    sql.query(trace, "SELECT count(*) FROM kernels", derive)
    assert made == []
    sql.query(trace, 'SELECT * FROM kernels, "Steps"', derive)
    assert made == ["steps"]


def test_a_derived_table_that_does_not_exist_yet(ask: Ask) -> None:
    with pytest.raises(ProfkitError, match="step_requests is not derived by this version of profkit"):
        ask("SELECT * FROM step_requests")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM query('SELECT * FROM read_' || 'text(''{file}'')')",
        "ATTACH '{folder}/new.db'",
        "ATTACH ':memory:' AS other",
        "COPY kernels TO '{folder}/new.csv'",
        "COPY (SELECT 1) TO '{folder}/new.parquet'",
        "EXPORT DATABASE '{folder}/new'",
        "IMPORT DATABASE '{folder}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA memory_limit = '100GB'",
        "PRAGMA enable_profiling",
        "CALL enable_logging(storage='file')",
        "SELECT * FROM enable_profiling()",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE SECRET s (TYPE s3)",
        "DROP VIEW kernels",
        "INSERT INTO kernels VALUES (1)",
        "UPDATE kernels SET dur_ns = 0",
        "DELETE FROM kernels",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW kernels",
        "",
        "   ",
        "SELEC 1",
        "SELECT getenv('HOME')",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "SELECT * FROM arrow_scan(NULL, NULL, NULL)",
        "SELECT * FROM pandas_scan(1)",
        "SELECT * FROM trace",
        "SELECT * FROM table",
    ],
)
def test_what_reaches_out_or_writes_is_refused_in_one_line(query: str, stored: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "secret.csv").write_text("token\nhunter2\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run("sql", stored, query.format(file=tmp_path / "secret.csv", folder=tmp_path))
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("profkit: ")
    assert "hunter2" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_variables_of_the_program_are_no_tables(trace: Trace) -> None:
    secrets = pa.table({"token": ["hunter2"]})
    with pytest.raises(ProfkitError, match="secrets does not exist"):
        sql.query(trace, "SELECT * FROM secrets")
    assert secrets.num_rows == 1


def test_an_error_is_one_line_without_a_picture(stored: Path, run: Run) -> None:
    code, out, err = run("sql", stored, "SELECT\n  nme\nFROM kernels")
    assert (code, out) == (1, "")
    assert err.startswith('profkit: SQL: Binder Error: Referenced column "nme" not found')
    assert "LINE" not in err
    assert err.count("\n") == 1


def test_the_limit_cuts_and_says_so(stored: Path, run: Run) -> None:
    code, out, err = run("sql", stored, "SELECT id FROM kernels ORDER BY id", "--limit", 2, "--format", "csv")
    assert (code, out, err) == (0, "id\n0\n1\n", "only the first 2 rows: --limit 0 gives all\n")
    assert run("sql", stored, "SELECT id FROM kernels", "--limit", 3)[2] == ""
    assert run("sql", stored, "SELECT * FROM range(1500)", "--format", "csv")[1].count("\n") == 1001
    assert run("sql", stored, "SELECT * FROM range(1500)", "--format", "csv", "--limit", 0)[1].count("\n") == 1501


def test_a_query_without_end_is_stopped(ask: Ask) -> None:
    with pytest.raises(ProfkitError, match=r"the query took longer than 0\.1 s: ask for less, or raise --timeout"):
        ask("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", timeout_s=0.1)


def test_a_query_that_needs_more_memory_than_it_may_have(ask: Ask) -> None:
    with pytest.raises(ProfkitError, match="SQL: Out of Memory Error"):
        ask("SELECT list(range) FROM range(100000000)", memory="20MB")
    with pytest.raises(UsageError, match="--memory takes a size"):
        ask("SELECT 1", memory="lots'; SET lock_configuration=false; --")


def test_json_is_strict_and_keeps_every_digit(stored: Path, run: Run) -> None:
    query = (
        "SELECT 9007199254740991 a, 9007199254740992 b, 170141183460469231731687303715884105727::HUGEINT c, "
        "'nan'::DOUBLE d, 'inf'::DOUBLE e, 1.5 f, NULL g, true h, [1, NULL] i, {'x': 9007199254740993} j, "
        "DATE '2026-01-02' k, sum(dur_ns) l, 'ab'::BLOB m FROM kernels"
    )
    code, out, err = run("sql", stored, query, "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out, parse_constant=lambda word: pytest.fail(word))
    assert document["schema"] == "profkit.sql/1"
    assert [column["name"] for column in document["columns"]] == list("abcdefghijklm")
    assert document["rows"] == [
        [9007199254740991, "9007199254740992", "170141183460469231731687303715884105727", None, None, 1.5, None, True,
         [1, None], {"x": "9007199254740993"}, "2026-01-02", 60_000, "6162"]
    ]  # fmt: skip
    assert document["cut"] is False


def test_two_columns_of_one_name(stored: Path, run: Run) -> None:
    out = run("sql", stored, "SELECT 1 AS a, 2 AS a", "--format", "json")[1]
    assert [column["name"] for column in json.loads(out)["columns"]] == ["a", "a_1"]
    assert json.loads(out)["rows"] == [[1, 2]]
    assert run("sql", stored, "SELECT 1 AS a, 2 AS a", "--format", "csv")[1] == "a,a_1\n1,2\n"


def test_hostile_names_break_no_format(stored: Path, tmp_path: Path, run: Run) -> None:
    query = "SELECT name, dur_ns FROM kernels ORDER BY id LIMIT 1"
    rows = list(csv.reader(io.StringIO(run("sql", stored, query, "--format", "csv")[1])))
    assert rows == [["name", "dur_ns"], [HOSTILE, "50000"]]
    assert json.loads(run("sql", stored, query, "--format", "json")[1])["rows"] == [[HOSTILE, 50_000]]
    table = run("sql", stored, query)[1]
    assert len(table.splitlines()) == 2
    assert "\x1b" not in table
    assert run("sql", stored, query, "--format", "parquet", "-o", tmp_path / "x.parquet")[0] == 0
    assert pq.read_table(tmp_path / "x.parquet").column("name").to_pylist() == [HOSTILE]


def test_a_table_has_numbers_to_the_right(stored: Path, run: Run) -> None:
    out = run("sql", stored, "SELECT 'a' AS word, 5 AS n, NULL AS x UNION ALL SELECT 'longer', 12345, NULL ORDER BY 2")[
        1
    ]
    assert out == "word        n  x\na           5\nlonger  12345\n"


def test_a_file_instead_of_stdout(stored: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "out.csv"
    options = ("--format", "csv", "-o", target)
    assert run("sql", stored, "SELECT 1 AS a", *options) == (0, f"{target}\n", "")
    assert target.read_text() == "a\n1\n"
    code, _, err = run("sql", stored, "SELECT 2 AS a", *options)
    assert (code, "exists: choose another name, or overwrite it with --force" in err) == (1, True)
    assert run("sql", stored, "SELECT 2 AS a", *options, "--force")[0] == 0
    assert target.read_text() == "a\n2\n"
    assert run("sql", stored, "SELECT nope", *options, "--force")[0] == 1
    assert target.read_text() == "a\n2\n"


def test_parquet_needs_a_file(stored: Path, run: Run) -> None:
    code, _, err = run("sql", stored, "SELECT 1", "--format", "parquet")
    assert (code, "parquet is no text: name a file with -o FILE.parquet" in err) == (2, True)


def test_a_query_from_stdin(stored: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS n\nFROM kernels -- all of them\n"))
    assert run("sql", stored, "-", "--format", "csv")[1] == "n\n3\n"


def test_without_a_query_or_duckdb(stored: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("sql", stored)[0] == 2
    monkeypatch.setitem(sys.modules, "duckdb", None)
    code, out, err = run("sql", stored, "SELECT 1")
    assert (code, out) == (1, "")
    assert err.startswith("profkit: profkit sql needs packages that are not installed: pip install 'profkit[sql]'")
    assert err.count("\n") == 1
    with pytest.raises(MissingExtra):
        sql.query(build_trace(), "SELECT 1")
    assert run("sql", "--schema")[0] == 0


def test_the_schema_names_every_table_and_column(run: Run) -> None:
    columns = json.loads(run("sql", "--schema", "--format", "json")[1])["schema_columns"]
    named = {(column["table"], column["column"]) for column in columns}
    assert {(t.name, c.name) for t in TABLES.values() for c in t.columns} <= named
    assert all(column["doc"].endswith(".") for column in columns)
    text = run("sql", "--schema")[1]
    for table in TABLES.values():
        assert f"{table.name}: {table.doc}" in text
    assert list(csv.DictReader(io.StringIO(run("sql", "--schema", "--format", "csv")[1]))) == columns


def test_the_schema_is_what_duckdb_says(ask: Ask) -> None:
    described: dict[str, list[tuple[str, str]]] = {}
    for column in sql.describe():
        described.setdefault(column.table, []).append((column.column, column.type))
    del described["step_requests"]
    for name, columns in described.items():
        assert [(row[0], row[1]) for row in ask(f"DESCRIBE {name}")] == columns, name


def test_views_of_tables_with_no_rows(ask: Ask) -> None:
    assert ask("SELECT count(*), count(name), sum(bytes) FROM collectives") == [(0, 0, None)]


def test_calls_of_one_thread_over_time(trace: Trace) -> None:
    """A window function, to show that it is all of DuckDB's SQL."""
    more = build_trace(call(0, 5), call(20, 5), call(50, 5))
    rows = sql.query(more, "SELECT start_ns - lag(end_ns) OVER (ORDER BY start_ns) AS gap FROM calls ORDER BY id").table
    assert rows.column("gap").to_pylist() == [None, 15, 25]


QUERIES = (
    "SELECT name, count(*), sum(dur_ns) FROM kernels GROUP BY name ORDER BY 3 DESC LIMIT 5",
    "SELECT d.name, count(*) FROM kernels k JOIN tracks t ON t.id = track JOIN devices d ON d.id = device GROUP BY ALL",
    "SELECT kind, stage, domain, payload_kind, payload_int, payload_float, payload_text FROM spans",
    "SELECT device, cause, sum(dur_ns) FROM idle GROUP BY ALL",
    "SELECT * FROM steps, requests, findings",
    "SELECT k.name, c.name, queue_ns FROM launches l JOIN kernels k ON k.id = row JOIN calls c ON c.id = call",
    # Every column of a row of every table.
    "SELECT * FROM (SELECT 1) "
    + " ".join(f"LEFT JOIN (SELECT * FROM {name} LIMIT 1) ON true" for name in TABLES if name != "step_requests"),
)


@pytest.mark.skipif(not FILES, reason="PROFKIT_CORPUS names no folder of real exports")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_real_export_answers(path: Path, run: Run) -> None:
    from profkit.analysis.summary import summarize
    from profkit.ingest import open_trace

    trace = open_trace(path)
    analysis = Analysis(trace)
    derived = Derived(analysis)
    for query in QUERIES:
        sql.query(trace, query, derived)
    causes = summarize(analysis)["idle_by_cause"] or {}
    answer = sql.query(trace, "SELECT cause, sum(dur_ns)::BIGINT FROM idle GROUP BY cause", derived).table
    found = dict(zip(*(column.to_pylist() for column in answer.columns), strict=True)) if answer.num_rows else {}
    assert found == {cause: value for cause, value in causes.items() if value}
    (count,) = sql.query(trace, "SELECT count(*) FROM kernels").table.column(0).to_pylist()
    assert count == trace.rows("kernels")
    code, out, err = run("sql", path, "SELECT count(*) AS n FROM kernels", "--format", "csv")
    assert (code, out, err) == (0, f"n\n{count}\n", "")


def test_the_questions_of_the_documentation_work(ask: Ask) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
    block = page.split("```sql\n")[1].split("```")[0]
    queries = [query for query in block.split(";") if query.strip()]
    assert len(queries) == 4
    for query in queries:
        ask(query)
