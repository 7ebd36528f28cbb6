"""Cases B: odd traces of the PyTorch profiler."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest import open_trace

BASE_TIME = 1_690_000_000_000_000


def test_B07_legacy_list_with_text_pid_and_no_cat(tmp_path: Path, check: Any) -> None:
    events = [
        {"name": "aten::mul", "ph": "X", "ts": 633 + 100 * i, "dur": 54, "tid": 1, "pid": "CPU functions", "args": {}}
        for i in range(10)
    ]
    path = tmp_path / "legacy.json"
    path.write_text(json.dumps(events), encoding="utf-8")

    seen = check(path)

    assert seen.summary["counts"]["spans"] == 10
    assert "legacy list form without GPU activity" in seen.headline
    assert seen.document["trace"]["missing"]["kernels"] == "legacy list form without GPU activity"
    assert seen.document["trace"]["span_ns"] == (9 * 100 + 54) * 1_000
    assert seen.summary["devices"] == []
    assert seen.summary["window_ns"] is None
    assert seen.summary["idle_by_cause"] is None
    assert "n/a" in seen.line("GPU busy and idle: ")
    assert "100.0 %" not in seen.text
    trace = open_trace(path)
    assert {trace.name(int(name)) for name in trace.array("spans", "name")} == {"aten::mul"}
    assert trace.array("spans", "dur_ns").tolist() == [54_000] * 10


def test_B11_only_metadata_events(tmp_path: Path, run: Any) -> None:
    names = {
        "process_name": {"name": "python"},
        "process_labels": {"labels": "CPU"},
        "process_sort_index": {"sort_index": 5},
        "thread_name": {"name": "thread 100"},
    }
    events = [{"ph": "M", "name": name, "pid": 100, "tid": 100, "args": args} for name, args in names.items()]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")

    for command in (("check", path), ("check", path, "--json"), ("stats", path)):
        seen = run(*command)
        assert (seen.code, seen.out) == (1, "")
        assert "no timed events in this trace" in seen.err
        assert len(seen.err.splitlines()) == 1
        assert "KeyError" not in seen.err


def test_B12_no_distributed_info(kineto: Any, check: Any) -> None:
    kineto.base()
    with_rank = check(kineto.write("ranked.json"))
    assert with_rank.document["trace"]["warnings"] == with_rank.document["trace"]["notes"] == []
    del kineto.top["distributedInfo"]
    path = kineto.write("single.json")

    seen = check(path)

    (note,) = seen.document["trace"]["notes"]
    assert "rank 0" in note
    assert seen.line("rank 0") == f"note: {note}"
    assert seen.document["trace"]["warnings"] == []
    assert (seen.summary["window_ns"], seen.device["busy_ns"]) == (100_000, 100_000)
    assert open_trace(path).tables["processes"].column("rank").to_pylist() == [0]
    # Apart from the note and the file's name, the missing rank changes nothing.
    assert seen.summary == with_rank.summary
    assert seen.document["findings"] == with_rank.document["findings"]


@pytest.mark.parametrize("form", ['"{}"', "{}"], ids=["strings", "numbers"])
def test_B18_absolute_times_keep_every_nanosecond(tmp_path: Path, check: Any, run: Any, form: str) -> None:
    kernel = (
        '{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{},"dur":{},"args":{{"device":0,"stream":7}}}}'
    )
    kernels = [kernel.format(form.format(f"{BASE_TIME}.{us}"), form.format("0.050")) for us in ("100", "200")]
    path = tmp_path / "trace.json"
    path.write_text(
        '{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[' + ",".join(kernels) + "]}",
        encoding="utf-8",
    )

    seen = check(path)

    assert seen.summary["window_ns"] == 150
    assert seen.device["busy_ns"] == 100
    assert seen.device["idle_ns"] == 50
    assert seen.summary["idle_by_cause"]["unknown"] == 50
    trace = open_trace(path)
    assert trace.array("kernels", "start_ns").tolist() == [0, 100]
    assert trace.array("kernels", "dur_ns").tolist() == [50, 50]
    assert trace.meta.origin_ns == BASE_TIME * 1_000 + 100
    table = csv.DictReader(io.StringIO(run("stats", path, "cuda_gpu_trace", "--format", "csv").out))
    starts = [int(row["Start (ns)"]) for row in table]
    assert starts[1] - starts[0] == 100


def test_B26_launches_but_not_one_kernel(kineto: Any, check: Any, page: Any) -> None:
    for i in range(100):
        kineto.event("cpu_op", "aten::mm", 1000 + 20 * i, 12)
        kineto.launch(1002 + 20 * i, 5, i + 1)
    path = kineto.write()

    seen = check(path)

    assert "no gpu activity" in seen.headline.lower()
    assert "although 100 launches were made" in seen.headline
    assert "likely causes" in seen.headline
    assert seen.headline.lower().count("no gpu activity") == 1
    (lost,) = seen.findings("PK502")
    assert lost["facts"]["launch_calls"] == 100
    assert seen.summary["counts"] == {
        "kernels": 0, "copies": 0, "graphs": 0, "calls": 100, "launch_calls": 100, "spans": 100, "unclosed_spans": 0,
    }  # fmt: skip
    assert seen.summary["devices"] == []
    assert seen.summary["window_ns"] is None
    assert seen.summary["idle_by_cause"] is None
    assert "n/a" in seen.line("GPU busy and idle: ")
    assert "100.0 %" not in seen.text
    assert "100 %" not in seen.text
    assert seen.codes == ["PK502"]
    assert seen.document["others"] == seen.document["clean"] == []
    assert {"PK101", "PK201", "PK202", "PK301", "PK303", "PK501", "PK503"} <= set(seen.not_run)
    words = page(path)
    assert seen.headline in words
    assert "100.0 %" not in words
