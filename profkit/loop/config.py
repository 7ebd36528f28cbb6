"""What a run of the loop is made of: the shape of the model, and the settings of one run."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.errors import UsageError

VOCABULARY_SIZE = 4096


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder. ``kv_heads`` divides ``heads`` (grouped-query attention)."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    """Width of the SwiGLU layer."""
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


PRESETS = {
    "tiny": ModelConfig(layers=2, width=32, heads=4, kv_heads=2, hidden=96),  # 0.16 M parameters
    "nano": ModelConfig(layers=4, width=256, heads=8, kv_heads=4, hidden=1024),  # 5.0 M parameters
}


@dataclass(frozen=True)
class Settings:
    """One run. Raises UsageError for what makes no sense."""

    preset: str = "nano"
    device: str = "auto"
    dtype: str = "float32"
    batch: int = 4
    """Sequences that are decoded together at most."""
    requests: int = 8
    prompt_tokens: int = 64
    max_new: int = 32
    """Tokens answered to each request; the model has no end of its own."""
    seed: int = 0
    warm_up: int = 1
    """Requests that run before the clock starts."""
    steps: int = 0
    """Measured steps after which the run stops, 0 for as many as the requests need."""
    threads: int = 1
    """CPU threads of torch; more of them make a small model slower and its times scatter."""
    copies: str = "pageable"
    copy_mode: str = "sync"
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"--{_option(name)} is one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UsageError(f"--{_option(name)} is at least {least}, not {getattr(self, name)}")


_CHOICES = {
    "preset": tuple(PRESETS),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("float32", "bfloat16", "float16"),
    "copies": ("pageable", "pinned"),
    "copy_mode": ("sync", "async"),
}
_LEAST = {"batch": 1, "requests": 1, "prompt_tokens": 1, "max_new": 1, "warm_up": 0, "steps": 0, "threads": 1}


def _option(name: str) -> str:
    return name.replace("_", "-")
