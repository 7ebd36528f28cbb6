"""CUDA_VISIBLE_DEVICES, read as CUDA reads it: names as well as numbers, and nothing behind the first bad entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from profkit.capture.nvml import Gpu


@dataclass(frozen=True)
class Visible:
    """Which GPUs a CUDA program gets, and in which order."""

    entries: tuple[str, ...] | None
    """``entries[i]`` is CUDA's device i, as written; None means every GPU, in CUDA's own order."""
    note: str = ""
    """What is odd about the value."""

    def names(self, gpus: Sequence[Gpu]) -> tuple[str, ...]:
        """``entries`` in words: ``GPU 2 (NVIDIA L4)`` where the entry names one of ``gpus``, else the entry itself."""
        return tuple(_in_words(entry, gpus) for entry in self.entries or ())


def parse_visible_devices(value: str | None) -> Visible:
    """Read the variable's value; None is an unset variable. Accepts any text.

    Source: CUDA programming guide, "CUDA Environment Variables": devices behind an invalid index are invisible; an
    index or name that comes twice makes all of them invisible.
    """
    if value is None:
        return Visible(None)
    entries: list[str] = []
    note = "" if value.strip() else "it is set and empty: no GPU is visible"
    for entry in value.split(",") if value.strip() else []:
        word = entry.strip()
        if not re.fullmatch(r"\d+|(?:GPU|MIG)-[\w/-]+", word):
            rest = "" if word == "-1" and not entries else ": it and what follows is not visible"
            note = f"{word!r} is no device{rest}" if word != "-1" or entries else "-1: no GPU is visible"
            break
        entries.append(word)
    if len(set(entries)) < len(entries):
        return Visible((), "a device comes twice: CUDA then shows none")
    return Visible(tuple(entries), note)


def _in_words(entry: str, gpus: Sequence[Gpu]) -> str:
    for gpu in gpus:
        if entry == str(gpu.index) or (gpu.uuid and entry.startswith("GPU-") and gpu.uuid.startswith(entry)):
            return f"GPU {gpu.index} ({gpu.name or 'name unknown'})"
    return f"GPU {entry}" if entry.isdigit() else entry
