"""The table of names: each distinct text once, with the short form and the family of kernels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit import text
from profkit.model import Ints
from profkit.schema import TABLES


class Names:
    """Distinct texts and their rows; ``short`` and ``mangled`` may be given by the source."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._short: dict[int, str] = {}
        self._mangled: dict[int, str] = {}
        self._kernels: set[int] = set()

    def row(self, name: str) -> int:
        return self._rows.setdefault(name, len(self._rows))

    def rows(self, names: Iterable[str]) -> Ints:
        rows = self._rows
        return np.fromiter([rows.setdefault(name, len(rows)) for name in names], np.int64)

    def texts(self) -> list[str]:
        """Texts by row, so far."""
        return list(self._rows)

    def kernel(self, name: str, short: str = "", mangled: str = "") -> int:
        """A kernel's name: the source's short form is kept, else one is made."""
        row = self.row(name)
        self._kernels.add(row)
        if short:
            self._short.setdefault(row, short)
        if mangled:
            self._mangled.setdefault(row, mangled)
        return row

    def table(self) -> pa.Table:
        try:
            texts = pa.array(self._rows, pa.string(), size=len(self._rows))
        except UnicodeEncodeError:  # half a surrogate pair is no text that Arrow can hold
            texts = pa.array([name.encode("utf-8", "replace").decode() for name in self._rows], pa.string())
        base = pc.replace_substring_regex(texts, text.CALL_SUFFIX, "")
        kernels = sorted(self._kernels)
        full = texts.take(pa.array(kernels, pa.int64())).to_pylist()
        short = [self._short.get(row) or text.short_kernel(name) for row, name in zip(kernels, full, strict=True)]
        nothing = pa.repeat("", len(texts))
        columns = [
            texts,
            base,
            _with_texts(base, kernels, short),
            _with_texts(nothing, sorted(self._mangled), [self._mangled[row] for row in sorted(self._mangled)]),
            _with_texts(nothing, kernels, [text.kernel_family(name) for name in full]),
        ]
        return pa.Table.from_arrays(columns, schema=TABLES["names"].schema)


def _with_texts(column: pa.Array, rows: list[int], words: list[str]) -> pa.Array:
    """The column with ``words`` at ``rows``, which are in order."""
    mask = np.zeros(len(column), bool)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(words, pa.string()))
