"""What NVML tells about the driver and the GPUs. Each question is asked by itself: a refused one costs one value."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Gpu:
    """One GPU; None is what the driver does not tell for it."""

    index: int
    """NVML's number: PCI bus order, whatever CUDA_VISIBLE_DEVICES says."""
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    busy_share: float | None = None
    """0..1, over NVML's own last sampling period."""
    compute_capability: str | None = None
    mig: bool | None = None


@dataclass(frozen=True)
class Nvml:
    """The driver's answers, or why there are none."""

    problem: str = ""
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA that the driver supports."""
    gpus: tuple[Gpu, ...] = ()


def query(nvml: Any = None) -> Nvml:
    """Ask the driver; never raises. ``nvml`` is the pynvml module, imported here unless given."""
    if nvml is None:
        try:
            with warnings.catch_warnings():
                # The retired package of the same module name warns about itself on import.
                warnings.simplefilter("ignore")
                nvml = importlib.import_module("pynvml")
        except ImportError as error:
            return Nvml(problem=f"nvidia-ml-py: {error}")
    try:
        nvml.nvmlInit()
    except Exception as error:
        return Nvml(problem=_text(str(error)) or type(error).__name__)
    try:
        count = _ask(lambda: int(nvml.nvmlDeviceGetCount())) or 0
        return Nvml(
            driver=_ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            cuda=_ask(lambda: _cuda_text(nvml.nvmlSystemGetCudaDriverVersion())),
            gpus=tuple(_gpu(nvml, index) for index in range(count)),
        )
    finally:
        _ask(lambda: nvml.nvmlShutdown())


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = _ask(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Gpu(index)
    memory: Any = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return Gpu(
        index,
        name=_ask(lambda: _text(nvml.nvmlDeviceGetName(handle))),
        uuid=_ask(lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        memory_bytes=_ask(lambda: int(memory.total)),
        memory_used_bytes=_ask(lambda: int(memory.used)),
        busy_share=_ask(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100),
        compute_capability=_ask(lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle)))),
        mig=_ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == 1),
    )


def _ask(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except Exception:  # bindings raise a class per error code, and AttributeError for what they lack
        return None


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _cuda_text(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
