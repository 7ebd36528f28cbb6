"""Cases E of the PyTorch profiler: several ranks in one file or in a folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest import open_trace


def merged(kineto: Any, ranks: int, each: int, labels: bool) -> Path:
    for rank in range(ranks):
        pid = 1000 * (rank + 1)
        if labels:
            for where, word in ((pid, f"rank {rank}"), (rank, f"GPU {rank}")):
                kineto.events.append(
                    {"ph": "M", "name": "process_labels", "pid": where, "tid": 0, "args": {"labels": word}}
                )
        for i in range(each):
            at = 1_000 + 200 * i + rank
            kineto.event("cuda_runtime", "cudaLaunchKernel", at, 5, pid=pid, tid=pid, correlation=i + 1)
            where = {"device": rank, "stream": 7, "correlation": i + 1}
            kineto.event("kernel", "gemm", at + 10, 100, pid=rank, tid=7, **where)
    path: Path = kineto.write()
    return path


@pytest.mark.parametrize(("ranks", "each"), [(2, 1), (8, 2_500)])
def test_E01_links_stay_inside_a_rank(kineto: Any, ranks: int, each: int) -> None:
    trace = open_trace(merged(kineto, ranks, each, labels=True))
    process, track = trace.array("kernels", "process"), trace.array("kernels", "track")
    pids, device = trace.array("processes", "pid"), trace.array("tracks", "ordinal")[track]
    assert trace.rows("kernels") == ranks * each
    assert (pids[process] == 1000 * (device + 1)).all()
    assert sorted(trace.array("processes", "rank").tolist()) == list(range(ranks))
    assert trace.meta.warnings == ()


def test_E01_an_ambiguous_link_is_left_out_with_a_count(kineto: Any, check: Any) -> None:
    path = merged(kineto, 2, 3, labels=False)
    seen = check(path)
    (warning,) = open_trace(path).meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert warning.startswith("6 GPU rows could not be given to one process")
    assert seen.summary["launches"]["kernels_without_call"] == 6
    assert [device["busy_ns"] for device in seen.summary["devices"]] == [300_000, 300_000]


def rank_file(
    path: Path, rank: int | None, *, start: float = 1000, pid: int = 100, dur: float = 100, **top: Any
) -> None:
    events = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": start, "dur": 5,
         "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start + 10, "dur": dur,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
    ]  # fmt: skip
    if rank is not None:
        top["distributedInfo"] = {"rank": rank, "world_size": 8}
    text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 10**18, **top, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def torchtune(folder: Path, said: bool) -> list[Path]:
    paths = [folder / f"r0-2025-3-14-14-46.{17_000 + rank}.pt.trace.json.gz" for rank in range(8)]
    for rank, path in enumerate(paths):
        rank_file(path, rank if said else None, pid=100 + rank)
    return paths


def test_E05_the_content_wins_over_the_file_name(tmp_path: Path, check: Any) -> None:
    torchtune(tmp_path, said=True)

    seen = check(tmp_path)

    trace = open_trace(tmp_path)
    ranks = dict(zip(trace.array("processes", "pid").tolist(), trace.array("processes", "rank").tolist(), strict=True))
    assert ranks == {100 + rank: rank for rank in range(8)}
    assert seen.summary["counts"]["kernels"] == 8
    assert len(seen.summary["devices"]) == 8
    assert "7 file names say another rank" in seen.line("file names")


def test_E05_names_alone_are_not_enough(tmp_path: Path, run: Any) -> None:
    paths = torchtune(tmp_path, said=False)

    seen = run("check", tmp_path)

    assert (seen.code, seen.out) == (1, "")
    (line,) = seen.err.splitlines()
    assert "8 files claim rank 0" in line
    assert all(path.name in line for path in paths)
    assert "ranks.json" in line
    (tmp_path / "ranks.json").write_text(json.dumps({path.name: rank for rank, path in enumerate(paths)}))
    assert run("check", tmp_path).code == 0
    assert sorted(open_trace(tmp_path).array("processes", "rank").tolist()) == list(range(8))


def test_E06_two_captures_of_one_rank(tmp_path: Path, check: Any) -> None:
    rank_file(tmp_path / "a.json", 0, start=0, dur=999_990)
    rank_file(tmp_path / "b.json", 0, start=10_000_000, dur=999_990)

    seen = check(tmp_path)

    trace = open_trace(tmp_path)
    assert trace.rows("processes") == 1
    assert [(w.start_ns, w.end_ns) for w in trace.windows] == [(0, 10**9), (10 * 10**9, 11 * 10**9)]
    assert seen.summary["idle_by_cause"]["not_collected"] == 9 * 10**9
    assert seen.device["busy_ns"] == 2 * 999_990_000


def test_E06_two_files_of_one_rank_that_overlap(tmp_path: Path, run: Any) -> None:
    rank_file(tmp_path / "a.json", 0, start=0, dur=999_990)
    rank_file(tmp_path / "b.json", 0, start=500_000)

    seen = run("check", tmp_path)

    assert (seen.code, seen.out) == (1, "")
    (line,) = seen.err.splitlines()
    assert "two files of rank 0 overlap in time" in line
    assert str(tmp_path / "a.json") in line
    assert str(tmp_path / "b.json") in line


def test_E10_clocks_that_differ_are_said(tmp_path: Path, check: Any) -> None:
    for rank, shift in enumerate((0, 11_560_000)):
        events = [
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "pid": 0, "tid": 7,
             "ts": 4_900 + shift + 1_000 * i, "dur": 100, "args": {"device": 0, "stream": 7, "correlation": i + 1}}
            for i in range(10)
        ]  # fmt: skip
        top = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(top))

    seen = check(tmp_path)

    assert "clocks of the ranks are not aligned (each trace begins at 0)" in seen.line("clocks of the ranks")
    trace = open_trace(tmp_path)
    assert trace.array("hosts", "offset_error_ns").tolist() == [-1, -1]
    assert trace.rows("collectives") == 20
    assert seen.findings("skew") == []


def test_B11_one_of_several_rank_files_has_no_timed_event(tmp_path: Path, check: Any) -> None:
    rank_file(tmp_path / "rank0.json", 0)
    metadata = {"ph": "M", "name": "process_name", "pid": 100, "tid": 100, "args": {"name": "python"}}
    (tmp_path / "rank1.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [metadata]}))

    seen = check(tmp_path)

    assert seen.summary["counts"]["kernels"] == 1
    assert "not read: rank1.json: no timed events in this trace" in seen.line("rank1.json")
