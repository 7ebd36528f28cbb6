"""Ranges under a real NVTX tool, compiled for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.capture.stage import STAGES

ROOT = Path(__file__).resolve().parents[2]
TAP_SOURCE = Path(__file__).with_name("nvtx_tap.c")


def nvtx_include() -> Path | None:
    """A folder that holds ``nvtx3/nvToolsExt.h``: a CUDA toolkit's, or that of the package nvidia-nvtx."""
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    roots += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    roots += [folder for entry in sys.path for folder in sorted(Path(entry).glob("nvidia/*"))]
    includes = [root / "include" for root in roots] + [Path("/usr/include")]
    return next((folder for folder in includes if (folder / "nvtx3" / "nvToolsExt.h").exists()), None)


Events = list[list[str]]


@pytest.fixture(scope="module")
def under_nvtx(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Events]:
    """Runs code under the tap; gives its lines, split at tabs."""
    compiler, include = shutil.which("cc") or shutil.which("gcc"), nvtx_include()
    if compiler is None or include is None or sys.platform != "linux":
        pytest.skip("NVTX is not tested: that needs Linux, a C compiler and the NVTX headers (a CUDA toolkit)")
    folder = tmp_path_factory.mktemp("tap")
    library = folder / "libtap.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-I", include, TAP_SOURCE, "-o", library], check=True)

    def run(code: str) -> Events:
        out = folder / "tap.tsv"
        env = {**os.environ, "NVTX_INJECTION64_PATH": str(library), "NVTX_TAP_OUT": str(out)}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)
        return [line.split("\t") for line in out.read_text().splitlines()]

    return run


def brief(events: Events) -> list[tuple[str, ...]]:
    """(what, name, payload) of events, (what,) of ends; the domain and the category are checked on the way."""
    categories = {fields[2]: fields[3] for fields in events if fields[0] == "category"}
    assert tuple(categories.values()) == STAGES
    found: list[tuple[str, ...]] = []
    for fields in events:
        assert fields[1] == "profkit"
        if fields[0] in ("push", "start", "mark"):
            name, payload = fields[7], fields[6] if fields[5] == "2" else ""
            assert name.partition("#")[0] == categories[fields[4]]
            found.append((fields[0], name, payload))
        elif fields[0] != "category":
            found.append((fields[0],))
    return found


def test_nvtx_stages_have_their_category_and_an_int64_payload(under_nvtx: Callable[[str], Events]) -> None:
    events = under_nvtx(
        "import profkit\n"
        "decode = profkit.Stage('decode')\n"
        "@decode\n"
        "def step(): pass\n"
        "with decode.of(8), profkit.stage('kv_update', payload=1 << 40): pass\n"
        "try:\n"
        "    with decode: raise KeyError\n"
        "except KeyError: step()\n"
    )
    assert brief(events) == [
        ("push", "decode", "8"),
        ("push", "kv_update", str(1 << 40)),
        ("pop",),
        ("pop",),
        ("push", "decode", ""),
        ("pop",),
        ("push", "decode", ""),
        ("pop",),
    ]


def test_nvtx_requests_overlap_and_end_on_any_thread(under_nvtx: Callable[[str], Events]) -> None:
    events = under_nvtx(
        "import profkit, threading\n"
        "a = profkit.request(7, prompt_tokens=33).start()\n"
        "b = profkit.request(8).start()\n"
        "a.first_token()\n"
        "a.end(output_tokens=4)\n"
        "t = threading.Thread(target=b.end); t.start(); t.join()\n"
    )
    assert brief(events) == [
        ("start", "request", "7"),
        ("mark", "request#7 prompt_tokens=33", "7"),
        ("start", "request", "8"),
        ("mark", "request#7 first_token", "7"),
        ("mark", "request#7 output_tokens=4", "7"),
        ("end",),
        ("end",),
    ]
    started = [fields[3] for fields in events if fields[0] == "start"]
    assert [fields[3] for fields in events if fields[0] == "end"] == started


def test_nvtx_payloads_of_two_threads_stay_apart(under_nvtx: Callable[[str], Events]) -> None:
    events = under_nvtx(
        "import profkit, sys, threading\n"
        "sys.setswitchinterval(1e-6)\n"
        "def work(payload):\n"
        "    for _ in range(500):\n"
        "        with profkit.stage('decode', payload=payload): pass\n"
        "threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
    )
    payloads: dict[str, set[str]] = {}
    for fields in events:
        if fields[0] == "push":
            payloads.setdefault(fields[2], set()).add(fields[6])
    assert sorted(map(sorted, payloads.values())) in ([["1"], ["2"]], [["1", "2"]])


def test_nvtx_and_a_torch_profiler_record_side_by_side(under_nvtx: Callable[[str], Events], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = under_nvtx(
        "import torch.profiler as tp, profkit\n"
        "with tp.profile(activities=[tp.ProfilerActivity.CPU]) as profiler:\n"
        "    with profkit.stage('decode', payload=8): pass\n"
        f"profiler.export_chrome_trace({str(path)!r})"
    )
    assert brief([fields for fields in events if fields[1] == "profkit"]) == [("push", "decode", "8"), ("pop",)]
    kineto = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in kineto if event.get("cat") == "user_annotation"] == ["profkit::decode#8"]


def test_nvtx_disable_is_respected(under_nvtx: Callable[[str], Events]) -> None:
    events = under_nvtx(
        "import os; os.environ['NVTX_DISABLE'] = '1'\n"
        "import profkit\n"
        "with profkit.stage('decode', payload=8), profkit.request(1) as r: r.first_token()\n"
    )
    assert [fields for fields in events if fields[0] != "category"] == []
