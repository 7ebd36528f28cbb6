"""NVML by fakes: what a driver refuses costs that value only, and CUDA_VISIBLE_DEVICES is not a list of numbers."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.capture.nvml import Gpu, query
from profkit.capture.visible import parse_visible_devices


class NotSupportedError(Exception):
    """As the bindings raise it."""


def fake(**answers: Any) -> SimpleNamespace:
    """A pynvml with one GPU; an answer that is an exception is raised, a function of this list that is absent too."""
    defaults: dict[str, Any] = {
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
    }

    def function(answer: Any) -> Any:
        def call(*_: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    return SimpleNamespace(**{name: function(answer) for name, answer in {**defaults, **answers}.items()})


def test_a_gpu_that_answers_everything() -> None:
    found = query(fake())
    assert (found.driver, found.cuda, found.problem) == ("570.86.15", "12.8", "")
    assert found.gpus == (
        Gpu(0, "NVIDIA L4", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 24 << 30, 1 << 30, 0.5, "8.9", None),
    )


def test_n01_no_library_on_the_machine() -> None:
    found = query(fake(nvmlInit=NotSupportedError("NVML Shared Library Not Found")))
    assert found.problem == "NVML Shared Library Not Found"
    assert found.gpus == ()


def test_n01_importing_profkit_does_not_touch_nvml() -> None:
    code = "import profkit, profkit.capture.nvml, profkit.capture.doctor, sys; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("error", ["Not Supported", "Unknown Error"])
def test_n03_one_refused_query_does_not_lose_the_gpu(error: str) -> None:
    (gpu,) = query(fake(nvmlDeviceGetUtilizationRates=NotSupportedError(error))).gpus
    assert (gpu.name, gpu.memory_bytes, gpu.busy_share) == ("NVIDIA L4", 24 << 30, None)


@pytest.mark.parametrize("name", [b"NVIDIA L4", "NVIDIA L4"])
def test_n05_name_as_bytes_or_text(name: str | bytes) -> None:
    assert query(fake(nvmlDeviceGetName=name)).gpus[0].name == "NVIDIA L4"


def test_n08_an_integrated_gpu_has_little_to_tell() -> None:
    refused = NotSupportedError("Not Supported")
    (gpu,) = query(
        fake(nvmlDeviceGetName="Orin", nvmlDeviceGetMemoryInfo=refused, nvmlDeviceGetUtilizationRates=refused)
    ).gpus
    assert (gpu.name, gpu.memory_bytes, gpu.memory_used_bytes, gpu.busy_share) == ("Orin", None, None, None)


def test_bindings_that_lack_a_function() -> None:
    old = fake()
    del old.nvmlDeviceGetCudaComputeCapability
    assert query(old).gpus[0].compute_capability is None


@pytest.mark.parametrize(
    ("value", "entries", "note"),
    [
        (None, None, ""),
        ("", (), "empty"),
        ("-1", (), "no GPU is visible"),
        ("0,,1", ("0",), "'' is no device"),
        ("2,0", ("2", "0"), ""),
        (" 1 , 3", ("1", "3"), ""),
        ("1,-1,0", ("1",), "'-1' is no device: it and what follows"),
        ("1,1", (), "comes twice"),
        ("GPU-8932f937", ("GPU-8932f937",), ""),
        ("MIG-feb88891-0321-5fef-9c87-d4af3b54259e", ("MIG-feb88891-0321-5fef-9c87-d4af3b54259e",), ""),
        ("MIG-GPU-8932f937/1/0", ("MIG-GPU-8932f937/1/0",), ""),
        ("all", (), "'all' is no device"),
    ],
)
def test_e09_visible_devices(value: str | None, entries: tuple[str, ...] | None, note: str) -> None:
    visible = parse_visible_devices(value)
    assert visible.entries == entries
    assert note in visible.note


def test_e09_visible_devices_in_words() -> None:
    gpus = [Gpu(0, "NVIDIA L4", "GPU-8932f937-d72c"), Gpu(2, "NVIDIA H200", "GPU-11112222-3333")]
    assert parse_visible_devices("2,0,5").names(gpus) == ("GPU 2 (NVIDIA H200)", "GPU 0 (NVIDIA L4)", "GPU 5")
    assert parse_visible_devices("GPU-8932").names(gpus) == ("GPU 0 (NVIDIA L4)",)
