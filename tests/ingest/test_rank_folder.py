"""Folders of rank files: ranks from content, name or mapping; captures of one rank; what cannot be read is said."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.model import Trace


def _kineto(
    path: Path, rank: int | None, *, start: float = 1000, pid: int = 100, base: int | None = 10**18, world: int = -1
) -> None:
    """A launch and its kernel of 100 us, 10 us behind it."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": start,
              "dur": 5, "args": {"correlation": 1}}  # fmt: skip
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start + 10, "dur": 100,
              "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip
    top: dict[str, Any] = {"schemaVersion": 1, "traceEvents": [launch, kernel]}
    if rank is not None:
        top["distributedInfo"] = {"rank": rank} | ({"world_size": world} if world > 0 else {})
    if base is not None:
        top["baseTimeNanoseconds"] = base
    text = json.dumps(top).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _ranks(trace: Trace) -> list[int]:
    return trace.array("processes", "rank").tolist()


def test_each_rank_is_a_process_with_devices_and_lanes_of_its_own(tmp_path: Path) -> None:
    for rank in range(3):
        _kineto(tmp_path / f"rank{rank}.json", rank, start=1000 + rank, pid=100)
    trace = open_trace(tmp_path)
    assert _ranks(trace) == [0, 1, 2]
    assert trace.rows("hosts") == trace.rows("devices") == 3
    assert trace.names == ["cudaLaunchKernel", "gemm"]  # one row a name, whatever the rank
    assert trace.array("kernels", "process").tolist() == [0, 1, 2]
    assert trace.array("kernels", "start_ns").tolist() == [10_000, 11_000, 12_000]
    tracks = trace.array("kernels", "track")
    assert trace.array("tracks", "device")[tracks].tolist() == [0, 1, 2]
    assert trace.array("tracks", "process")[trace.array("calls", "track")].tolist() == [0, 1, 2]
    assert trace.array("hosts", "offset_error_ns").tolist() == [-1, -1, -1]
    assert trace.meta.utc_ns == 10**18 + 1_000_000
    assert "clocks of the ranks are not aligned" in " ".join(trace.meta.warnings)


def test_without_absolute_times_each_trace_begins_at_0(tmp_path: Path) -> None:
    _kineto(tmp_path / "a.json", 0, start=5_000, base=None)
    _kineto(tmp_path / "b.json", 1, start=11_565_000, base=None)
    trace = open_trace(tmp_path)
    assert trace.array("kernels", "start_ns").tolist() == [10_000, 10_000]
    assert trace.meta.utc_ns == -1
    assert "each trace begins at 0" in " ".join(trace.meta.warnings)


def test_ranks_come_from_names_where_the_traces_do_not_say_them(tmp_path: Path) -> None:
    for rank, name in enumerate(("rank-0.json", "x_rank1.pt.trace.json.gz", "r2-2025.json")):
        _kineto(tmp_path / name, None, pid=100 + rank)
    trace = open_trace(tmp_path)
    assert sorted(_ranks(trace)) == [0, 1, 2]


def test_a_mapping_decides(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        _kineto(tmp_path / name, None, pid=ord(name[0]))
    (tmp_path / "ranks.json").write_text('{"a.json": 3, "b.json": 1}')
    trace = open_trace(tmp_path)
    assert dict(zip(trace.array("processes", "pid").tolist(), _ranks(trace), strict=True)) == {97: 3, 98: 1}


@pytest.mark.parametrize("text", ["[]", '{"a.json": "0"}', '{"a.json": -1}', "{", '{"other.json": 1}'])
def test_a_mapping_that_is_none(text: str, tmp_path: Path) -> None:
    _kineto(tmp_path / "a.json", 0)
    (tmp_path / "ranks.json").write_text(text)
    with pytest.raises(InputError, match=r"ranks\.json"):
        open_trace(tmp_path)


def test_what_is_no_trace_is_skipped_and_said(tmp_path: Path) -> None:
    _kineto(tmp_path / "rank0.json", 0, world=2)
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "config.json").write_text('{"model": "x"}')
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "rank1.json").write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}]}')
    trace = open_trace(tmp_path)
    assert trace.rows("kernels") == 1
    warnings, notes = " ".join(trace.meta.warnings), " ".join(trace.meta.notes)
    assert "not read: rank1.json: no timed events in this trace" in warnings
    assert "1 rank of 2 not in this folder: 1" in warnings
    assert "no trace, not read: config.json, notes.txt" in notes
    assert "hidden" not in notes
    assert trace.meta.partial


def test_a_folder_of_broken_traces_is_one_line(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text('{"traceEvents": [{"ph": "X", "ts')
    with pytest.raises(InputError, match=r"no trace in this folder can be read: rank0\.json: truncated") as error:
        open_trace(tmp_path)
    assert "\n" not in error.value.message


def test_a_folder_without_any_trace(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(InputError, match="a folder that holds no trace"):
        open_trace(tmp_path)


def test_captures_of_one_rank_share_their_process_and_lanes(tmp_path: Path) -> None:
    for place, start in enumerate((0, 10_000_000)):
        _kineto(tmp_path / f"step{place}.json", 0, start=start)
    trace = open_trace(tmp_path)
    assert (trace.rows("processes"), trace.rows("devices"), trace.rows("tracks"), trace.rows("hosts")) == (1, 1, 2, 1)
    assert trace.array("kernels", "start_ns").tolist() == [10_000, 10_000_010_000]
    assert [(w.start_ns, w.end_ns) for w in trace.windows] == [(0, 110_000), (10_000_000_000, 10_000_110_000)]
    assert not [w for w in trace.meta.warnings if "clocks" in w]


def test_repeats_of_a_process_without_a_rank_are_captures(tmp_path: Path) -> None:
    for place, start in enumerate((0, 10_000_000)):
        _kineto(tmp_path / f"host_100.{place}.pt.trace.json", None, start=start)
    assert open_trace(tmp_path).rows("processes") == 1


def test_sqlite_exports_beside_each_other(tmp_path: Path) -> None:
    for rank in range(2):
        with closing(sqlite3.connect(tmp_path / f"rank{rank}.sqlite")) as db:
            db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            db.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
            db.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
                " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
                " demangledName INTEGER, shortName INTEGER)"
            )
            db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, {rank + 5}, 0, 1, 7, 1, 1677721600, 1, 1)")
            db.commit()
    trace = open_trace(tmp_path)
    assert _ranks(trace) == [0, 1]
    assert sorted(trace.array("kernels", "dur_ns").tolist()) == [5, 6]


def test_references_between_tables_survive(tmp_path: Path) -> None:
    for rank in range(2):
        spans = [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts + rank, "dur": dur}
            for name, ts, dur in (("record_param_comms", 10, 20), ("outer", 0, 100))
        ]
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 12 + rank,
                  "dur": 5, "args": {"correlation": 1}}  # fmt: skip
        kernels = [
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts + rank, "dur": 5,
             "args": {"device": 0, "stream": 7, "correlation": c}}
            for name, ts, c in (("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 40, 1), ("gemm", 5, 2))
        ]  # fmt: skip
        text = {
            "baseTimeNanoseconds": 10**18,
            "traceEvents": [*spans, launch, *kernels],
            "distributedInfo": {"rank": rank},
        }
        (tmp_path / f"{rank}.json").write_text(json.dumps(text))
    trace = open_trace(tmp_path)
    assert [trace.name(row) for row in trace.array("spans", "name")] == ["outer", "outer"] + ["record_param_comms"] * 2
    assert trace.array("spans", "parent").tolist() == [-1, -1, 0, 1]
    assert trace.array("collectives", "span").tolist() == [2, 3]
    assert trace.array("collectives", "kernel").tolist() == [2, 3]
    assert trace.array("kernels", "id").tolist() == [0, 1, 2, 3]
