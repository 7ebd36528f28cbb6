"""The rank of a trace: what the file says, else what its name says, else 0 with a note."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTENT, NAME, NOWHERE = "content", "file name", "nowhere"
"""Where a rank comes from: RunMeta.extra["rank_from"]."""

# rank0, rank-0, _rank_0; r0-... as torchtune writes it; worker0 names a data loader's or a trainer's process: no rank.
_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank[-_.=]?|r(?=\d+[-_.]))(\d{1,6})(?!\d)", re.IGNORECASE)

# The same for every name, so that a renamed copy of a file gives the same text.
_NOT_SAID = "the trace does not name its rank: taken from the file name where that says one, else as rank 0"


@dataclass(frozen=True)
class Rank:
    """``world_size`` -1 is not known; ``note`` is what to tell the user, "" for nothing."""

    rank: int
    world_size: int
    source: str
    note: str = ""


def rank_in_name(name: str) -> int:
    """The rank that a file's name says, -1 for none."""
    match = _IN_NAME.search(name)
    return int(match[1]) if match else -1


def find_rank(top: dict[str, Any], path: Path) -> Rank:
    """The content wins over the name, and a disagreement is said."""
    info = top.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    said, world = _whole(info.get("rank")), _whole(info.get("world_size"))
    named = rank_in_name(path.name)
    if said >= 0:
        differs = f"the file name says rank {named}, the trace itself rank {said}: the trace is right"
        return Rank(said, world, CONTENT, differs if named not in (-1, said) else "")
    if named >= 0:
        return Rank(named, world, NAME, _NOT_SAID)
    return Rank(0, world, NOWHERE, _NOT_SAID)


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else -1
