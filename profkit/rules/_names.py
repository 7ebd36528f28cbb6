"""Names that calls and ranges of a trace have, by pattern: distinct names are looked at, never rows."""

from __future__ import annotations

import re

import numpy as np

from profkit.analysis.context import Analysis
from profkit.arrays import distinct
from profkit.model import Ints


def used_names(analysis: Analysis, table: str, pattern: re.Pattern[str], column: str = "base") -> Ints:
    """Rows of ``names`` that rows of ``calls`` or ``spans`` carry and that the pattern is found in."""
    used = distinct(analysis.trace.array(table, "name"))
    if not len(used):
        return used
    texts = analysis.trace.tables["names"].column(column).take(used).to_pylist()
    fits: Ints = used[np.fromiter((bool(pattern.search(text)) for text in texts), bool, len(used))]
    return fits
