"""Synchronisations in every step after which the host reads nothing: gone."""

from __future__ import annotations

from functools import partial

from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._waits import other_syncs
from profkit.analysis.replay import edits
from profkit.analysis.replay.model import Model


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    syncs = other_syncs(analysis, model)
    if not len(syncs):
        return None
    gone = partial(edits.gone, calls=syncs)
    return Found(
        count=len(syncs),
        free=gone,
        fixed=gone,
        assumed=("nothing needs what these synchronisations wait for",),
        calls=syncs,
    )


FIX = Fix("no-step-sync", "PK303", "Do not wait for the device in each step", find)
