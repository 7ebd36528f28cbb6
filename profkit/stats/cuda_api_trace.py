"""Every CUDA call in order of its start."""

from __future__ import annotations

import re

import pyarrow as pa

from profkit.model import Trace
from profkit.schema import NOT_WHOLE
from profkit.stats import Arguments, Column, Listing, Report
from profkit.stats._kernels import threads
from profkit.stats._summary import by_label, known, words
from profkit.stats.cuda_api_sum import listed_name

_NAMED_LANE = re.compile(r"(?s)(.*) \(-?\d+\)")
"""Label of a lane whose thread has a name: the name, the thread id in brackets."""


def build(trace: Trace, arguments: Arguments) -> Listing:
    tracks = trace.array("calls", "track")
    pid, tid = threads(trace, tracks)
    open_ended = (trace.array("calls", "flags") & NOT_WHOLE) != 0
    names, labels = by_label(trace, trace.array("calls", "name"), listed_name)
    columns = [
        (Column("Start (ns)", "start_ns"), pa.array(trace.array("calls", "start_ns"))),
        (Column("Duration (ns)", "duration_ns"), known(trace.array("calls", "dur_ns"), open_ended)),
        (Column("Name", "name"), words(names, labels)),
        (Column("Result", "result"), known(trace.array("calls", "return_code"))),
        (Column("CorrID", "corr_id"), known(trace.array("calls", "correlation"))),
        (Column("Pid", "pid"), known(pid)),
        (Column("Tid", "tid"), known(tid)),
        # A trace holds no scheduling priority of threads.
        (Column("T-Pri", "thread_priority"), pa.nulls(len(tracks), pa.int64())),
        (Column("Thread Name", "thread_name"), words(tracks, _thread_names(trace))),
    ]
    return Listing(tuple(column for column, _ in columns), tuple(values for _, values in columns))


def _thread_names(trace: Trace) -> list[str]:
    """Name of each lane's thread, "" where it has none."""
    named = (_NAMED_LANE.fullmatch(label) for label in trace.text("tracks", "label"))
    return [match[1] if match else "" for match in named]


REPORT = Report(
    name="cuda_api_trace",
    former_name="cudaapitrace",
    title="CUDA API Trace",
    what="CUDA calls",
    tables=("calls",),
    build=build,
)
