"""Requests come from outside, at their own times: an engine that is faster waits for the next one the longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.model import ARRIVAL, ORIGIN_NS, Calls, Edges
from profkit.model import Ints, Mask
from profkit.schema import SPAN_KINDS, STAGES

_START_END = SPAN_KINDS.index("start_end")
_PREFILL, _TOKENIZE = STAGES.index("prefill"), STAGES.index("tokenize")
LONG_NS = 20_000
"""Host work before a prefill that is longer, and longer than ten usual ones, was waiting for the request."""

ANSWERED_NS = 200_000
"""A request that comes within this behind the end of another one may come because of it."""


def find_arrivals(analysis: Analysis, calls: Calls, origin: int) -> tuple[Calls, Edges]:
    """(calls, the constraint that the n-th prefill begins no sooner than the n-th request was there).

    Requests are served in the order of their arrival; where a thread of its own tokenizes them, a request is there when
    its tokens are. Nothing where requests and prefills do not match one to one, or one began before its request came.
    """
    none = Edges.join([])
    requests, ranges = analysis.requests, analysis.ranges
    prefill = np.flatnonzero(ranges.stage == _PREFILL)
    if not len(requests) or len(prefill) != len(requests) or len(np.unique(ranges.track[prefill])) != 1:
        return calls, none
    track = int(ranges.track[prefill[0]])
    ready = requests.arrival.copy()
    tokenize = np.flatnonzero((ranges.stage == _TOKENIZE) & (ranges.track != track))
    if len(tokenize) == len(requests):
        ready = np.maximum(ready, ranges.end[tokenize])
    mine = np.flatnonzero(calls.track == track)
    place = np.searchsorted(calls.start[mine], ranges.start[prefill])
    if (place >= len(mine)).any():
        return calls, none
    first = mine[place]
    if (ready > calls.start[first]).any():
        return calls, none
    outside = from_outside(analysis)
    first, ready = first[outside], ready[outside]
    if not len(first):
        return calls, none
    waited = _waited(calls, first, ready)
    late = first[waited]
    gap = calls.gap.copy()
    gap[late] = calls.start[late] - ready[waited]
    # What the engine does between an arrival that it waited for and the call stays; so does the first call of a thread.
    since = np.where(waited | calls.fixed[first], calls.start[first], ready) - ORIGIN_NS
    return replace(calls, gap=gap), Edges(
        src=np.full(len(first), origin, np.int64),
        dst=2 * first,
        weight=since,
        kind=np.full(len(first), ARRIVAL, np.int8),
        bound=np.zeros(len(first), bool),
        usual=since,
    )


def from_outside(analysis: Analysis) -> Mask:
    """Requests that came at a time of their own.

    Not those that the engine's thread opens as it comes to them, nor those that follow the end of another one, as a
    client sends them that waits for its answer.
    """
    requests, trace, ranges = analysis.requests, analysis.trace, analysis.ranges
    opened = trace.array("spans", "kind")[requests.span] != _START_END
    opened &= np.isin(trace.array("spans", "track")[requests.span], ranges.track[ranges.stage == _PREFILL])
    ends = np.sort(requests.end[requests.end >= 0])
    place = np.searchsorted(ends, requests.arrival, side="right") - 1
    answers = place >= 0
    answers[answers] = (requests.arrival[answers] - ends[place[answers]]) <= ANSWERED_NS
    mask: Mask = ~opened & ~answers
    return mask


def _waited(calls: Calls, first: Ints, ready: Ints) -> Mask:
    """Which of these calls stand behind host work that was waiting for their request."""
    usual = int(np.median(calls.gap[first]))
    mask: Mask = calls.gap[first] > max(LONG_NS, 10 * usual)
    return mask & (ready > calls.start[first] - calls.gap[first])
