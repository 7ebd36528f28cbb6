"""The PyTorch profiler's JSON: exact times, chunks that never lose an event, odd but valid files, broken files."""

import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.ingest.kineto import events
from profkit.ingest.kineto.tables import copy_kinds
from profkit.ingest.kineto.times import ABSENT, to_ns


def _ns(*words: str) -> list[int]:
    return to_ns([msgspec.Raw(word.encode()) for word in words]).tolist()


def test_times_come_from_their_digits() -> None:
    assert _ns("1690000000000000.100", '"1690000000000000.200"', "0.050", "7", "-1.5") == [
        1690000000000000100,
        1690000000000000200,
        50,
        7000,
        -1500,
    ]


def test_more_digits_than_ns_round_half_up_and_exponents_are_numbers() -> None:
    assert _ns("1.0005", "1.0004", "1e3", "2.5E-3") == [1001, 1000, 1_000_000, 3]


def test_what_is_no_time_is_absent_not_zero() -> None:
    assert _ns("", "null", '"abc"', "1e400") == [ABSENT] * 4
    assert _ns("", "5") == [ABSENT, 5000]


def _event(i: int, **more: object) -> dict:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"k{i}",
        "pid": 0,
        "tid": 7,
        "ts": i,
        "dur": 0.5,
        "args": {"device": 0, "stream": 7, **more},
    }


def _trace(items: list, **more: object) -> str:
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": items, **more})


HOSTILE = '}, {"ph": "X", "name": "no event"}, {'


@pytest.mark.parametrize("chunk", [64, 100, 257, 1 << 20])
def test_chunks_lose_nothing_wherever_they_are_cut(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHUNK_BYTES", chunk)
    items = [_event(i, list=[{"name": "x"}, {"ph": "nested"}]) for i in range(200)]
    items[50]["name"] = HOSTILE
    items[199]["name"] = HOSTILE + "]}"
    path = tmp_path / "t.json"
    path.write_text(_trace(items, traceName=HOSTILE + ']}"'))
    trace = open_trace(path)
    assert trace.rows("kernels") == 200
    assert trace.names.count(HOSTILE) == 1
    assert trace.array("kernels", "start_ns").tolist() == [i * 1000 for i in range(200)]


def test_properties_behind_the_events_are_found(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"traceEvents": [_event(1)], "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]})
    )
    trace = open_trace(path)
    assert trace.text("devices", "name") == ["NVIDIA H200"]
    assert trace.array("devices", "sm_count").tolist() == [132]


@pytest.mark.parametrize("pretty", [None, 2])
@pytest.mark.parametrize("zipped", [False, True])
def test_pretty_and_zipped_files_by_content(pretty: int | None, zipped: bool, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [_event(i) for i in range(5)]}, indent=pretty).encode()
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.compress(text) if zipped else text)
    assert open_trace(path).rows("kernels") == 5


def test_times_are_relative_to_the_first_event_and_utc_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(_trace([_event(100), _event(200)], baseTimeNanoseconds=1_790_000_000_000_000_000))
    trace = open_trace(path)
    assert trace.array("kernels", "start_ns").tolist() == [0, 100_000]
    assert trace.meta.origin_ns == 100_000
    assert trace.meta.utc_ns == 1_790_000_000_000_000_000 + 100_000


def test_old_traces_count_whole_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(_trace([{**_event(1), "dur": 5}]))
    assert open_trace(path).meta.resolution_ns == 1000
    path.write_text(_trace([_event(1), {**_event(2), "ts": 2.5}]))
    assert open_trace(path).meta.resolution_ns == 1


def test_stage_names_and_payloads_of_annotations(tmp_path: Path) -> None:
    spans = [
        {**_event(i), "cat": "user_annotation", "name": name, "pid": 1}
        for i, name in enumerate(["profkit::decode#8", "request#3", "sample", "decoder"])
    ]
    path = tmp_path / "t.json"
    path.write_text(_trace(spans))
    frame = open_trace(path).frame("spans")
    assert frame["stage"].astype(object).where(frame["stage"].notna(), None).tolist() == [
        "decode",
        "request",
        "sample",
        None,
    ]
    assert frame["payload_int"].fillna(-1).tolist() == [8, 3, -1, -1]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("h2d", "pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", ("d2h", "device", "pinned")),
        ("Memcpy DtoD (Device -> Device)", ("d2d", "device", "device")),
        ("Memcpy PtoP (Device -> Device)", ("p2p", "device", "device")),
        ("Memcpy HtoH (Pageable -> Pageable)", ("h2h", "pageable", "pageable")),
        ("Memcpy HtoA (Pageable -> Array)", ("array", "pageable", "array")),
        ("Memcpy HtoD (Host -> Device)", ("h2d", "unknown", "device")),
        ("CopyHostToDevice", ("h2d", "unknown", "unknown")),
        ("CopyDeviceToDevice", ("d2d", "unknown", "unknown")),
        ("something else", ("unknown", "unknown", "unknown")),
    ],
)
def test_copy_names(name: str, kinds: tuple[str, str, str]) -> None:
    assert copy_kinds(name) == kinds


def test_rows_of_two_processes_with_the_same_ids_are_not_mixed_up(tmp_path: Path) -> None:
    items = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": p,
            "tid": p,
            "ts": 1,
            "dur": 1,
            "args": {"correlation": c},
        }
        for p, c in ((1, 1), (2, 1), (2, 2))
    ]
    items += [_event(5, correlation=1), _event(6, correlation=2)]
    path = tmp_path / "t.json"
    path.write_text(_trace(items))
    trace = open_trace(path)
    assert trace.array("kernels", "process").tolist() == [-1, 1]
    assert "1 GPU rows could not be given to one process" in " ".join(trace.meta.warnings)


def test_words_that_json_has_no_number_for(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = _trace([_event(1, bandwidth=1), _event(2)])
    for word in ("inf", "-inf", "nan", "NaN", "Infinity", "-Infinity"):
        path.write_text(good.replace('"bandwidth": 1', f'"bandwidth": {word}'))
        assert open_trace(path).rows("kernels") == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"just text", "not a trace"),
        (b"{}", "no traceEvents"),
        (b'{"a": 1}', "no traceEvents"),
        (b"[]", "no timed events"),
        (b'{"traceEvents": []}', "no timed events"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "x"}}]}', "no timed events"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "du', "truncated"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]', "truncated"),
        (b'{"schemaVersion": 1, "trace', "truncated"),
        (gzip.compress(b"[" + b" " * 100_000)[:60], "compressed file ends early"),
        (b"PK\x03\x04" + bytes(50), "zip archive"),
        (bytes(range(1, 200)), "not a trace"),
        (b"\x00\x01" * 50, "binary"),
    ],
    ids=range(14),
)
def test_broken_input_is_one_clear_line(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        open_trace(path)
    assert "\n" not in error.value.message


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = _trace([{**_event(1), "name": "LONE PAIR"}])
    path.write_text(good.replace("LONE", "\\ud800").replace("PAIR", "\\ud83d\\ude00"))
    assert open_trace(path).names == ["\ufffd \U0001f600"]


def test_open_events_reach_to_the_end_and_are_marked(tmp_path: Path) -> None:
    items = [
        {**_event(1), "dur": -1},
        {**_event(2), "cat": "user_annotation", "pid": 1, "name": "decode", "dur": -250},
        _event(10),
    ]
    path = tmp_path / "t.json"
    path.write_text(_trace(items))
    trace = open_trace(path)
    assert trace.array("kernels", "dur_ns").tolist() == [0, 500]
    assert trace.array("spans", "dur_ns").tolist() == [8_500]
    assert (trace.array("spans", "flags") & 2).all()
    assert np.asarray(trace.array("kernels", "flags") & 2).tolist() == [2, 0]
