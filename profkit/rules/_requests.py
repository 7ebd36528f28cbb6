"""Which prefill step served which request, and how many requests wait or run at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profkit.analysis.context import Analysis
from profkit.analysis.request_facts import cancelled
from profkit.analysis.requests import Requests
from profkit.analysis.steps import MIXED, PREFILL
from profkit.arrays import distinct
from profkit.model import Ints, Mask, Trace

_MARK = r"^(profkit::)?request#\d+ first_token$"


def needs_requests(analysis: Analysis) -> str:
    """Why there are no requests to judge, "" if there are some that gave a token."""
    if not len(analysis.requests):
        return "no requests in this trace: put profkit.request(id) around each"
    return "" if answered(analysis.requests).any() else "no request of this trace was seen to its first token"


def needs_prefills(analysis: Analysis) -> str:
    """Why no request's prefill is known, "" if some are."""
    return "" if (prefill_of(analysis) >= 0).any() else "the prefill of none of the requests was recorded"


def answered(requests: Requests) -> Mask:
    """Requests that gave a first token."""
    mask: Mask = (requests.first_token >= requests.arrival) & (requests.ttft >= 0) & ~cancelled(requests)
    return mask


def prefill_of(analysis: Analysis) -> Ints:
    """Step that prefilled each request, -1 where it is not known.

    Where a process has a prefill for each request, in the order of their first tokens; else the last prefill that
    began before the first token. A prefill of fewer tokens than the prompt has is a part of one, and tells nothing.
    """
    requests, steps = analysis.requests, analysis.steps
    out = np.full(len(requests), -1, np.int64)
    told = answered(requests)
    prefills = np.flatnonzero(((steps.kind == PREFILL) | (steps.kind == MIXED)) & (steps.host_start >= 0))
    for process in distinct(requests.process[told]).tolist():
        mine = np.flatnonzero(told & (requests.process == process))
        theirs = prefills[steps.process[prefills] == process]
        if len(theirs):
            out[mine] = _of_process(requests, mine, steps.host_start[theirs], theirs)
    known = out >= 0
    step = np.maximum(out, 0)
    if known.any():
        tokens = steps.prefill_tokens[step]
        known &= ~((tokens >= 0) & (requests.prompt_tokens >= 0) & (tokens < requests.prompt_tokens))
    return np.where(known, out, -1)


def _of_process(requests: Requests, mine: Ints, start: Ints, steps: Ints) -> Ints:
    arrival, first = requests.arrival[mine], requests.first_token[mine]
    if len(mine) == len(steps):
        turn = np.empty(len(mine), np.int64)
        turn[np.lexsort((arrival, first))] = np.arange(len(mine))
        if ((start[turn] >= arrival) & (start[turn] < first)).all():
            return steps[turn]
    at = np.searchsorted(start, first, side="left") - 1
    found = np.maximum(at, 0)
    return np.where((at >= 0) & (start[found] >= arrival), steps[found], -1)


def first_token_marks(trace: Trace) -> Ints:
    """Times at which the engine itself said that a request got its first token, ns."""
    said = pc.match_substring_regex(trace.tables["names"].column("text"), _MARK)
    marked: Mask = pa.chunked_array(said).combine_chunks().to_numpy(zero_copy_only=False)
    name = trace.array("spans", "name")
    if not marked.any():
        return np.zeros(0, np.int64)
    times: Ints = trace.array("spans", "start_ns")[(name >= 0) & marked[np.maximum(name, 0)]]
    return times


def open_at(begin: Ints, end: Ints, time: Ints) -> Ints:
    """How many of [begin, end) hold each time."""
    return np.searchsorted(np.sort(begin), time, side="right") - np.searchsorted(np.sort(end), time, side="right")


def tokenized_at(analysis: Analysis, prefill: Ints) -> Ints:
    """When each request was tokenized, ns: the end of its tokenize range, else its arrival.

    Where a process has a tokenize range for each request, they are tokenized in order of arrival; each must lie
    between its request's arrival and prefill.
    """
    requests, trace = analysis.requests, analysis.trace
    out = requests.arrival.copy()
    rows = trace.stage_rows("tokenize")
    start = trace.array("spans", "start_ns")[rows]
    end = start + trace.array("spans", "dur_ns")[rows]
    owner = trace.process_of(trace.array("spans", "track")[rows])
    for process in distinct(requests.process).tolist():
        mine = np.flatnonzero(requests.process == process)
        theirs = np.flatnonzero(owner == process)
        if len(mine) != len(theirs) or not len(mine):
            continue
        known = prefill[mine] >= 0
        until = analysis.steps.host_end[np.maximum(prefill[mine], 0)] if known.any() else end[theirs]
        order = np.lexsort((until, requests.arrival[mine]))
        mine, known, until = mine[order], known[order], until[order]
        fits = (start[theirs] >= requests.arrival[mine]) & ((end[theirs] <= until) | ~known)
        if fits.all():
            out[mine] = end[theirs]
    return out
