"""Cases E of the PyTorch profiler: several ranks in one file or in a folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from profkit.analysis.collectives import find_arrivals
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


def all_reduces(folder: Path, count: int, shift_us: int = 11_560_000) -> Path:
    """Two ranks, the clock of the second ahead; their all-reduces end at 5,000 us, 6,000 us and so on."""
    for rank in (0, 1):
        events = []
        for i in range(count):
            start = 4_900 + 1_000 * i + rank * shift_us
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100 + rank, "tid": 1,
                    "ts": start - 20, "dur": 5, "args": {"correlation": i + 1}}  # fmt: skip
            kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "pid": 0,
                      "tid": 7, "ts": start, "dur": 100,
                      "args": {"device": 0, "stream": 7, "correlation": i + 1}}  # fmt: skip
            events += [call, kernel]
        top = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(top))
    return folder


def test_E10_clocks_of_ranks_are_aligned_by_the_ends_of_collectives(tmp_path: Path, check: Any) -> None:
    seen = check(all_reduces(tmp_path, 10))

    note = "rank 1: clock moved by -11.56 s to agree with the first rank's, ±0 ns, by the ends of 10 collectives"
    assert note in seen.document["trace"]["notes"]
    assert note in seen.line("clock moved")
    assert "not aligned" not in seen.text
    trace = open_trace(tmp_path)
    assert trace.array("hosts", "offset_ns").tolist() == [0, -11_560_000_000]
    assert trace.array("hosts", "offset_error_ns").tolist() == [0, 0]
    found = find_arrivals(trace)
    assert (found.end_ns - found.end_ns[0]).tolist() == [i * 1_000_000 for i in range(10)]
    assert found.wait_ns.tolist() == [0] * 10
    assert (trace.array("kernels", "start_ns")[0::2] == trace.array("kernels", "start_ns")[1::2]).all()
    assert trace.meta.origin_ns + int(found.end_ns[0]) == 5_000_000  # as rank 0 has it
    assert (seen.summary["collectives"]["matched"], seen.summary["collectives"]["wait_p50_ns"]) == (10, 0)
    assert seen.summary["collectives"]["ranks"] == []


def test_E10_no_skew_before_alignment(tmp_path: Path, check: Any) -> None:
    seen = check(all_reduces(tmp_path, 2))

    warning = (
        "clocks of the ranks are not aligned (each trace begins at 0): times of different ranks are not comparable "
        "(rank 1: 2 collectives match, 3 are needed)"
    )
    assert warning in seen.line("clocks of the ranks")
    assert open_trace(tmp_path).array("hosts", "offset_error_ns").tolist() == [-1, -1]
    assert seen.findings("skew") == []
    assert seen.summary["collectives"] == {
        "matched": 0, "not_matched": ["2 collectives not matched: clocks of its ranks are not aligned"],
        "wait_p50_ns": None, "wait_sum_ns": None, "transfer_p50_ns": None, "error_ns": None, "ranks": [], "waits": [],
    }  # fmt: skip
    assert "came last" not in seen.text


def test_B11_one_of_several_rank_files_has_no_timed_event(tmp_path: Path, check: Any) -> None:
    rank_file(tmp_path / "rank0.json", 0)
    metadata = {"ph": "M", "name": "process_name", "pid": 100, "tid": 100, "args": {"name": "python"}}
    (tmp_path / "rank1.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [metadata]}))

    seen = check(tmp_path)

    assert seen.summary["counts"]["kernels"] == 1
    assert "not read: rank1.json: no timed events in this trace" in seen.line("rank1.json")
