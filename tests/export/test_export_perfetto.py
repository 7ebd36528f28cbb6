"""Trace event JSON: exact times, named lanes, arrows, data that stays data; and profkit reads the same numbers back."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.summary import summarize
from profkit.export import exporters
from profkit.export._json_rows import microseconds
from profkit.ingest import open_trace
from profkit.model import Trace, Window
from profkit.schema import FLAG_OPEN_END
from profkit.testing import build_trace, call, copy, graph, kernel, launch, os_call, span, sync

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
FILES = sorted(path for kind in ("nsys", "kineto") for path in (Path(CORPUS) / kind).glob("*")) if CORPUS else []
HOSTILE = 'a "quoted", <b>\n</script>\ttab \\ \x1b[31m\u2028 核函数 '
Event = dict[str, Any]


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., list[Event]]:
    """Events of a trace, written, read as strict JSON; times are kept as they are written."""

    def write(trace: Trace, window: Window | None = None) -> list[Event]:
        exporters()["perfetto"].write(Analysis(trace, window), tmp_path / "out.json")
        text = (tmp_path / "out.json").read_text("utf-8")
        events: list[Event] = json.loads(text, parse_constant=refuse, parse_float=str)["traceEvents"]
        return events

    return write


def of(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event.get("cat") == category]


def test_times_are_exact_to_the_nanosecond(export: Callable[..., list[Event]]) -> None:
    big = 1_700_000_000_123_456_789
    events = of(export(build_trace(kernel(big, 1), kernel(7, 1_001), kernel(5_000_000, 0))), "kernel")
    assert [(e["ts"], e["dur"]) for e in events] == [
        ("0.007", "1.001"),
        ("5000.000", "0.000"),
        ("1700000000123456.789", "0.001"),
    ]


def test_a_time_before_the_origin_keeps_its_digits() -> None:
    times = np.asarray([-1_500, -7, 0, 999, 1_000, -(2**62)])
    assert microseconds(times).to_pylist() == [
        "-1.500", "-0.007", "0.000", "0.999", "1.000", "-4611686018427387.904",
    ]  # fmt: skip


def test_gpu_and_cpu_have_named_processes_and_lanes_of_their_own(export: Callable[..., list[Event]]) -> None:
    events = export(
        build_trace(
            launch("a", at=0, start=10, dur=5, call_dur=3), launch("b", at=20, start=30, dur=5, stream=9, device=1)
        )
    )
    named = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["name"] in ("process_name", "thread_name")
    }
    assert named == {
        ("process_name", 5_000_000, 0): "GPU 0",
        ("process_name", 5_000_001, 0): "GPU 1",
        ("process_name", 100, 0): "process 100",
        ("thread_name", 100, 100): "thread 100",
        ("thread_name", 5_000_000, 7): "stream 7",
        ("thread_name", 5_000_001, 9): "stream 9",
    }
    assert {e["pid"] for e in of(events, "kernel")} == {5_000_000, 5_000_001}
    assert {e["pid"] for e in of(events, "cuda_runtime")} == {100}


def test_processes_of_one_pid_stay_apart(export: Callable[..., list[Event]]) -> None:
    trace = build_trace(call(0, 5, pid=100), call(0, 5, pid=101))
    processes = trace.tables["processes"]
    twins = processes.set_column(1, "pid", [[100, 100]]).cast(processes.schema)
    events = export(Trace(trace.meta, {**trace.tables, "processes": twins}, trace.missing, trace.windows))
    assert sorted(e["pid"] for e in of(events, "cuda_runtime")) == [100, 6_000_000]


def test_an_arrow_from_each_call_to_each_kernel_it_launched(export: Callable[..., list[Event]]) -> None:
    events = export(
        build_trace(
            call(0, 10, "cudaGraphLaunch", correlation=5),
            kernel(20, 5, correlation=5, graph_node=1),
            kernel(30, 5, correlation=5, graph_node=2),
            kernel(40, 5, correlation=77),
        )
    )
    arrows = defaultdict(dict)
    for event in of(events, "ac2g"):
        arrows[event["id"]][event["ph"]] = (event["pid"], event["tid"], event["ts"])
    gpu = (5_000_000, 7)
    assert list(arrows.values()) == [
        {"s": (100, 100, "0.000"), "f": (*gpu, "0.020")},
        {"s": (100, 100, "0.000"), "f": (*gpu, "0.030")},
    ]
    assert all(event["bp"] == "e" for event in of(events, "ac2g") if event["ph"] == "f")


def test_what_is_not_known_is_not_written(export: Callable[..., list[Event]]) -> None:
    events = export(build_trace(kernel(0, 5), call(0, 5)))
    assert of(events, "kernel")[0]["args"] == {"row": 0, "device": 0, "context": 1, "stream": 7}
    assert of(events, "cuda_runtime")[0]["args"] == {"row": 0, "return code": 0}


def test_kernels_that_overlap_on_a_stream_get_lanes_that_nest(export: Callable[..., list[Event]]) -> None:
    events = export(build_trace(kernel(0, 12), kernel(10, 12), kernel(20, 12), kernel(100, 5, stream=9)))
    assert [e["tid"] for e in of(events, "kernel")][:3] == [7, of(events, "kernel")[1]["tid"], 7]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == ["stream 7", "stream 7 (2)", "stream 9"]
    assert [e["args"]["stream"] for e in of(events, "kernel")] == [7, 7, 7, 9]


def test_ranges_without_an_end_begin_and_do_not_end(export: Callable[..., list[Event]]) -> None:
    events = of(export(build_trace(span("open", 5, -1), span("whole", 10, 20))), "user_annotation")
    assert [(e["name"], e["ph"], e.get("dur")) for e in events] == [("open", "B", None), ("whole", "X", "0.020")]
    assert events[0]["args"]["flags"] == FLAG_OPEN_END


def test_stages_and_payloads_are_said_in_the_name(export: Callable[..., list[Event]]) -> None:
    events = of(
        export(
            build_trace(
                span("decode", 0, 10, payload=8),
                span("profkit::prefill#33", 20, 10),
                span("step 12", 40, 10, domain="profkit", category="sample", payload=2),
                span("mine", 60, 10, payload=4),
                span("decode", 80, 0, kind="mark"),
            )
        ),
        "user_annotation",
    )
    assert [e["name"] for e in events] == ["decode#8", "profkit::prefill#33", "profkit::sample#2", "mine", "decode"]
    assert events[2]["args"] == {"row": 2, "range": "step 12", "domain": "profkit", "category": "sample", "payload": 2}
    assert events[3]["args"] == {"row": 3, "payload": 4}
    assert [e["ph"] for e in events] == ["X", "X", "X", "X", "i"]


def test_every_kind_of_event_is_written(export: Callable[..., list[Event]]) -> None:
    events = export(
        build_trace(
            launch("a", at=0, start=10, dur=5),
            copy(20, 5, "h2d", 64, "pageable", "device"),
            copy(30, 5, "memset", 64, dst="device"),
            graph(40, 5),
            call(50, 5, "cuLaunchKernel", api="driver"),
            sync(60, 5, "context"),
            os_call(70, 5),
            span("free", 0, 50, kind="start_end"),
            span("aten::mm", 0, 5, kind="op"),
        )
    )
    found = {e["cat"]: e["name"] for e in events if e["ph"] == "X"}
    assert found == {
        "kernel": "a",
        "gpu_memcpy": "Memcpy HtoD (Pageable -> Device)",
        "gpu_memset": "Memset (Device)",
        "cuda_graph": "CUDA graph",
        "cuda_runtime": "cudaLaunchKernel",
        "cuda_driver": "cuLaunchKernel",
        "cuda_sync": "Context Sync",
        "os_call": "poll",
        "start_end": "free",
        "cpu_op": "aten::mm",
    }


def test_hostile_names_are_data(export: Callable[..., list[Event]], tmp_path: Path) -> None:
    trace = build_trace(kernel(0, 5, HOSTILE), span(HOSTILE, 0, 5, domain=HOSTILE), call(0, 5, HOSTILE))
    events = export(trace)
    assert {e["name"] for e in events if e["ph"] == "X"} == {HOSTILE}
    assert of(events, "user_annotation")[0]["args"]["domain"] == HOSTILE
    assert (tmp_path / "out.json").read_bytes().isascii()
    assert open_trace(tmp_path / "out.json").name(0) == HOSTILE


def test_a_window_keeps_what_lies_partly_in_it_whole(export: Callable[..., list[Event]]) -> None:
    trace = build_trace(
        launch("a", at=0, start=10, dur=20), launch("b", at=40, start=60, dur=20), launch("c", at=90, start=100, dur=20)
    )
    events = export(trace, Window(25, 70))
    assert [(e["name"], e["ts"], e["dur"], e["args"]["row"]) for e in of(events, "kernel")] == [
        ("a", "0.010", "0.020", 0),
        ("b", "0.060", "0.020", 1),
    ]
    # The call of a began and ended before the window: no arrow comes from what is not there.
    assert sorted(e["ts"] for e in of(events, "ac2g")) == ["0.000", "0.010", "0.040", "0.060"]


def test_gzip_by_the_name_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    trace = build_trace(kernel(0, 5))
    write = exporters()["perfetto"].write
    write(Analysis(trace), tmp_path / "a.json.gz")
    write(Analysis(trace), tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    with gzip.open(tmp_path / "a.json.gz") as file:
        assert len(of(json.load(file)["traceEvents"], "kernel")) == 1


def test_an_empty_trace_is_an_empty_list_of_events(export: Callable[..., list[Event]]) -> None:
    assert [e["ph"] for e in export(build_trace())] == ["M"]


def test_a_simulated_trace_says_so_when_it_is_read_again(tmp_path: Path) -> None:
    exporters()["perfetto"].write(Analysis(build_trace(kernel(0, 5), simulated=True)), tmp_path / "s.json")
    assert open_trace(tmp_path / "s.json").meta.simulated


def numbers(trace: Trace) -> dict[str, Any]:
    """What a copy in Kineto's words must keep: everything but what that format has no event for."""
    analysis = Analysis(trace)
    summary = summarize(analysis)
    keys = ("busy_ns", "kernel_ns", "copy_ns", "idle_ns")
    # GPU work of a range that had to go on a lane of its own, and the process of rows without a call, have no place in
    # that format: of the steps their number and their times on the host are the same.
    of_steps = ("count", "host_p50_ns", "host_p90_ns", "host_p99_ns", "host_sum_ns", "batch_p50")
    by_kernels = analysis.steps.source == "kernel_sequences"
    steps = {k: {key: row[key] for key in of_steps} for k, row in summary["steps"].items() if not by_kernels}
    return {
        "window": summary["window_ns"],
        "devices": sorted(tuple(device[key] for key in keys) for device in summary["devices"]),
        "idle": None if summary["idle_by_cause"] is None else sum(summary["idle_by_cause"].values()),
        "steps": steps,
        **{key: summary[key] for key in ("stages", "ttft_ns", "tpot_ns", "launches", "copies")},
    }


GRAPHS_AS_ONE = {"cs336-a100-2.7B-cudagraph.sqlite", "flameox-smoke-2025.5.2.sqlite"}
"""The PyTorch profiler has no event for a graph recorded as one piece: profkit's reader says that it left them out."""
NOTHING_TIMED = {"jacc-4xa100-empty.sqlite", "jacc-a100-async-nocuda.sqlite"}


@pytest.mark.skipif(not FILES, reason="PROFKIT_CORPUS names no folder of real exports")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_real_export_nests_and_reads_back_with_the_same_numbers(path: Path, tmp_path: Path) -> None:
    trace = open_trace(path)
    target = tmp_path / "out.json"
    exporters()["perfetto"].write(Analysis(trace), target)
    text = target.read_text("utf-8")
    assert not re.search(r'"(?:ts|dur)":-?\d+(?!\d*\.\d{3}[,}])', text)
    events = json.loads(text, parse_constant=refuse)["traceEvents"]
    assert_lanes_are_named_and_nest(events)
    if path.name in NOTHING_TIMED:
        return
    again = open_trace(target)
    if path.name in GRAPHS_AS_ONE:
        assert any("cuda_graph" in warning for warning in again.meta.warnings)
        return
    assert numbers(again) == numbers(trace)


def assert_lanes_are_named_and_nest(events: list[Event]) -> None:
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    lanes = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            lanes[event["pid"], event["tid"]].append((start, -round(event["dur"] * 1000)))
    assert set(lanes) <= named
    for slices in lanes.values():
        around: list[int] = []
        for start, minus in sorted(slices):
            while around and around[-1] <= start:
                around.pop()
            assert not around or start - minus <= around[-1]
            around.append(start - minus)


@pytest.mark.parametrize("widest", [1 << 31, (1 << 62) - 1])
def test_wide_correlation_ids_of_several_processes(export: Callable[..., list[Event]], widest: int) -> None:
    rows = [
        row
        for pid in (100, 200)
        for row in (call(0, 10, correlation=widest, pid=pid), kernel(20, 5, correlation=widest, pid=pid, device=pid))
    ]
    events = export(build_trace(rows))
    ids = [event["args"]["correlation"] for event in events if event.get("cat") in ("cuda_runtime", "kernel")]
    assert len(ids) == 4
    assert len(set(map(str, ids))) == 2
