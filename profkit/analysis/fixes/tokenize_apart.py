"""Tokenization and detokenization on the thread that launches: on a thread or process of their own."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import in_ranges
from profkit.analysis.fixes._host_gone import host_gone
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    return host_gone(
        model,
        in_ranges(analysis, model, ("tokenize",)),
        "tokenization is done on another thread before its step needs it",
    )


FIX = Fix("tokenize-apart", "PK208", "Tokenize off the launching thread", find)
