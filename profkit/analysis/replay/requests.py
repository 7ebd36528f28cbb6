"""Requests in a replay: a token exists when the GPU work of its step has ended, whenever its range on the host did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.model import Model, Times
from profkit.analysis.replay.retime import Threads
from profkit.analysis.requests import Requests, tpot_of
from profkit.arrays import pack
from profkit.model import Array, Ints


def moved_requests(analysis: Analysis, model: Model, times: Times) -> Requests:
    """The recorded requests at the times of a replay.

    First token and end come as long after the GPU work of the last step before them as they were recorded: once a host
    runs ahead of the device, its own ranges say nothing of tokens any more. The arrival moves with its thread, but not
    before the end of the GPU work that it came after: whoever asks does not know that the host is ahead.
    """
    requests = analysis.requests
    lane = analysis.trace.array("spans", "track")[requests.span]
    arrival = Threads(model, times)(lane, requests.arrival)
    _, ended = _last_step(analysis, model, times, requests.process, requests.arrival)
    arrival = np.maximum(arrival, ended)
    first = _moved(analysis, model, times, requests.process, requests.first_token)
    end = _moved(analysis, model, times, requests.process, requests.end)
    ttft = np.where(first >= 0, first - arrival, -1)
    return replace(
        requests,
        arrival=arrival,
        first_token=first,
        end=end,
        ttft=ttft,
        tpot=tpot_of(first, end, requests.output_tokens, requests.complete),
    )


def _moved(analysis: Analysis, model: Model, times: Times, process: Array, time: Ints) -> Ints:
    """These instants, as long after the end of the GPU work of the latest step before them as recorded."""
    recorded, replayed = _last_step(analysis, model, times, process, time)
    return np.where(recorded >= 0, time - recorded + replayed, time)


def _last_step(analysis: Analysis, model: Model, times: Times, process: Array, time: Ints) -> tuple[Ints, Ints]:
    """(recorded, replayed) end of the GPU work of the latest step of the process before each instant; -1 for none."""
    steps = analysis.steps
    rows = np.flatnonzero(steps.gpu_end >= 0)
    none = np.full(len(time), -1, np.int64)
    if not len(rows) or not len(time):
        return none, none
    new_end = np.full(len(steps) + 1, -1, np.int64)
    np.maximum.at(new_end, steps.of_work[model.row], times.end)
    key, wanted = pack([[steps.process[rows], process], [steps.gpu_end[rows], time]])
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], wanted, side="right") - 1
    found = rows[order[np.maximum(place, 0)]]
    ok = (place >= 0) & (steps.process[found] == process) & (time >= 0)
    return np.where(ok, steps.gpu_end[found], -1), np.where(ok, new_end[found], -1)
