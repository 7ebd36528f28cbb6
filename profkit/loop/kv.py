"""The key/value cache: one block for all sequences, allocated once, and the three ways a forward pass uses it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from profkit.capture.stage import Stage
from profkit.loop.config import ModelConfig

KV_UPDATE = Stage("kv_update")


class KVView(Protocol):
    """What one forward pass sees of the cache."""

    mask: Tensor | None
    """[sequences, 1, 1, positions], True where a key may be read; None: the new keys alone, causally."""

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values [sequences, kv_heads, tokens, head_dim]; all that attention has to read."""
        ...


class StaticKV:
    """Keys and values [layers, slots, kv_heads, positions, head_dim]: a slot is a sequence's place while it runs."""

    def __init__(
        self, config: ModelConfig, slots: int, positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.layers, slots, config.kv_heads, positions, config.head_dim)
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def bytes(self) -> int:
        """Size of the whole cache."""
        return self.k.nbytes + self.v.nbytes

    def prompt(self, slot: int) -> KVView:
        """For the prefill of one sequence: its keys are all there is to read."""
        return _PromptView(self, slot)

    def step(self, positions: Tensor) -> KVView:
        """For one decoding step of all slots, whose new token stands at ``positions`` [slots]."""
        return _StepView(self, positions)


class _PromptView:
    mask: Tensor | None = None

    def __init__(self, cache: StaticKV, slot: int) -> None:
        self._cache = cache
        self._slot = slot

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        tokens = k.shape[2]
        with KV_UPDATE.of(k.nbytes + v.nbytes):
            self._cache.k[layer, self._slot, :, :tokens] = k[0]
            self._cache.v[layer, self._slot, :, :tokens] = v[0]
        return k, v


class _StepView:
    def __init__(self, cache: StaticKV, positions: Tensor) -> None:
        self._cache = cache
        self._positions = positions
        self._slots = torch.arange(len(positions), device=positions.device)
        every = torch.arange(cache.k.shape[3], device=positions.device)
        self.mask: Tensor | None = (every <= positions[:, None])[:, None, None, :]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        with KV_UPDATE.of(k.nbytes + v.nbytes):
            self._cache.k[layer, self._slots, :, self._positions] = k[:, :, 0]
            self._cache.v[layer, self._slots, :, self._positions] = v[:, :, 0]
        return self._cache.k[layer], self._cache.v[layer]


class NoCache:
    """Keeps nothing: each pass recomputes every key. The reference that the cache is tested against."""

    mask: Tensor | None = None

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v
