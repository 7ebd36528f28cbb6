"""Fixes after which some calls are not made any more: their cost and their saving are the same."""

from __future__ import annotations

from functools import partial

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Found
from profkit.analysis.fixes._find import named, steady_calls
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model


def calls_gone(
    analysis: Analysis, model: Model, *parts: str, assumed: str, without: tuple[str, ...] = ()
) -> Found | None:
    """The calls after warm-up whose name holds one of ``parts``: they take no time and wait for nothing."""
    calls = steady_calls(analysis, model, named(analysis, model, *parts, without=without))
    if not len(calls):
        return None
    gone = partial(edits.gone, calls=calls)
    return Found(count=len(calls), free=gone, fixed=gone, assumed=(assumed,), calls=calls)
