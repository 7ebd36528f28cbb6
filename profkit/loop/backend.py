"""What differs between a GPU and a CPU: memory, waiting, copies. The rest of the loop does not know where it runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from profkit.errors import ProfkitError, UsageError


@dataclass(frozen=True)
class Memory:
    """The most memory that was in use: ``kind`` says by whose count."""

    kind: str
    """cuda_allocated: tensors, by torch's allocator. process_rss: the whole process, torch itself included."""
    peak_bytes: int | None
    """None where the platform does not say."""


class Backend(Protocol):
    """A device and the few things that only CUDA has."""

    device: torch.device
    has_graphs: bool

    def pin(self, tensor: Tensor) -> Tensor:
        """The same values in page-locked host memory. Raises UsageError where there is none."""
        ...

    def record_event(self) -> Event:
        """An event after the work queued so far."""
        ...

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        ...

    def reset_peak_memory(self) -> None:
        """Start counting the peak anew, where that is possible."""
        ...

    def peak_memory(self) -> Memory: ...


class Event(Protocol):
    """A point in the device's work."""

    def synchronize(self) -> None:
        """Wait until the device has passed it."""
        ...


class _Done:
    """The event of a device without a queue: what was asked is done when the call returns."""

    def synchronize(self) -> None:
        pass


class CpuBackend:
    """The CPU: no queue, so nothing to wait for."""

    has_graphs = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def pin(self, tensor: Tensor) -> Tensor:
        raise UsageError("--copies pinned needs a GPU: host memory is pinned for its copy engine")

    def record_event(self) -> Event:
        return _Done()

    def synchronize(self) -> None:
        pass

    def reset_peak_memory(self) -> None:
        pass

    def peak_memory(self) -> Memory:
        try:
            import resource
        except ImportError:  # not on Windows
            return Memory("process_rss", None)
        # Linux counts in KiB, macOS in bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        return Memory("process_rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class CudaBackend:
    """The current CUDA device. Raises ProfkitError where torch finds none."""

    has_graphs = True

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            built = "has no CUDA" if torch.version.cuda is None else "finds no usable GPU"
            raise ProfkitError(f"--device cuda: torch {torch.__version__} {built}")
        self.device = torch.device("cuda", torch.cuda.current_device())

    def pin(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory()

    def record_event(self) -> Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> Memory:
        return Memory("cuda_allocated", torch.cuda.max_memory_allocated(self.device))


def open_backend(device: str) -> Backend:
    """The backend for ``auto``, ``cpu`` or ``cuda``; ``auto`` takes the GPU where torch finds one."""
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return CudaBackend()
    return CpuBackend()
