"""Cases B and F05: traces of the PyTorch profiler that are no sound JSON, or hold events that are no sound events."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from csv import DictReader
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest import open_trace
from profkit.model import Trace


def kernel(name: str, ts: int, correlation: int = 1) -> str:
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": 100,
             "args": {"device": 0, "stream": 7, "correlation": correlation}}  # fmt: skip
    return json.dumps(event, ensure_ascii=False)


def raw(path: Path, *events: str | bytes, tail: str = "") -> Path:
    """A trace of events that go in as they are, one a line: the first is in line 2."""
    lines = [event.encode() if isinstance(event, str) else event for event in events]
    head = b'{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[\n'
    path.write_bytes(head + b",\n".join(lines) + b"\n]" + tail.encode() + b"}")
    return path


def function(name: str) -> str:
    """A python_function whose name goes in as it is."""
    return f'{{"ph":"X","cat":"python_function","name":"{name}","pid":100,"tid":100,"ts":1005,"dur":7}}'


def names(trace: Trace, table: str) -> list[str]:
    return [trace.name(row) for row in trace.array(table, "name").tolist()]


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "NaN", "Infinity", "-Infinity"])
def test_B01_words_for_numbers_that_are_not_finite(tmp_path: Path, check: Any, kineto: Any, word: str) -> None:
    kineto.base()
    kineto.on_device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1200, 0, 2, bytes=200, bandwidth="WORD")
    path = kineto.write()
    path.write_text(path.read_text().replace('"bandwidth": "WORD"', f'"memory bandwidth (GB/s)": {word}'))

    seen = check(path)

    assert seen.copies() == {("h2d", "pageable", "device"): (1, 200, 0)}
    assert "n/a" in seen.line("h2d pageable -> device")
    (warning,) = open_trace(path).meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert "1 value ignored: number that is not finite" in warning
    assert seen.summary["counts"]["kernels"] == 1


def test_B01_a_text_that_holds_such_a_word_stays(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.json", function("loss: nan, inf").replace('"dur":7', '"dur":7,"x":inf'), kernel("k", 1000))
    assert names(open_trace(path), "spans") == ["loss: nan, inf"]


def test_B03_lone_backslashes_are_meant_as_such(tmp_path: Path, check: Any) -> None:
    path = raw(
        tmp_path / "t.json", kernel("a", 1000), function(r"C:\proj\tools.py(1): run"), kernel("b", 1200),
        function(r"D:\users\new"),
    )  # fmt: skip

    seen = check(path)

    assert seen.summary["counts"]["kernels"] == 2
    (warning,) = open_trace(path).meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert warning.startswith("2 events mended: text with backslashes that JSON does not allow, first in line 3,")
    assert names(open_trace(path), "spans") == [r"C:\proj\tools.py(1): run", r"D:\users\new"]
    assert not open_trace(path).meta.partial


def test_B04_unescaped_quotes_cost_their_event_only(tmp_path: Path, check: Any) -> None:
    bad = function('{"device": "cpu"}(12): run')
    path = raw(tmp_path / "t.json", kernel("a", 1000), bad, kernel("b", 1200))

    seen = check(path)

    assert seen.summary["counts"]["kernels"] == 2
    assert seen.summary["counts"]["spans"] == 0
    (warning,) = open_trace(path).meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert warning.startswith("1 event left out: not JSON (quotes inside a text?), first in line 3, at byte ")
    assert path.read_bytes()[int(warning.rsplit(" ", 1)[1]) :].startswith(bad.encode())
    assert open_trace(path).meta.partial


def test_B04_first_and_last_event_too(tmp_path: Path) -> None:
    bad = function('{"device": "cpu"}(12): run')
    path = raw(tmp_path / "t.json", bad, kernel("a", 1000), kernel("b", 1200), bad, tail=',"traceName":"t"')
    trace = open_trace(path)
    assert names(trace, "kernels") == ["a", "b"]
    assert "2 events left out" in " ".join(trace.meta.warnings)


def test_B06_raw_line_breaks_and_tabs_in_a_name(tmp_path: Path, check: Any, run: Any) -> None:
    path = raw(tmp_path / "t.json", kernel("gemm\\n\\tbody", 1000).replace("\\\\n", "\n").replace("\\\\t", "\t"))
    assert b"gemm\n\tbody" in path.read_bytes()

    seen = check(path)

    (warning,) = open_trace(path).meta.warnings
    assert warning in seen.document["trace"]["warnings"]
    assert "1 event mended: text with raw line breaks or tabs" in warning
    assert names(open_trace(path), "kernels") == ["gemm\n\tbody"]
    table = list(DictReader(io.StringIO(run("stats", path, "cuda_gpu_trace", "--format", "csv").out)))
    assert len(table) == 1
    lines = run("stats", path, "cuda_gpu_kern_sum").out.splitlines()
    assert len([line for line in lines if "body" in line]) == 1


def truncated_gzip(tmp_path: Path, whole: Path) -> Path:
    data = (whole / "trace.json.gz").read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data[: int(len(data) * 0.7)])
    return path


def test_B09_a_truncated_gzip_is_refused(tmp_path: Path, whole: Path, run: Any) -> None:
    seen = run("check", truncated_gzip(tmp_path, whole))
    assert (seen.code, seen.out) == (1, "")
    (line,) = seen.err.splitlines()
    assert "the compressed file ends early" in line
    assert "complete events before the cut" in line
    assert "PROFKIT_PARTIAL=1" in line


def test_B09_or_loaded_up_to_the_cut(tmp_path: Path, whole: Path, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFKIT_PARTIAL", "1")
    path = truncated_gzip(tmp_path, whole)

    seen = check(path)

    trace = open_trace(path)
    (warning,) = [w for w in trace.meta.warnings if w.startswith("partial: the compressed file ends early")]
    assert warning in seen.document["trace"]["warnings"]
    assert trace.meta.partial
    events = trace.rows("kernels") + trace.rows("calls")
    assert f"; {events:,} complete events before the cut" in warning
    assert 5_000 < events < 9_000
    assert trace.array("kernels", "dur_ns").tolist() == [8_000] * trace.rows("kernels")


def test_B10_the_content_decides_not_the_suffix(tmp_path: Path, kineto: Any, check: Any, run: Any) -> None:
    kineto.base()
    content = kineto.write().read_bytes()
    plain, zipped, archive, empty = (tmp_path / name for name in ("a.json.gz", "b.json", "c.json.gz", "d.json.gz"))
    plain.write_bytes(content)
    zipped.write_bytes(gzip.compress(content))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.json", content)
    empty.touch()

    assert check(plain).summary == check(zipped).summary
    assert check(plain).summary["counts"]["kernels"] == 1
    for path, words in ((archive, "zip archive"), (empty, "the file is empty")):
        seen = run("check", path)
        assert (seen.code, seen.out) == (1, "")
        assert words in seen.err


def test_B16_unfinished_events_have_no_length(kineto: Any, check: Any) -> None:
    kineto.event("cpu_op", "aten::mm", 100, -1)
    kineto.event("user_annotation", "step", 200, -250)
    kineto.kernel(300, 50, 1)
    path = kineto.write()

    seen = check(path)

    assert seen.summary["counts"]["unclosed_spans"] == 2
    assert {r["name"]: (r["count"], r["unclosed"], r["total_ns"]) for r in seen.summary["ranges"]} == {
        "step": (0, 1, 0),
    }  # fmt: skip
    assert seen.device["kernel_ns"] == 50_000
    trace = open_trace(path)
    assert (trace.array("spans", "start_ns") + trace.array("spans", "dur_ns")).tolist() == [250_000, 250_000]
    assert "2 unclosed ranges" in seen.line("warning: 2 unclosed")


def test_B19_integers_over_2_to_63(tmp_path: Path, check: Any) -> None:
    comms = {"Comms Id": 17093776592125785438, "Collective name": "allreduce", "dtype": "BFloat16",
             "In msg nelems": 1000, "Out msg nelems": 1000}  # fmt: skip
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "record_param_comms",
        "pid": 1,
        "tid": 1,
        "ts": 10,
        "dur": 5,
        "args": comms,
    }
    path = raw(tmp_path / "t.json", json.dumps(event), kernel("gemm", 1000, correlation=17093776592125785438))

    check(path)

    trace = open_trace(path)
    assert trace.text("collectives", "communicator") == ["17093776592125785438"]
    assert trace.array("collectives", "bytes").tolist() == [2_000]
    assert trace.text("collectives", "operation") == ["all_reduce"]
    assert trace.array("kernels", "correlation").tolist() == [-1]


def half(phase: str, ts: float, name: str = "", **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": 1, "tid": 1, "ts": ts, **more}


def test_B29_begins_and_ends_that_do_not_pair(tmp_path: Path, check: Any) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([half("E", 5), half("B", 10, "open"), half("B", 20, "ok"), half("E", 30)]))

    seen = check(path)

    ranges = {r["name"]: (r["count"], r["unclosed"], r["total_ns"]) for r in seen.summary["ranges"]}
    assert ranges == {"ok": (1, 0, 10_000), "open": (0, 1, 0)}
    assert "2 begin or end events without the other half: 1 opened only" in seen.line("begin or end")
    trace = open_trace(path)
    assert dict(zip(names(trace, "spans"), trace.array("spans", "dur_ns").tolist(), strict=True)) == {
        "open": 20_000, "ok": 10_000,
    }  # fmt: skip


def test_F05_async_events_with_time_0(tmp_path: Path, check: Any) -> None:
    def comm(phase: str, number: int, ts: float) -> dict[str, Any]:
        return half(phase, ts, "AllReduce", cat="COLL", id=number)

    path = tmp_path / "t.json"
    events = [comm("b", 0, 0.0), comm("e", 0, 339967.7), comm("b", 1, 340000.0), comm("e", 1, 0.0)]
    path.write_text(json.dumps([*events, comm("b", 2, 340100), comm("e", 2, 340150)]))

    seen = check(path)

    trace = open_trace(path)
    assert trace.array("spans", "dur_ns").tolist() == [50_000]
    assert trace.meta.origin_ns == 340_100_000
    assert seen.document["trace"]["span_ns"] == 50_000
    assert "2 ranges left out: the begin or the end has no time, or time 0" in seen.line("2 ranges left out")
