"""Group N: machines without an NVIDIA driver, drivers that answer little, and bindings of any age."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from profkit.capture import nvml

ROOT = Path(__file__).resolve().parent.parent.parent

# A pynvml without its library, as the bindings behave on a laptop or a CI runner; to be touched is noted.
_NO_LIBRARY = """
import pathlib
pathlib.Path({touched!r}).touch()
class NVMLError(Exception): ...
def nvmlInit(): raise NVMLError("NVML Shared Library Not Found")
"""


class NotSupportedError(Exception):
    """As the bindings raise it, with the driver's words."""


def fake_nvml(**answers: Any) -> ModuleType:
    """A pynvml of one GPU; an answer that is an exception is raised."""
    given = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": "570.86.15",
        "nvmlSystemGetCudaDriverVersion": 12080,
        "nvmlDeviceGetHandleByIndex": object(),
        "nvmlDeviceGetName": "NVIDIA L4",
        "nvmlDeviceGetUUID": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 << 30, used=1 << 30),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50),
        "nvmlDeviceGetCudaComputeCapability": (8, 9),
        "nvmlDeviceGetMigMode": NotSupportedError("Not Supported"),
        **answers,
    }

    def function(answer: Any) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    module = ModuleType("pynvml")
    for name, answer in given.items():
        setattr(module, name, function(answer))
    return module


@pytest.fixture
def doctor(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], str]]:
    """(the one GPU in ``doctor --json``, its line in the text) on a machine whose NVML is this fake."""

    def ask(**answers: Any) -> tuple[dict[str, Any], str]:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**answers))
        as_json = run("doctor", "--json")
        as_text = run("doctor")
        assert (as_json.code, as_json.err, as_text.code, as_text.err) == (0, "", 0, "")
        (gpu,) = json.loads(as_json.out, parse_constant=lambda word: pytest.fail(word))["gpus"]
        (line,) = [line for line in as_text.out.splitlines() if "gpu 0" in line]
        return gpu, line

    return ask


def _without_library(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """(an environment in which pynvml finds no library, the file that appears when pynvml is imported)."""
    stub, touched = tmp_path / "stub", tmp_path / "touched"
    stub.mkdir()
    (stub / "pynvml.py").write_text(_NO_LIBRARY.format(touched=str(touched)))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(stub), str(ROOT)])}, touched


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["check", "FILE"],
        ["check", "FILE", "--json"],
        ["stats", "FILE"],
        ["report", "FILE", "-o", "r.html"],
    ],
    ids=lambda words: " ".join(words),
)
def test_N01_file_functions_do_not_touch_nvml(tmp_path: Path, nsys: Any, words: list[str]) -> None:
    nsys.kernel(0, 100_000)
    path = nsys.write()
    env, touched = _without_library(tmp_path)
    command = [sys.executable, "-m", "profkit", *(str(path) if word == "FILE" else word for word in words)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert not touched.exists()


def test_N01_doctor_says_that_gpu_information_is_not_available(tmp_path: Path) -> None:
    env, touched = _without_library(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "profkit", "doctor"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert touched.exists()
    (line,) = [line for line in done.stdout.splitlines() if "NVML Shared Library Not Found" in line]
    assert "not available" in line


@pytest.mark.parametrize("words", ["Not Supported", "Unknown Error"])
def test_N03_a_refused_utilisation_costs_that_value_only(doctor: Any, words: str) -> None:
    gpu, line = doctor(nvmlDeviceGetUtilizationRates=NotSupportedError(words))
    assert (gpu["name"], gpu["memory_bytes"], gpu["busy_share"]) == ("NVIDIA L4", 24 << 30, None)
    assert "NVIDIA L4, 24.0 GiB, utilisation n/a" in line
    assert "0 %" not in line


@pytest.mark.parametrize("name", [b"NVIDIA L4", "NVIDIA L4"])
def test_N05_a_name_is_text_whatever_the_bindings_give(doctor: Any, name: str | bytes) -> None:
    gpu, line = doctor(nvmlDeviceGetName=name)
    assert gpu["name"] == "NVIDIA L4"
    assert "NVIDIA L4, 24.0 GiB" in line
    assert "b'" not in line


def test_N07_only_the_official_bindings_are_required() -> None:
    words = [requirement.split(";")[0].strip().lower() for requirement in requires("profkit") or []]
    assert [word for word in words if "nvml" in word or word.startswith("nvidia-ml")] == ["nvidia-ml-py>=12.535"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_N07_the_warning_of_the_retired_package_stays_out_of_the_output(tmp_path: Path, flags: list[str]) -> None:
    """The retired package of the same module name warns when it is imported; an error here would end the program."""
    (tmp_path / "pynvml.py").write_text(
        "import warnings\n"
        "warnings.warn('The pynvml package is deprecated. Please install nvidia-ml-py instead.', FutureWarning)\n"
        "def nvmlInit(): raise OSError('NVML Shared Library Not Found')\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-W", "error::FutureWarning", "-m", "profkit", "doctor", *flags]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "deprecated" not in done.stdout
    if flags:
        assert json.loads(done.stdout)["gpus"] == []


def test_N07_the_installed_bindings_import_without_a_warning() -> None:
    assert importlib.util.find_spec("pynvml") is not None
    code = "import profkit.capture.nvml as n; n.query()"
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_N08_an_integrated_gpu_has_a_name_and_little_else(doctor: Any) -> None:
    refused = NotSupportedError("Not Supported")
    gpu, line = doctor(nvmlDeviceGetName="Orin", nvmlDeviceGetMemoryInfo=refused, nvmlDeviceGetUtilizationRates=refused)
    assert (gpu["name"], gpu["memory_bytes"], gpu["memory_used_bytes"], gpu["busy_share"]) == ("Orin", None, None, None)
    assert "Orin, memory n/a, utilisation n/a" in line


def test_N08_an_export_without_payload_columns_is_analysed_whole(nsys: Any, check: Callable[..., Any]) -> None:
    """The builder of these tests writes NVTX_EVENTS without payload columns, and devices without memory or clocks."""
    nsys.kernel(0, 100_000, correlation=1)
    nsys.kernel(200_000, 300_000, correlation=2)
    nsys.nvtx(0, 400_000, text="decode")
    seen = check(nsys.write())
    assert (seen.device["busy_ns"], seen.device["idle_ns"]) == (200_000, 100_000)
    assert [(stage["stage"], stage["count"]) for stage in seen.summary["stages"]] == [("decode", 1)]


def test_N_a_query_never_raises() -> None:
    found = nvml.query(fake_nvml(nvmlDeviceGetCount=NotSupportedError("Unknown Error")))
    assert (found.problem, found.gpus, found.driver) == ("", (), "570.86.15")
