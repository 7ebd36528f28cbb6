"""Attention step by step: GEMM, softmax, GEMM, with the scores written to memory and read back in between.

Found on each stream by names and order alone: what stands between two GEMMs is a softmax (one kernel, or a maximum, an
exponential, a sum and a division), and beside it at most scaling, masking, dropout and copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profkit.analysis.work import KERNELS, Work
from profkit.arrays import distinct
from profkit.model import Array, Ints, Trace
from profkit.text import kernel_family

MOST_BETWEEN = 10
"""Kernels between the two GEMMs: eager PyTorch takes up to eight."""
MOST_BEHIND = 4
"""Kernels from the softmax to the second GEMM: a division, a dropout, a cast, a copy. From the softmax of sampling to
the first GEMM of the next step there are an index, an embedding and a norm."""
_LONGEST = 2_000
"""Characters of a name that are looked at."""
_PLAIN, _GEMM, _SOFTMAX, _EXP, _MAX, _OTHER = range(6)
_FUSED = re.compile(r"flash|fmha|attention|attn|paged|\bmha|_mha|mha_|mla_|_mla|splitkv|sdpa", re.IGNORECASE)
_SOFTMAX_NAME = re.compile(r"soft_?max", re.IGNORECASE)
_NO_SOFTMAX = re.compile(r"log_?soft_?max|backward|_bwd|cross_?entropy|top_?k|sample|moe|rout", re.IGNORECASE)
_NO_PART = re.compile(
    r"norm|top_?k|sort|index|gather|scatter|embedding|moe|expert|conv|arg_?max|arg_?min|backward|bwd|nccl|rccl|all_?reduce|"
    r"MeanOps|rsqrt",
    re.IGNORECASE,
)
_MULTIPLIES = re.compile(r"(?:^|_)(?:b|add|badd)?mm(?:_|\d|$)")


@dataclass(frozen=True)
class Unfused:
    """Positions in a Work: ``kernels`` of all that stands between the GEMMs, ``hearts`` of one of them each time."""

    kernels: Ints
    hearts: Ints


def has_fused(trace: Trace) -> str:
    """A kernel of the trace that is fused attention by its name, "" if there is none."""
    used = distinct(trace.array("kernels", "name")).tolist()
    return next((short for row in used if _FUSED.search((short := trace.name(row, "short"))[:_LONGEST])), "")


def find_unfused(trace: Trace, work: Work) -> Unfused:
    """Every sequence of GEMM, softmax, GEMM on a stream."""
    rows = np.flatnonzero(work.table == KERNELS)
    rows = rows[np.argsort(work.track[rows], kind="stable")]
    code = _codes(trace)[trace.array("kernels", "name")[work.row[rows]]]
    track = work.track[rows]
    gemms = np.flatnonzero(code == _GEMM)
    if len(gemms) < 2:
        return Unfused(rows[:0], rows[:0])
    first, last = gemms[:-1] + 1, gemms[1:]  # between two GEMMs, the second one outside
    between = last - first
    fits = (track[gemms[:-1]] == track[gemms[1:]]) & (between >= 1) & (between <= MOST_BETWEEN)

    def count(kind: int) -> Ints:
        total = np.concatenate(([0], np.cumsum(code == kind)))
        out: Ints = total[last] - total[first]
        return out

    softmax, exp = count(_SOFTMAX), count(_EXP)
    by_parts = (softmax == 0) & (exp == 1) & (count(_MAX) >= 1)
    fits &= ((softmax == 1) & (exp == 0)) | by_parts
    fits &= count(_OTHER) == 0
    heart = np.flatnonzero((code == _SOFTMAX) | (code == _EXP))
    if not len(heart) or not fits.any():
        return Unfused(rows[:0], rows[:0])
    at = heart[np.minimum(np.searchsorted(heart, first), len(heart) - 1)]
    fits &= last - at <= MOST_BEHIND + 1
    edge = np.zeros(len(rows) + 1, np.int64)
    np.add.at(edge, first[fits], 1)
    np.add.at(edge, last[fits], -1)
    return Unfused(np.sort(rows[np.cumsum(edge)[:-1] > 0]), rows[at[fits]])


def _codes(trace: Trace) -> Array:
    """What each row of ``names`` is as a kernel; one more at the end, for no name."""
    codes = np.full(trace.rows("names") + 1, _OTHER, np.int8)
    for row in distinct(trace.array("kernels", "name")).tolist():
        codes[row] = _code(trace.name(row, "short")[:_LONGEST], trace.name(row)[:_LONGEST])
    return codes


def _code(short: str, text: str) -> int:
    if kernel_family(short) == "gemm" or _MULTIPLIES.search(short):
        return _GEMM
    if _SOFTMAX_NAME.search(short):
        return _OTHER if _NO_SOFTMAX.search(text) else _SOFTMAX
    if _NO_PART.search(text):
        return _OTHER
    if "exp_kernel_cuda" in text:
        return _EXP
    return _MAX if "MaxOps" in text or "MaxNanFunctor" in text else _PLAIN
