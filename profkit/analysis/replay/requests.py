"""Requests in a replay: a token exists when the GPU work of its step has ended, whenever its range on the host did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.arrivals import from_outside
from profkit.analysis.replay.model import ARRIVAL, Model, Times
from profkit.analysis.replay.retime import Threads
from profkit.analysis.requests import Requests, tpot_of
from profkit.arrays import pack
from profkit.model import Array, Ints


def moved_requests(analysis: Analysis, model: Model, times: Times) -> Requests:
    """The recorded requests at the times of a replay.

    First token and end come as long after the GPU work of the last step before them as they were recorded: once a host
    runs ahead of the device, its own ranges say nothing of tokens any more. Requests that the engine waits for come at
    their own times (see arrivals.py). Others move with their thread, but not before the GPU work that they were seen to
    come after, or in the middle of: who asks does not know of the host.
    """
    requests = analysis.requests
    ends = _Steps(analysis, model, times, requests.process)
    lane = analysis.trace.array("spans", "track")[requests.span]
    moved = np.maximum(Threads(model, times)(lane, requests.arrival), ends.reached(requests.arrival))
    stays = from_outside(analysis) & (model.edges.kind == ARRIVAL).any()
    arrival = np.where(stays, requests.arrival, moved)
    first = ends.as_long_after(requests.first_token)
    end = ends.as_long_after(requests.end)
    ttft = np.where(first >= 0, first - arrival, -1)
    return replace(
        requests,
        arrival=arrival,
        first_token=first,
        end=end,
        ttft=ttft,
        tpot=tpot_of(first, end, requests.output_tokens, requests.complete),
    )


class _Steps:
    """GPU work of the steps of some processes, one for each instant that is asked for: as recorded, and in a replay."""

    def __init__(self, analysis: Analysis, model: Model, times: Times, process: Array) -> None:
        steps = analysis.steps
        self.process = process
        self.rows = np.flatnonzero(steps.gpu_end >= 0)
        self.of, self.start, self.end = steps.process, steps.gpu_start, steps.gpu_end
        self.new_start = np.full(len(steps) + 1, np.iinfo(np.int64).max)
        self.new_end = np.full(len(steps) + 1, -1, np.int64)
        if len(steps):
            of_work = steps.of_work[model.row]
            np.minimum.at(self.new_start, of_work, times.start)
            np.maximum.at(self.new_end, of_work, times.end)

    def as_long_after(self, time: Ints) -> Ints:
        """These instants, as long after the end of the latest step before them as recorded; -1 stays."""
        step = self._latest(self.end, time)
        if not len(self.rows):
            return time
        return np.where(step >= 0, time - self.end[step] + self.new_end[step], time)

    def reached(self, time: Ints) -> Ints:
        """When the device has come as far as it had at these instants: through a step, else to the end of one; -1."""
        ended, begun = self._latest(self.end, time), self._latest(self.start, time)
        if not len(self.rows):
            return ended
        inside = (begun >= 0) & (time < self.end[begun])
        length = np.maximum(self.end[begun] - self.start[begun], 1)
        # Shares, not products: those of two lengths of some seconds exceed 64 bits.
        share = np.where(inside, (time - self.start[begun]) / length, 0.0)
        part = np.rint(share * (self.new_end[begun] - self.new_start[begun])).astype(np.int64)
        out = np.where(ended >= 0, self.new_end[ended], -1)
        return np.where(inside, np.maximum(out, self.new_start[begun] + part), out)

    def _latest(self, edge: Ints, time: Ints) -> Ints:
        """The step of each process with the latest ``edge`` up to each instant, -1 for none."""
        if not len(self.rows) or not len(time):
            return np.full(len(time), -1, np.int64)
        key, wanted = pack([[self.of[self.rows], self.process], [edge[self.rows], time]])
        order = np.argsort(key, kind="stable")
        place = np.searchsorted(key[order], wanted, side="right") - 1
        found = self.rows[order[np.maximum(place, 0)]]
        return np.where((place >= 0) & (self.of[found] == self.process) & (time >= 0), found, -1)
