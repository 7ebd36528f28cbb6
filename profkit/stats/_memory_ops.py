"""Names of memory operations, as the enumerations of current nsys exports label them."""

from __future__ import annotations

import numpy as np

from profkit.model import Ints, Trace
from profkit.schema import COPY_KINDS, MEMORY_KINDS

MEMSET = COPY_KINDS.index("memset")

_LABELS = {
    "h2d": "Host-to-Device",
    "d2h": "Device-to-Host",
    "d2d": "Device-to-Device",
    "p2p": "Peer-to-Peer",
    "h2h": "Host-to-Host",
    "um_h2d": "Unified Host-to-Device",
    "um_d2h": "Unified Device-to-Host",
    "um_d2d": "Unified Device-to-Device",
    "unknown": "Unknown",
}
# Where a copy kind only says that an array takes part, the memory at each end tells the direction.
_END = {"pageable": "Host", "pinned": "Host", "device": "Device", "managed": "Device", "array": "Array"}

KIND_LABELS = tuple(kind.title() for kind in MEMORY_KINDS)


def operations(trace: Trace) -> tuple[Ints, list[str]]:
    """Operation of each row of ``copies`` as a code, and the name of each code."""
    kind = trace.array("copies", "kind").astype(np.int64)
    src = trace.array("copies", "src_kind").astype(np.int64)
    dst = trace.array("copies", "dst_kind").astype(np.int64)
    ends = len(MEMORY_KINDS)
    names = [_name(k, s, d) for k in range(len(COPY_KINDS)) for s in range(ends) for d in range(ends)]
    distinct = list(dict.fromkeys(names))
    lookup = np.asarray([distinct.index(name) for name in names], np.int64)
    # An end that was not recorded is -1: the same as unknown, the last of the kinds.
    return lookup[(kind * ends + src % ends) * ends + dst % ends], distinct


def _name(kind: int, src: int, dst: int) -> str:
    if kind == MEMSET:
        return "[CUDA memset]"
    label = _LABELS.get(COPY_KINDS[kind])
    if label is None:
        label = f"{_END.get(MEMORY_KINDS[src], 'Array')}-to-{_END.get(MEMORY_KINDS[dst], 'Array')}"
    return f"[CUDA memcpy {label}]"
