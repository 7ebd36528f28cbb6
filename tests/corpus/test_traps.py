"""What is known to be odd about some of the real exports, each with the truth that the export itself gives."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.ingest import open_trace
from profkit.rules import all_rules

Check = Callable[..., dict[str, Any]]
Run = Callable[..., tuple[int, str, str]]
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
TWO_PROCESSES = ("nsysai-2xh100-1s", "nsysai-2xh100-mfu-before", "nsysai-2xh100-mfu-after")


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(sql).fetchall()


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        document = json.load(file)
    every = document if isinstance(document, list) else document["traceEvents"]
    return [event for event in every if event.get("ph") == "X"]


def stats(run: Run, path: Path, report: str) -> list[dict[str, str]]:
    code, out, _ = run("stats", path, report, "--format", "csv")
    assert code == 0
    return list(csv.DictReader(io.StringIO(out)))


def test_graphs_traced_as_a_whole_are_busy_and_kernels_are_the_loose_ones(corpus: Path, check: Check, run: Run) -> None:
    path = corpus / "nsys" / "cs336-a100-2.7B-cudagraph.sqlite"
    ((graphs, graph_ns),) = query(path, "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    assert (graphs, round(graph_ns / 10**9, 1)) == (10, 7.8)

    document = check(path)

    rows = stats(run, path, "cuda_gpu_kern_sum")
    assert sum(int(row["Instances"]) for row in rows) == 30
    assert sum(int(row["Total Time (ns)"]) for row in rows) == 78_270
    (device,) = document["summary"]["devices"]
    assert (device["graph_ns"], device["kernel_sum_over_streams_ns"]) == (graph_ns, 78_270)
    assert device["busy_share"] > 0.999
    assert device["idle_ns"] < 10**6
    assert "busy 100.0 %" in document["headline"]
    assert "Kernels inside CUDA graphs were not recorded" in document["headline"]
    found = [*document["findings"], *document["others"]]
    assert [f["facts"]["graph_launches"] for f in found if f["code"] == "PK501"] == [10]
    assert not [f for f in found if f["code"] in ("PK101", "PK201", "PK202") and f["severity"] != "info"]


def test_operating_system_calls_are_those_of_class_27(corpus: Path, run: Run) -> None:
    path = corpus / "nsys" / "cs336-a100-2.7B.sqlite"
    classes = dict(query(path, "SELECT eventClass, count(*) FROM OSRT_API GROUP BY 1"))
    assert (sum(classes.values()), classes[27], set(classes)) == (35_571, 35_541, {27, 31, 32})

    assert sum(int(row["Num Calls"]) for row in stats(run, path, "osrt_sum")) == 35_541
    trace = open_trace(path)
    assert trace.rows("os_calls") == 35_571
    other = trace.array("os_calls", "event_class") != 27
    assert int(other.sum()) == 30
    assert not trace.array("os_calls", "dur_ns")[other].any()


@pytest.mark.parametrize("name", TWO_PROCESSES)
def test_two_processes_are_joined_each_by_itself(corpus: Path, check: Check, name: str) -> None:
    """A join on correlationId alone matches kernels of the one process with calls of the other."""
    path = corpus / "nsys" / f"{name}.sqlite"
    without = f"SELECT count(*) FROM {KERNEL} k WHERE NOT EXISTS (SELECT 1 FROM {RUNTIME} r WHERE r.correlationId = "
    ((alone,),) = query(path, f"{without} k.correlationId)")
    ((both,),) = query(path, f"{without} k.correlationId AND r.globalTid / 16777216 * 16777216 = k.globalPid)")
    ((kernels,),) = query(path, f"SELECT count(*) FROM {KERNEL}")
    if name == TWO_PROCESSES[0]:
        assert (kernels, both, alone) == (3_442, 1_810, 1_799)

    document = check(path)

    assert document["summary"]["launches"]["kernels_without_call"] == both
    assert document["summary"]["counts"]["kernels"] == kernels
    work = Analysis(open_trace(path)).work
    linked = np.flatnonzero(work.call >= 0)
    trace = open_trace(path)
    assert (trace.array("calls", "process")[work.call[linked]] == work.process[linked]).all()
    assert sorted(device["number"] for device in document["summary"]["devices"]) == [0, 1]
    assert len(document["summary"]["devices"]) == trace.rows("processes") == 2
    assert len(np.unique(work.process * 2 + work.device)) == 2


def test_mpi_as_ranges_backtraces_that_double_calls_and_columns_of_a_user(corpus: Path, check: Check) -> None:
    path = corpus / "nsys" / "pipit-2022.2.1-mpi.sqlite"
    classes = dict(query(path, f"SELECT eventClass, count(*) FROM {RUNTIME} GROUP BY 1"))
    assert (classes[67], sum(classes.values())) == (38, 95)
    tables = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert not [name for name in tables if name.startswith("ENUM_")]
    columns = [row[1] for row in query(path, f"PRAGMA table_info({RUNTIME})")]
    assert "name" in columns  # added by its user: nsys has nameId only

    document = check(path)

    summary = document["summary"]
    assert summary["counts"]["calls"] == classes[0] + classes[1] == 57
    assert sum(call["count"] for call in summary["calls"]) == 57
    assert (summary["counts"]["kernels"], summary["launches"]["kernels_without_call"]) == (5, 0)
    assert summary["counts"]["spans"] == 22
    ranges = {(item["domain"], item["name"]): item["count"] for item in summary["ranges"]}
    assert ranges == {
        ("MPI", "MPI_Init"): 1, ("MPI", "MPI_Send"): 10, ("MPI", "MPI_Recv"): 5, ("MPI", "MPI_Finalize"): 1,
        (None, "saxpy"): 5,
    }  # fmt: skip


def test_no_schema_version_at_all(corpus: Path, check: Check, run: Run) -> None:
    path = corpus / "nsys" / "mordred-2021-sampling.sqlite"
    tables = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert "META_DATA_EXPORT" not in tables
    ((kernels,),) = query(path, f"SELECT count(*) FROM {KERNEL}")

    document = check(path)

    assert document["trace"]["source_version"] is None
    assert document["summary"]["counts"]["kernels"] == kernels == 12
    assert document["summary"]["counts"]["calls"] == 111
    assert run("check", path)[1].splitlines()[-1].startswith("from nsys-sqlite, ")


@pytest.mark.parametrize("name", ["centerformer-nvtx-only", "jacc-4xa100-empty", "jacc-a100-async-nocuda"])
def test_no_cuda_activity_is_said_plainly(corpus: Path, check: Check, run: Run, name: str) -> None:
    path = corpus / "nsys" / f"{name}.sqlite"

    document = check(path)

    assert document["headline"].startswith("No GPU kernels in this capture")
    summary = document["summary"]
    assert (summary["devices"], summary["window_ns"], summary["idle_by_cause"]) == ([], None, None)
    assert summary["communication"] is None
    text = run("check", path)[1]
    assert "GPU busy and idle: n/a (no GPU rows)" in text
    assert "100.0 %" not in text
    assert "idle mostly" not in text
    assert document["clean"] == []
    found = [f["code"] for f in (*document["findings"], *document["others"])]
    assert sorted([*found, *(item["code"] for item in document["not_run"])]) == sorted(all_rules())


KINETO = {
    # name: (kernels, calls, resolution of its times in ns)
    "hta-negative-queue-rank0": (6_080, 33_924, 1_000),
    "hta-ns-resolution-rank0": (4_350, 15_329, 1),
    "tb-resnet50-w0-2021-01.pt.trace": (9_538, 10_800, 1_000),
    "tl-mi210-gpu-only": (562, 631, 1),
    "tl-mi300-bert-small": (60, 161, 1),
    "hta-mi250-rocm62": (14, 21, 1),
}


@pytest.mark.parametrize("name", KINETO)
def test_odd_but_real_traces_of_pytorch_are_whole(corpus: Path, check: Check, name: str) -> None:
    path = corpus / "kineto" / f"{name}.json.gz"
    categories = Counter(str(event.get("cat", "")).lower() for event in events(path))

    document = check(path)

    kernels, calls, resolution = KINETO[name]
    counts = document["summary"]["counts"]
    assert counts["kernels"] == categories["kernel"] == kernels
    assert counts["calls"] == sum(categories[key] for key in ("runtime", "cuda_runtime", "cuda_driver")) == calls
    assert document["trace"]["resolution_ns"] == resolution
    wait = document["summary"]["launches"]["queue_wait_ns"]
    assert wait is None or min(wait["p50"], wait["p90"], wait["p99"]) >= 0
    assert all(device["idle_ns"] >= 0 and 0 <= device["busy_share"] <= 1 for device in document["summary"]["devices"])


def test_capitalised_categories_and_no_schema_version(corpus: Path, check: Check) -> None:
    path = corpus / "kineto" / "tb-resnet50-w0-2021-01.pt.trace.json.gz"
    assert {"Kernel", "Runtime", "Operator"} <= {event.get("cat") for event in events(path)}

    document = check(path)

    assert document["trace"]["source_version"] is None
    assert document["summary"]["step_source"] == "profiler_steps"


def test_integers_too_large_for_a_column(corpus: Path, check: Check) -> None:
    path = corpus / "kineto" / "hta-large-integer-rank70.json.gz"

    document = check(path)  # strict JSON

    assert document["summary"]["counts"]["kernels"] == 1
    assert open_trace(path).array("processes", "rank").tolist() == [70]
    assert max(open_trace(path).array("kernels", "dur_ns").tolist()) < 10**9


@pytest.mark.parametrize("name", ["tl-mi210-gpu-only", "tl-mi300-bert-small", "hta-mi250-rocm62"])
def test_amd_copies_say_no_kind_of_memory(corpus: Path, check: Check, name: str) -> None:
    document = check(corpus / "kineto" / f"{name}.json.gz")

    host = [c for c in document["summary"]["copies"] if c["kind"] in ("h2d", "d2h")]
    assert {side for c in host for side in (c["src"], c["dst"])} <= {"unknown", "device"}
    assert not [f for f in (*document["findings"], *document["others"]) if f["code"] == "PK301"]
    # Nothing to judge is clean only where there is nothing.
    assert ("PK301" in {item["code"] for item in document["not_run"]}) == bool(host)


def test_an_accelerator_that_is_no_gpu(corpus: Path, check: Check, run: Run) -> None:
    path = corpus / "kineto" / "hta-mtia-inference.json.gz"
    categories = Counter(event.get("cat") for event in events(path))

    document = check(path)

    (warning,) = document["trace"]["warnings"]
    assert f"{categories['mtia_ccp_events']} of category mtia_ccp_events" in warning
    assert "the device is no GPU: profkit reads GPUs only" in warning
    assert document["summary"]["devices"] == []
    assert "100.0 %" not in run("check", path)[1]
