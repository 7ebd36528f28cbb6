"""How token ids reach the device: from pageable or pinned memory, waited for or not."""

from __future__ import annotations

import torch
from torch import Tensor

from profkit.capture.stage import Stage
from profkit.loop.backend import Backend, Event

H2D = Stage("h2d")


class Uploader:
    """Copies token ids to the device, each copy inside an ``h2d`` range of as many bytes.

    Pinned memory is one buffer, allocated once: pinning costs more than the copy it speeds up.
    """

    def __init__(self, backend: Backend, capacity: int, pinned: bool, wait: bool) -> None:
        """``capacity`` is the most tokens of one copy. Raises UsageError where memory cannot be pinned."""
        self._backend = backend
        self._wait = wait
        self._buffer = backend.pin(torch.empty(capacity, dtype=torch.int64)) if pinned else None
        self._last_use: Event | None = None

    def upload(self, ids: list[int]) -> Tensor:
        """Token ids as an int64 tensor [tokens] on the device.

        Without ``wait`` the copy may still be under way; work queued after it sees its values.
        """
        with H2D.of(8 * len(ids)):
            host = torch.tensor(ids, dtype=torch.int64)
            if self._buffer is not None:
                if self._last_use is not None:
                    # The copy engine may still be reading what the last upload put there.
                    self._last_use.synchronize()
                host = self._buffer[: len(ids)].copy_(host)
            there = host.to(self._backend.device, non_blocking=not self._wait)
            if self._buffer is not None and not self._wait:
                self._last_use = self._backend.record_event()
            return there
