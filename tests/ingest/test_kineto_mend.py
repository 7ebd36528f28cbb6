"""The tolerant path of the PyTorch reader: one bad event costs itself, sound ones are loaded, and it is said where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.ingest.kineto import events, source
from profkit.ingest.kineto.mend import loose_json, number
from profkit.model import Trace


def _event(i: int, **more: object) -> dict:
    args = {"device": 0, "stream": 7, "list": [{"name": "x"}, {"ph": "nested"}]}
    return {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": i, "dur": 1, "args": args, **more}


def _write(
    path: Path, *items: str | dict, head: str = '{"distributedInfo": {"rank": 0}, "traceEvents": [', tail: str = "]}"
) -> Path:
    text = ",\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)
    path.write_text(head + "\n" + text + "\n" + tail)
    return path


def _kernels(trace: Trace) -> list[str]:
    return [trace.name(row) for row in trace.array("kernels", "name").tolist()]


BAD = '{"ph": "X", "name": "a "quoted" name", "ts": 3, "dur": 1}'


@pytest.mark.parametrize("chunk", [64, 200, 1000, 1 << 20])
@pytest.mark.parametrize("at", [0, 1, 99, 199, 200])
def test_one_bad_event_costs_itself_wherever_chunks_are_cut(
    chunk: int, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHUNK_BYTES", chunk)
    items: list[str | dict] = [_event(i) for i in range(200)]
    items.insert(at, BAD)
    trace = open_trace(_write(tmp_path / "t.json", *items, tail='], "deviceProperties": [{"id": 0, "name": "H200"}]}'))
    assert _kernels(trace) == [f"k{i}" for i in range(200)]
    assert trace.text("devices", "name") == ["H200"]
    (warning,) = trace.meta.warnings
    assert warning.startswith(f"1 event left out: not JSON (quotes inside a text?), first in line {at + 2},")
    assert trace.meta.partial


def test_a_bad_event_with_nested_lists_is_mended_over_borders(tmp_path: Path) -> None:
    items = [_event(i) for i in range(3)]
    text = json.dumps(items[1]).replace('"dur": 1', '"dur": 1, "bandwidth": inf')
    trace = open_trace(_write(tmp_path / "t.json", items[0], text, items[2]))
    assert _kernels(trace) == ["k0", "k1", "k2"]
    assert not trace.meta.partial


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.json", _event(0), _event(1, name="caf\u00e9"))
    path.write_bytes(path.read_bytes().replace(b"caf\\u00e9", b"caf\xe9"))
    trace = open_trace(path)
    assert _kernels(trace) == ["k0", "caf\ufffd"]
    assert "1 event mended: text that is not UTF-8, first in line 3" in " ".join(trace.meta.warnings)


@pytest.mark.parametrize("args", [[], "text", None, 5, [{"device": 0}]])
def test_args_that_are_no_object(args: object, tmp_path: Path) -> None:
    trace = open_trace(_write(tmp_path / "t.json", _event(0), _event(1, args=args)))
    assert _kernels(trace) == ["k0", "k1"]
    assert trace.meta.warnings == ()


@pytest.mark.parametrize(
    "odd",
    [{"name": 5}, {"name": None}, {"cat": None}, {"pid": [1]}, {"pid": 1.5}, {"args": {"device": "0", "grid": [1]}}],
)
def test_properties_of_an_odd_type(odd: dict, tmp_path: Path) -> None:
    trace = open_trace(_write(tmp_path / "t.json", _event(0), _event(1, **odd)))
    assert trace.rows("kernels") + trace.rows("spans") == 2
    assert not trace.meta.partial


def test_numbers_written_as_texts_as_rocm_does(tmp_path: Path) -> None:
    args = {"device": "2", "stream": "3", "correlation": "17", "bytes": "4096"}
    trace = open_trace(_write(tmp_path / "t.json", _event(0, cat="gpu_memcpy", name="CopyDeviceToDevice", args=args)))
    assert trace.array("copies", "bytes").tolist() == [4096]
    assert trace.array("copies", "correlation").tolist() == [17]
    assert (trace.array("tracks", "ordinal").tolist(), trace.array("tracks", "stream").tolist()) == ([2], [3])


@pytest.mark.parametrize(
    ("value", "is_"),
    [(7, 7), ("7", 7), ("stream 7", 7), (True, -1), (1 << 63, -1), ("9" * 30, -1), ("", -1), (None, -1), ([1], -1)],
)
def test_numbers_of_any_writing(value: object, is_: int) -> None:
    assert number(value) == is_


def test_what_is_mended_is_told() -> None:
    told: list[str] = []
    assert loose_json('{"a": "x\ty", "b": "C:\\dir", "c": nan, "d": 1.50}', told.append) == {
        "a": "x\ty", "b": "C:\\dir", "c": None, "d": "1.50",
    }  # fmt: skip
    assert len(told) == 3
    with pytest.raises(ValueError, match="Expecting"):
        loose_json('{"a": "b"c"}', told.append)


def test_nesting_without_end(tmp_path: Path) -> None:
    deep = '{"ph": "X", "ts": 1, "dur": 1, "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    trace = open_trace(_write(tmp_path / "t.json", _event(0), deep, _event(2)))
    assert _kernels(trace) == ["k0", "k2"]
    assert trace.meta.partial


def test_properties_beside_the_events_are_mended(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.json", _event(0), tail='], "traceName": "C:\\proj\\run.json", "deviceProperties": []}')
    trace = open_trace(path)
    assert "the properties beside the events were not JSON: mended" in trace.meta.warnings
    path = _write(tmp_path / "t.json", _event(0), tail='], "traceName": "a "b" c"}')
    assert "not JSON and not read" in " ".join(open_trace(path).meta.warnings)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_cut_file_says_how_much_is_whole_and_loads_it_on_demand(
    zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [_event(i) for i in range(1000)]
    whole = _write(tmp_path / "whole.json", *items).read_bytes()
    path = tmp_path / "t.json"
    path.write_bytes(whole[: len(whole) // 2])
    if zipped:
        packed = gzip.compress(whole[: len(whole) // 2], 0)
        path.write_bytes(packed[: len(packed) - 4])
    said = "compressed file ends early" if zipped else "truncated or damaged: the list of events breaks off"
    count = whole[: len(whole) // 2].count(b"},\n{")
    with pytest.raises(InputError, match=rf"{said}.*; {count} complete events before the cut.*PROFKIT_PARTIAL=1 loads"):
        open_trace(path)
    monkeypatch.setenv("PROFKIT_PARTIAL", "1")
    trace = open_trace(path)
    assert _kernels(trace) == [f"k{i}" for i in range(count)]
    assert trace.meta.partial
    assert trace.meta.warnings[0].startswith("partial: ")


def test_a_file_cut_within_its_first_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFKIT_PARTIAL", "1")
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "ts": 1, "du')
    with pytest.raises(InputError, match="0 complete events before the cut, near byte 41"):
        open_trace(path)


def test_gzip_of_several_members_and_garbage_behind(tmp_path: Path) -> None:
    content = _write(tmp_path / "t.json", *(_event(i) for i in range(10))).read_bytes()
    packed = gzip.compress(content[:100]) + gzip.compress(content[100:])
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed)
    assert open_trace(path).rows("kernels") == 10
    path.write_bytes(packed + b"garbage")
    trace = open_trace(path)
    assert trace.rows("kernels") == 10
    assert "something that is no gzip stands behind the compressed data: ignored" in trace.meta.warnings
    wrong_sum = bytearray(packed)
    wrong_sum[-8] ^= 1
    path.write_bytes(wrong_sum)
    with pytest.raises(InputError, match="damaged: CRC check failed"):
        open_trace(path)


def test_a_gzip_bomb_is_refused_and_a_dense_trace_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_RATIO_FROM_BYTES", 1 << 20)
    content = _write(tmp_path / "t.json", _event(0), tail=" " * (4 << 20) + "]}").read_bytes()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match="a trace does not pack so well; PROFKIT_UNPACK_LIMIT_GIB=N allows N GiB"):
        open_trace(path)
    monkeypatch.setenv("PROFKIT_UNPACK_LIMIT_GIB", "1")
    assert open_trace(path).rows("kernels") == 1
    monkeypatch.setenv("PROFKIT_UNPACK_LIMIT_GIB", "0.001")
    with pytest.raises(InputError, match="unpack to more than"):
        open_trace(path)
    monkeypatch.setenv("PROFKIT_UNPACK_LIMIT_GIB", "much")
    with pytest.raises(InputError, match="a number of GiB above 0 is needed"):
        open_trace(path)


def test_other_encodings_and_forms(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.json", _event(0))
    content = path.read_text()
    path.write_text(content, encoding="utf-8-sig")
    assert open_trace(path).rows("kernels") == 1
    path.write_text(content, encoding="utf-16")
    with pytest.raises(InputError, match="UTF-16"):
        open_trace(path)
    path.write_text("".join(json.dumps(_event(i)) + "\n" for i in range(3)))
    with pytest.raises(InputError, match="NDJSON"):
        open_trace(path)
    path.write_bytes(gzip.compress(b"  \n"))
    with pytest.raises(InputError, match="empty or holds blanks only"):
        open_trace(path)


def test_many_bad_events_take_a_pass_not_a_square(tmp_path: Path) -> None:
    items: list[str | dict] = [BAD if i % 2 else _event(i) for i in range(4_000)]
    trace = open_trace(_write(tmp_path / "t.json", *items))
    assert trace.rows("kernels") == 2_000
    assert trace.meta.warnings[0].startswith("2,000 events left out")
