"""Exports with a secret in every place that can hold one, and every output searched for them."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profkit import stats
from profkit.capture.kineto import clean
from profkit.cli import main
from profkit.schema import TABLES

HOST = "gpu-node-17"
PLACE = "/home/ann/private"
PID = 100
PROCESS = PID << 24

SECRETS = {
    "capture environment": "envsecret0123456789abcdef",
    "capture argument": "argsecret0123456789abcdef",
    "capture option": "optsecret0123456789abcdef",
    "device environment": "devsecret0123456789abcdef",
    "interned environment": "blocksecret0123456789abcdef",
    "process name": "procsecret0123456789abcdef",
    "thread name": "threadsecret0123456789abcdef",
    "diagnostic": "diagsecret0123456789abcdef",
    "range name": "rangesecret0123456789abcdef",
    "registered range name": "regsecret0123456789abcdef",
    "kernel name": "kernsecret0123456789abcdef",
    "domain name": "domsecret0123456789abcdef",
    "export version": "versecret0123456789abcdef",
    "huggingface": "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "url": "ann:urlpassword",
}
BLOCK = f"HOME=/root\0SECRET_THING={SECRETS['interned environment']}\0PLAIN={SECRETS['interned environment']}\0"
FORBIDDEN = (*SECRETS.values(), HOST, "/home/ann", "urlpassword")

_DEVICE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
_TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE}, demangledName, shortName, mangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE}, bytes, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "NVTX_EVENTS": "start, end, eventType, text TEXT, textId, globalTid, domainId, category, int64Value",
    "OSRT_API": "start, end, eventClass, globalTid, nameId, returnValue, callchainId",
    "PROCESSES": "globalPid, pid, name TEXT",
    "ThreadNames": "nameId, priority, globalTid",
    "TARGET_INFO_GPU": "id, name TEXT, busLocation TEXT, uuid TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid, devStateName TEXT, name TEXT, nameEnum, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "DIAGNOSTIC_EVENT": "timestamp, timestampType, source, severity, text TEXT, globalPid",
}
_STRINGS = {
    1: f"fetch token={SECRETS['kernel name']}",
    2: "cudaLaunchKernel_v7000",
    3: f"load api_key={SECRETS['registered range name']}",
    4: BLOCK,
    5: f"worker --password {SECRETS['thread name']}",
    6: "poll",
}


def _rows() -> dict[str, list[tuple[object, ...]]]:
    """Rows by table. The block of an environment is also used as a name: a damaged id can point at it."""
    environment = f"PATH=/bin\nHF_TOKEN={SECRETS['huggingface']}\nPLAIN={SECRETS['device environment']}"
    device = (0, 1, 7)
    return {
        "StringIds": list(_STRINGS.items()),
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            (1_000, 5_000, *device, 1, PROCESS, 1, 1, 1),
            (6_000, 9_000, *device, 2, PROCESS, 4, 4, 4),
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(10_000, 12_000, *device, 3, PROCESS, 4096, 1, 0, 2)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            (500, 800, 0, PROCESS + PID, 1, 2, 0),
            (5_500, 5_800, 0, PROCESS + PID, 2, 4, 0),
        ],
        "NVTX_EVENTS": [
            (0, None, 75, f"secret: {SECRETS['domain name']}", None, PROCESS + PID, 1, None, None),
            (400, 900, 59, f"decode key={SECRETS['range name']} {SECRETS['aws']}", None, PROCESS + PID, 1, None, 3),
            (5_000, 5_900, 59, None, 3, PROCESS + PID, 0, None, None),
            (9_000, 9_900, 59, None, 4, PROCESS + PID, 0, None, None),
        ],
        "OSRT_API": [(100, 300, 27, PROCESS + PID, 4, 0, 0)],
        "PROCESSES": [(PROCESS, PID, f"{PLACE}/python --api-key {SECRETS['process name']}")],
        "ThreadNames": [(5, 0, PROCESS + PID)],
        "TARGET_INFO_GPU": [(0, "NVIDIA H200", "0000:01:00.0", "gpu-0")],
        "TARGET_INFO_SYSTEM_ENV": [
            (0, "", "Hostname", 0, HOST),
            (0, "", "DeviceEnvironment", 0, environment),
        ],
        "META_DATA_CAPTURE": [
            ("CAPTURE_EVENT_TYPE", "Cuda"),
            ("CAPTURE_EVENT_TYPE", f"token={SECRETS['capture option']}"),
            ("PROCESS_0:COMMAND", f"{PLACE}/serve"),
            ("PROCESS_0:ARGUMENT_0", "--hf-token"),
            ("PROCESS_0:ARGUMENT_1", SECRETS["capture argument"]),
            ("PROCESS_0:ARGUMENT_2", f"https://{SECRETS['url']}@{HOST}/x"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f"MY_SETTING={SECRETS['capture environment']}"),
            ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", f"password={SECRETS['capture option']}"),
        ],
        "META_DATA_EXPORT": [("EXPORT_PRODUCT_VERSION", f"2026.1 key={SECRETS['export version']}")],
        "DIAGNOSTIC_EVENT": [
            (0, 0, 1, 3, f"CUDA error: cannot open {PLACE}/x on {HOST}: secret={SECRETS['diagnostic']}", PROCESS),
            (0, 0, 1, 2, f"CUPTI unable to log in as https://{SECRETS['url']}@{HOST}/", PROCESS),
        ],
    }


def _write(path: Path, without: tuple[str, ...] = ()) -> Path:
    rows = _rows()
    with closing(sqlite3.connect(path)) as db:
        for table, columns in _TABLES.items():
            if table in without:
                continue
            db.execute(f"CREATE TABLE {table} ({columns})")
            marks = ",".join("?" * (columns.count(",") + 1))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])
        db.commit()
    return path


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return _write(tmp_path / "run.sqlite")


@pytest.fixture
def no_gpu(tmp_path: Path) -> Path:
    """Without GPU rows the diagnostics are quoted as reasons."""
    return _write(tmp_path / "cpu.sqlite", ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"))


_KINETO_TOP = {
    "schemaVersion": 1,
    "host_name": HOST,
    "metadata.system.env": {"PLAIN": SECRETS["capture environment"], "deep": [{"x": SECRETS["device environment"]}]},
    "environ": f"A=b;C={SECRETS['capture environment']}",
    "HF_TOKEN": SECRETS["huggingface"],
    "command": f"{PLACE}/python --api-key {SECRETS['capture argument']} https://{SECRETS['url']}@{HOST}/",
    "db_password": SECRETS["diagnostic"],
    "distributedInfo": {"rank": 0, "world_size": 1, "init": f"tcp://{HOST}:29500"},
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
}


@pytest.fixture
def kineto(tmp_path: Path) -> Path:
    where, launched = {"pid": PID, "tid": PID}, {"correlation": 1}
    on_device = {"device": 0, "stream": 7, **launched, "env": {"A": SECRETS["capture environment"]}}
    program = f"{PLACE}/python token={SECRETS['process name']}"
    events = [
        {"ph": "M", "name": "process_name", **where, "args": {"name": program}},
        {"ph": "M", "name": "thread_name", **where, "args": {"name": f"pool api_key={SECRETS['thread name']}"}},
        {"ph": "X", "cat": "user_annotation", "name": f"get secret={SECRETS['range name']}", "ts": 1, "dur": 9},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 2, "args": launched},
        {"ph": "X", "cat": "kernel", "name": f"k token={SECRETS['kernel name']}", "ts": 5, "dur": 3, "args": on_device},
    ]
    for event in events[2:]:
        event.update({"pid": 0, "tid": 7} if event["cat"] == "kernel" else where)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**_KINETO_TOP, "traceEvents": events}, indent=1), encoding="utf-8")
    return path


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Everything that a command prints, on stdout and stderr; it must end well."""

    def run(*words: object) -> str:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out + err

    return run


def leaks(content: str | bytes) -> list[str]:
    """Which of the planted texts are in it."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    return [word for word in FORBIDDEN if word.encode() in raw]


def _files(path: Path) -> Iterator[bytes]:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            raw = file.read_bytes()
            yield gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw


@pytest.fixture(params=["export", "no_gpu", "kineto"])
def source(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def test_the_sources_hold_what_is_looked_for(export: Path, kineto: Path) -> None:
    planted = set(leaks(export.read_bytes())) | set(leaks(kineto.read_bytes()))
    assert planted == set(FORBIDDEN)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_check_shows_none(source: Path, shown: Callable[..., str], options: tuple[str, ...]) -> None:
    assert leaks(shown("check", source, *options)) == []


def test_report_shows_none(source: Path, shown: Callable[..., str], tmp_path: Path) -> None:
    said = shown("report", source, "-o", tmp_path / "r.html")
    assert leaks(said.replace(str(tmp_path), "")) == []
    assert leaks((tmp_path / "r.html").read_bytes()) == []


@pytest.mark.parametrize("output", ["table", "csv", "tsv", "json"])
def test_stats_shows_none(source: Path, shown: Callable[..., str], output: str) -> None:
    names = [report.name for report in stats.all_reports()]
    assert leaks(shown("stats", source, *names, "--format", output)) == []


@pytest.mark.parametrize("target", ["store", "perfetto", "parquet", "csv"])
def test_export_holds_none(source: Path, shown: Callable[..., str], tmp_path: Path, target: str) -> None:
    output = tmp_path / f"out.{'json' if target == 'perfetto' else target}"
    said = shown("export", source, "--to", target, "-o", output)
    assert leaks(said.replace(str(tmp_path), "")) == []
    found = [leaks(content) for content in _files(output)]
    assert found
    assert not any(found)


def test_sql_over_every_table_shows_none(source: Path, shown: Callable[..., str]) -> None:
    pytest.importorskip("duckdb")
    every = ", ".join(f'(SELECT list(t) FROM "{table}" t) AS "{table}"' for table in TABLES if table != "step_requests")
    answer = shown("sql", source, f"SELECT {every}", "--format", "json")
    assert "cudaLaunchKernel" in answer
    assert leaks(answer) == []


@pytest.mark.parametrize("indent", [None, 1])
def test_a_recorded_trace_is_cleaned(kineto: Path, indent: int | None) -> None:
    text = json.dumps(json.loads(kineto.read_text()), indent=indent)
    cleaned = "".join(clean(text.splitlines(keepends=True), "trace.json.gz", HOST, {"torch": "2.9"}))
    events = json.loads(cleaned)["traceEvents"]
    in_names = {word for event in events for word in leaks(json.dumps(event.get("args", {}).get("name", "")))}
    assert set(leaks(cleaned)) - in_names == set()
    assert in_names <= {"/home/ann"}
    assert json.loads(cleaned)["metadata.system.env"] == {}
    assert [(event.get("ts"), event.get("dur")) for event in events[2:]] == [(1, 9), (2, 2), (5, 3)]


def test_a_masked_range_keeps_its_other_words(export: Path, shown: Callable[..., str]) -> None:
    assert "decode key=***" in shown("stats", export, "nvtx_pushpop_sum")


def test_a_reason_that_is_cut_leaves_no_half_of_a_secret(tmp_path: Path, shown: Callable[..., str]) -> None:
    path = _write(tmp_path / "run.sqlite", ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"))
    with closing(sqlite3.connect(path)) as db:
        text = f"CUDA driver not usable {'x' * 165} {SECRETS['huggingface']}"
        assert text[:200].endswith("hf_AbCdEfGh")
        db.execute("UPDATE DIAGNOSTIC_EVENT SET text = ?", (text,))
        db.commit()
    said = shown("check", path)
    assert "nsys says: CUDA driver not usable" in said
    assert "hf_" not in said
