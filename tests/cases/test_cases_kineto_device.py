"""Cases B: traces of the PyTorch profiler whose device rows are odd, lacking, or many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from profkit.analysis.context import Analysis
from profkit.ingest import open_trace
from profkit.schema import FLAGS
from profkit.timeline.lanes import stream_lanes


def inflated(kineto: Any) -> Path:
    for i, (ts, dur) in enumerate(((0, 1_600_000), (100, 50), (200, 50))):
        kineto.kernel(ts, dur, i + 1, name=f"K{i + 1}")
    path: Path = kineto.write()
    return path


def test_B14_a_kernel_inflated_past_the_next(kineto: Any, check: Any) -> None:
    path = inflated(kineto)

    seen = check(path)

    trace = open_trace(path)
    flags = [[name for name, bit in FLAGS.items() if int(row) & bit] for row in trace.array("kernels", "flags")]
    assert flags == [["overlaps_next", "late_end"], [], []]
    (warning,) = trace.meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert warning.startswith("1 kernel ends behind later rows of its own stream, the longest lasts 1.60 s")
    assert "so are sums that hold them" in seen.line("behind later rows")


def test_B14_lanes_show_it_up_to_the_next_kernel(kineto: Any, run: Any, tmp_path: Path) -> None:
    path = inflated(kineto)

    (lane,) = stream_lanes(Analysis(open_trace(path)))
    assert (lane.end - lane.start).tolist() == [100_000, 50_000, 50_000]

    target = tmp_path / "perfetto.json"
    assert run("export", path, "--to", "perfetto", "-o", target).code == 0
    events = {e["name"]: e for e in json.loads(target.read_text())["traceEvents"] if e.get("cat") == "kernel"}
    assert {name: event["dur"] for name, event in events.items()} == {"K1": 100, "K2": 50, "K3": 50}
    assert len({event["tid"] for event in events.values()}) == 1
    assert events["K1"]["args"]["recorded dur (ns)"] == 1_600_000_000
    assert "recorded dur (ns)" not in events["K2"]["args"]


def test_B14_sums_that_hold_it_are_marked(kineto: Any, run: Any, page: Any) -> None:
    path = inflated(kineto)

    for report in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum"):
        seen = run("stats", path, report, "--format", "csv")
        head, first, *rest = (line.split(",") for line in seen.out.splitlines())
        assert head[-1] == "Late Ends"
        assert (first[1], first[-2], first[-1]) == ("1600000000", "K1", "1")
        assert [row[-1] for row in rest] == ["0", "0"]
        assert f"{report}: 1 kernel ends behind later rows of its own stream" in seen.err
    part = run("stats", path, "cuda_gpu_kern_sum", "--format", "csv", "--filter-time", "/50us:")
    assert part.out.splitlines()[1].endswith(",K1,1")
    listed = run("stats", path, "cuda_gpu_trace", "--format", "csv")
    assert "1 kernel ends behind later rows" in listed.err
    shown = page(path)
    assert "1 kernel ends behind later rows of its own stream" in shown
    assert "K1 (1 overlap the next of their stream)" in shown


def test_B14_sound_traces_have_no_further_column(kineto: Any, run: Any) -> None:
    for i, (ts, dur) in enumerate(((0, 100), (90, 50), (200, 50))):  # programmatic dependent launch: ends in order
        kineto.kernel(ts, dur, i + 1, name=f"K{i + 1}")
    path = kineto.write()

    seen = run("stats", path, "cuda_gpu_kern_sum", "--format", "csv")

    assert seen.out.splitlines()[0].endswith("StdDev (ns),Name")
    assert "behind later rows" not in seen.err
    (lane,) = stream_lanes(Analysis(open_trace(path)))
    assert (lane.end - lane.start).tolist() == [100_000, 50_000, 50_000]


def test_B21_no_correlation_ids(kineto: Any, check: Any) -> None:
    kineto.event("kernel", "gemm", 1010, 100, pid=0, tid=7, **{"External id": 131})
    kineto.event("gpu_memcpy", "CopyHostToDevice", 1200, 32, pid=0, tid=7, **{"External id": 132})
    path = kineto.write()

    seen = check(path)

    assert (seen.device["busy_ns"], seen.device["idle_ns"]) == (132_000, 90_000)
    assert seen.copies() == {("h2d", "unknown", "unknown"): (1, None, 32_000)}
    assert open_trace(path).array("copies", "bytes").tolist() == [-1]
    assert seen.summary["launches"]["queue_wait_ns"] is None
    assert seen.findings("PK301") == []
    (warning,) = [text for text in seen.document["trace"]["warnings"] if "no call was recorded" in text]
    assert "no call was recorded for 2 of 2 GPU rows (100.0 %)" in warning
    (note,) = seen.document["trace"]["notes"]
    assert "carry no correlation ids" in note


def test_B22_launches_and_kernels_only(kineto: Any, check: Any, page: Any) -> None:
    kineto.base()
    path = kineto.write()

    seen = check(path)

    assert seen.summary["copies"] == []
    assert seen.summary["launches"]["queue_wait_ns"]["p50"] == 5_000
    assert seen.summary["counts"]["launch_calls"] == 1
    assert [call["name"] for call in seen.summary["calls"]] == ["cudaLaunchKernel"]
    assert "gemm" in page(path)


def test_B23_python_functions_change_no_finding(kineto: Any, check: Any) -> None:
    for i in range(12_500):
        at = 1_000 + 40 * i
        kineto.event("cpu_op", f"aten::op{i % 7}", at, 30)
        kineto.event("cpu_op", "aten::inner", at + 1, 20)
        kineto.launch(at + 2, 5, i + 1)
        kineto.kernel(at + 12, 25, i + 1)
    without = check(kineto.write("without.json"))
    stacks = [
        {"ph": "X", "cat": "python_function", "name": f"model.py({i % 50}): forward", "pid": 100, "tid": 100,
         "ts": 1_000 + 2.5 * i, "dur": 2, "args": {"Python id": i}}
        for i in range(200_000)
    ]  # fmt: skip
    kineto.events += stacks
    path = kineto.write("with.json")

    seen = check(path)

    assert seen.summary["counts"]["spans"] == 225_000
    assert seen.document["findings"] == without.document["findings"]
    for key in ("devices", "copies", "calls", "launches", "idle_by_cause", "window_ns", "steps"):
        assert seen.summary[key] == without.summary[key], key


def test_B28_kernels_before_their_launch(kineto: Any, check: Any) -> None:
    kineto.launch(1000, 5, 1)
    kineto.kernel(990, 20, 1)
    for i in range(2, 11):
        kineto.launch(1000 + 100 * i, 5, i)
        kineto.kernel(1000 + 100 * i + 13, 20, i)
    path = kineto.write()

    seen = check(path)

    wait = seen.summary["launches"]["queue_wait_ns"]
    assert wait == {"p50": 8_000, "p90": 8_000, "p99": 8_000, "n": 9}
    (warning,) = seen.document["trace"]["warnings"]
    assert warning.startswith("1 GPU row begin")
    (note,) = seen.document["trace"]["notes"]
    assert note.startswith("clock skew: a GPU row begins up to 10.0 µs before its launch call")
    assert "-10" not in json.dumps(seen.document["findings"])


def test_B30_the_default_encoding_does_not_matter(kineto: Any, tmp_path: Path) -> None:
    kineto.launch(1000, 5, 1)
    kineto.kernel(1010, 100, 1, name="核函数")
    path = kineto.write()
    outputs = []
    for place, setting in enumerate(
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONUTF8": "1"})
    ):
        page = tmp_path / f"{place}.html"
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))} | setting
        for command in (
            ["check", path, "--json"],
            ["stats", path, "cuda_gpu_kern_sum", "--format", "json"],
            ["report", path, "-o", page],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "profkit", *map(str, command)], capture_output=True, env=environment, check=False
            )
            assert (done.returncode, done.stderr) == (0, b"")
            outputs.append(
                (place, json.dumps(json.loads(done.stdout)) if command[0] != "report" else page.read_bytes())
            )
    ours, theirs = ([content for which, content in outputs if which == place] for place in (0, 1))
    assert ours[:2] == theirs[:2]
    assert "核函数" in json.loads(ours[1])["reports"][0]["rows"][0].values()
    for content in (ours[2], theirs[2]):
        assert "核函数".encode() in content
        assert b'charset="utf-8"' in content.lower()
