"""Which ranges are stages of an inference step, and what their name carries.

A range is a stage if its domain is ``profkit`` and its category is a stage; or, in any domain and in PyTorch
annotations, if its name without the prefix ``profkit::`` and without ``#payload`` is exactly a stage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.arrays import key_of, numbered
from profkit.model import Array, Ints, Mask
from profkit.schema import STAGES

DOMAIN = "profkit"
PREFIX = "profkit::"
_NAME = re.compile(rf"^(?:{PREFIX})?({'|'.join(STAGES)})(?:#(-?\d{{1,18}}))?$")


@dataclass(frozen=True)
class StageName:
    """A stage and the payload that stands in the name, None where there is none."""

    stage: int
    payload: int | None

    @property
    def name(self) -> str:
        return STAGES[self.stage]


def parse_name(name: str) -> StageName | None:
    """The stage that a range's name says: ``decode``, ``profkit::decode#8``; None for any other name."""
    match = _NAME.match(name)
    if match is None:
        return None
    return StageName(STAGES.index(match[1]), int(match[2]) if match[2] is not None else None)


def find_stages(names: list[str], name: Array, domain: Array, category: Array) -> tuple[Array, Ints, Array]:
    """(stage code or -1, payload in the name, whether it has one) for spans; ``names`` are the texts of the codes."""
    if not len(name):
        return np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, bool)
    _, first, inverse = numbered(key_of(name, domain, category))
    stage = np.full(len(first), -1, np.int8)
    payload = np.full(len(first), -1, np.int64)
    has_payload = np.zeros(len(first), bool)
    for i in np.flatnonzero(_may_be_stage(names, name[first], domain[first])).tolist():
        row = first[i]
        text = names[name[row]] if name[row] >= 0 else ""
        found = parse_name(text)
        if found is not None:
            stage[i] = found.stage
            if found.payload is not None:
                payload[i], has_payload[i] = found.payload, True
        elif (
            domain[row] >= 0 and category[row] >= 0 and names[domain[row]] == DOMAIN and names[category[row]] in STAGES
        ):
            stage[i] = STAGES.index(names[category[row]])
    return stage[inverse], payload[inverse], has_payload[inverse]


def _may_be_stage(names: list[str], name: Array, domain: Array) -> Mask:
    """Which (name, domain) are worth a look: there may be as many names as ranges, and few of them are stages."""
    try:
        texts = pa.array(names, pa.string())
    except UnicodeEncodeError:  # half a surrogate pair is no text that Arrow can hold
        return np.ones(len(name), bool)
    matches = pc.match_substring_regex(texts, rf"^(?:{PREFIX})?(?:{'|'.join(STAGES)})(?:#|$)").to_numpy(False)
    ours = np.asarray(pc.equal(texts, DOMAIN).to_numpy(False))
    mask: Mask = ((name >= 0) & matches[name]) | ((domain >= 0) & ours[domain])
    return mask
