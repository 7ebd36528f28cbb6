"""What a GPU reaches at most: its memory's bandwidth and its matrix products, each with its source."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from profkit.model import Trace


@dataclass(frozen=True)
class Peaks:
    """Rates of one GPU; -1 is "not known"."""

    memory_bytes_per_s: int
    memory_source: str
    flops_per_s: int
    flops_source: str


@cache
def _known() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = tomllib.loads(
        files("profkit.analysis").joinpath("gpu_peaks.toml").read_text("utf-8")
    )["gpu"]
    return table


def peaks_of(trace: Trace, device: int, arithmetic: str) -> Peaks:
    """The peaks of a row of devices; ``arithmetic`` is 16bit or fp8, empty where it is not known.

    An instance of a GPU (MIG) has a part of its rates, which no source tells: its peaks are not known.
    """
    row = trace.tables["devices"].slice(device, 1).to_pylist()[0]
    if row["mig"]:
        return Peaks(-1, "", -1, "")
    entry = next((known for known in _known() if _fits(known["name"], row["name"])), {})
    source = f"{entry['source']} ({entry['name']})" if entry else ""
    own = int(row["memory_bytes_per_s"])
    flops = int(entry.get(f"flops_{arithmetic}", -1)) if arithmetic else -1
    return Peaks(
        memory_bytes_per_s=own if own > 0 else int(entry.get("memory_bytes_per_s", -1)),
        memory_source="the trace's own table of GPUs" if own > 0 else source,
        flops_per_s=flops,
        flops_source=source if flops > 0 else "",
    )


def _fits(part: str, name: str) -> bool:
    """Whether a product name holds a part as whole words: L4 is not L40S."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(part)}(?![A-Za-z0-9])", name) is not None
