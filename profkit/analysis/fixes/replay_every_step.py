"""Steps that launch kernel by kernel among steps that replay a graph (a batch size without one): these replay too."""

from __future__ import annotations

import numpy as np

from profkit.analysis.calls import GRAPH_LAUNCH
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import Fix, Found
from profkit.analysis.fixes._find import step_of_calls
from profkit.analysis.fixes.cuda_graphs import Runs, find_runs, of_runs
from profkit.analysis.fixes.reuse_graphs import captured
from profkit.analysis.replay.model import Model

FEWEST_OF_A_STEP = 16
"""Shorter runs of launches stand beside a graph (sampling), not in its place."""
MOST_STEPS = 0.5
"""Part of the steps that must replay a graph for the others to be misses."""


def find(analysis: Analysis, model: Model, argument: str) -> Found | None:
    step = step_of_calls(analysis, model)
    steps = np.unique(step[step >= 0])
    replays = np.unique(step[(step >= 0) & (model.calls.kind == GRAPH_LAUNCH)])
    if not len(steps) or len(replays) < MOST_STEPS * len(steps):
        return None
    # What is launched while a graph is captured is no replay that was missed.
    runs = find_runs(analysis, model, ~captured(analysis, model))
    # Steps are found by graph launches where nothing else marks them: then a miss is part of the step before it.
    long = runs.size >= FEWEST_OF_A_STEP
    if not long.any():
        return None
    run = np.searchsorted(runs.first, runs.later, side="right") - 1
    return of_runs(analysis, model, Runs(runs.first[long], runs.later[long[run]], runs.size[long]))


FIX = Fix("replay-every-step", "PK204", "Replay a graph in every step", find)
