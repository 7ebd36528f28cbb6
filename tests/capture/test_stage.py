"""Ranges without a tool and under a PyTorch profiler."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profkit
from profkit import schema
from profkit.capture.stage import STAGES

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str) -> str:
    """Run a new interpreter in the repository; its stdout."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_stages_are_those_of_the_trace() -> None:
    assert STAGES == schema.STAGES


# Without a tool


def test_an_unknown_stage_is_refused_with_the_list_of_stages() -> None:
    for make in (profkit.stage, profkit.Stage):
        with pytest.raises(ValueError, match=r"'decoding' is no stage; the stages are request, schedule.*detokenize"):
            make("decoding")
    with pytest.raises(ValueError):
        profkit.stage("decoding", payload=8)


def test_a_payload_is_an_integer() -> None:
    assert profkit.stage("decode", payload=np.int64(8)).payload == 8
    assert profkit.Stage("decode").of(np.int32(9)).payload == 9
    for bad in (1.5, "8", [8]):
        with pytest.raises(TypeError):
            profkit.stage("decode", payload=bad)
        with pytest.raises(TypeError):
            profkit.Stage("decode").of(bad)
        with pytest.raises(TypeError):
            profkit.request(bad)


def test_exceptions_pass_through_every_form() -> None:
    decode = profkit.Stage("decode")

    @decode
    def fail() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError), profkit.stage("sample", payload=1), decode:
        fail()
    with pytest.raises(KeyError), profkit.request(1):
        fail()


def test_a_decorated_function_keeps_its_name_arguments_and_result() -> None:
    @profkit.stage("tokenize", payload=3)
    def encode(text: str, *, lower: bool = False) -> str:
        """Doc."""
        return text.lower() if lower else text

    assert encode("AB", lower=True) == "ab"
    assert (encode.__name__, encode.__doc__) == ("encode", "Doc.")


def test_what_is_suspended_in_the_middle_cannot_be_decorated() -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, generator, async_generator):
        with pytest.raises(TypeError, match="is suspended while others of its thread run"):
            profkit.stage("decode")(function)
    with pytest.raises(TypeError, match=r"\.of\(n\)"):
        profkit.Stage("decode")(8)  # type: ignore[arg-type]


def test_a_request_runs_once_at_a_time() -> None:
    request = profkit.request(7, prompt_tokens=33).start()
    with pytest.raises(RuntimeError, match="request 7 is running"):
        request.start()
    request.first_token()
    request.end(output_tokens=4)
    request.end()
    with request as again:
        assert again is request


def test_ranges_import_no_torch() -> None:
    out = run_python(
        "import sys, profkit\n"
        "with profkit.stage('decode', payload=8), profkit.request(1) as r: r.first_token()\n"
        "print('torch' in sys.modules)"
    )
    assert out.strip() == "False"


def test_a_torch_that_is_half_imported_breaks_no_range() -> None:
    # Another thread may be in the middle of `import torch`: the module is listed, its names are not there yet.
    out = run_python(
        "import sys, types, profkit\n"
        "half = sys.modules['torch.autograd.profiler'] = types.ModuleType('torch.autograd.profiler')\n"
        "with profkit.stage('decode'): pass\n"
        "seen = []\n"
        "class record_function:\n"
        "    def __init__(self, name): seen.append(name)\n"
        "    def __enter__(self): pass\n"
        "    def __exit__(self, *_): pass\n"
        "half._is_profiler_enabled, half.record_function = True, record_function\n"
        "with profkit.stage('decode', payload=8): pass\n"
        "print(seen)"
    )
    assert out.strip() == "['profkit::decode#8']"


# Under a PyTorch profiler


def profile() -> Any:
    from torch import profiler

    return profiler.profile(activities=[profiler.ProfilerActivity.CPU])


def annotations(profiler: Any, folder: Path) -> list[dict[str, Any]]:
    """The annotations of the exported trace in order of their start."""
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    found = [event for event in events if event.get("cat") == "user_annotation"]
    return sorted(found, key=lambda event: event["ts"])


def names(profiler: Any, folder: Path) -> list[str]:
    return [event["name"] for event in annotations(profiler, folder)]


def test_every_form_appears_in_the_profile(tmp_path: Path) -> None:
    decode = profkit.Stage("decode")

    @decode
    def plain() -> None: ...

    @decode.of(3)
    def sized() -> None: ...

    with profile() as profiler:
        with decode, profkit.stage("sample", payload=8):
            pass
        with decode.of(2):
            pass
        plain()
        sized()
        for name in STAGES:
            with profkit.stage(name):
                pass
    assert names(profiler, tmp_path) == [
        "profkit::decode",
        "profkit::sample#8",
        "profkit::decode#2",
        "profkit::decode",
        "profkit::decode#3",
        *(f"profkit::{name}" for name in STAGES),
    ]


def test_nested_ranges_nest_in_time(tmp_path: Path) -> None:
    with profile() as profiler, profkit.stage("decode", payload=1), profkit.stage("sample"):
        pass
    outer, inner = annotations(profiler, tmp_path)
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_an_exception_closes_its_ranges(tmp_path: Path) -> None:
    with profile() as profiler:
        with contextlib.suppress(KeyError), profkit.stage("prefill"), profkit.stage("h2d"):
            raise KeyError
        with profkit.stage("decode"):
            pass
    found = annotations(profiler, tmp_path)
    assert [event["name"] for event in found] == ["profkit::prefill", "profkit::h2d", "profkit::decode"]
    assert not any("finished" in event["args"] for event in found)


def test_a_profiler_that_starts_inside_a_range_sees_what_follows(tmp_path: Path) -> None:
    with profkit.stage("prefill"):
        profiler = profile()
        profiler.__enter__()
        with profkit.stage("sample"):
            pass
    with profkit.stage("decode"):
        profiler.__exit__(None, None, None)
        with profkit.stage("detokenize"):
            pass
    assert names(profiler, tmp_path) == ["profkit::sample", "profkit::decode"]


def test_a_profiler_is_seen_by_ranges_made_before_torch_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run_python(
        "import profkit\n"
        "decode = profkit.Stage('decode')\n"
        "@decode.of(4)\n"
        "def step(): pass\n"
        "step()\n"
        "import torch.profiler as tp\n"
        "with tp.profile(activities=[tp.ProfilerActivity.CPU]) as profiler: step()\n"
        f"profiler.export_chrome_trace({str(path)!r})"
    )
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "user_annotation"] == ["profkit::decode#4"]


def test_overlapping_requests_keep_their_own_times(tmp_path: Path) -> None:
    with profile() as profiler:
        first = profkit.request(7, prompt_tokens=33).start()
        second = profkit.request(8, prompt_tokens=5).start()
        first.first_token()
        first.end(output_tokens=4)
        second.end(output_tokens=2)
    found = annotations(profiler, tmp_path)
    assert [event["name"] for event in found] == [
        "profkit::request#7",
        "profkit::request#7 prompt_tokens=33",
        "profkit::request#8",
        "profkit::request#8 prompt_tokens=5",
        "profkit::request#7 first_token",
        "profkit::request#7 output_tokens=4",
        "profkit::request#8 output_tokens=2",
    ]
    by_name = {event["name"]: event for event in found}
    a, b = by_name["profkit::request#7"], by_name["profkit::request#8"]
    assert a["ts"] < b["ts"] < a["ts"] + a["dur"] < b["ts"] + b["dur"]


def test_records_that_outlive_their_profiler_do_no_harm() -> None:
    # torch writes to freed memory when a record is ended under a later profiler: this needs many to show, and a process
    # of its own to die in.
    run_python(
        "import gc, torch, torch.profiler as tp, profkit\n"
        "def profile(): return tp.profile(activities=[tp.ProfilerActivity.CPU])\n"
        "for _ in range(20):\n"
        "    with profile():\n"
        "        open_requests = [profkit.request(i).start() for i in range(50)]\n"
        "        left = [profkit.stage('decode', payload=i) for i in range(50)]\n"
        "        for range_ in left: range_.__enter__()\n"
        "        torch.ones(8)\n"
        "    gc.collect()\n"
        "    with profile():\n"
        "        torch.ones(8)\n"
        "        for range_ in reversed(left): range_.__exit__(None, None, None)\n"
        "        for request in open_requests: request.end()\n"
        "        del request, range_\n"
    )


def test_a_request_that_outlives_its_profiler_is_unfinished_there_and_absent_later(tmp_path: Path) -> None:
    with profile() as first:
        request = profkit.request(7).start()
    with profile() as second:
        request.end(output_tokens=3)
    (event,) = annotations(first, tmp_path)
    assert event["args"]["finished"] is False
    assert names(second, tmp_path) == ["profkit::request#7 output_tokens=3"]


def test_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    decode = profkit.Stage("decode")

    def work() -> None:
        for _ in range(200):
            with decode, profkit.stage("sample", payload=1):
                pass

    with profile() as profiler:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        with decode:
            for thread in threads:
                thread.join()
    mine = [event for event in annotations(profiler, tmp_path) if event["tid"] == threading.get_native_id()]
    assert [event["name"] for event in mine] == ["profkit::decode"]
