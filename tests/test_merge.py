"""Joining traces: rows get new numbers, references follow, and what one trace lacks is said of its processes only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from profkit.errors import InputError
from profkit.merge import Part, merge_traces
from profkit.model import Trace
from profkit.testing import build_trace, kernel, launch, span


def _with_uuid(trace: Trace, uuid: str) -> Trace:
    table = trace.tables["devices"]
    place = table.column_names.index("uuid")
    devices = table.set_column(place, table.schema.field("uuid"), pa.array([uuid] * table.num_rows))
    return replace(trace, tables={**trace.tables, "devices": devices})


def _parts(*traces: Trace) -> list[Part]:
    return [Part(Path(f"{place}.json"), trace) for place, trace in enumerate(traces)]


def test_names_are_shared_and_everything_else_is_each_its_own() -> None:
    first = build_trace(launch("gemm", at=0, start=10, dur=5))
    second = build_trace(launch("norm", at=2, start=7, dur=5), launch("gemm", at=20, start=30, dur=5))
    trace = merge_traces(_parts(first, second), "built", "both")
    kernels = [trace.name(row) for row in trace.array("kernels", "name").tolist()]
    assert kernels == ["norm", "gemm", "gemm"]
    assert trace.array("kernels", "start_ns").tolist() == [7, 10, 30]
    assert trace.array("kernels", "process").tolist() == [1, 0, 1]
    assert len(set(trace.names)) == len(trace.names) == 3
    assert [trace.rows(table) for table in ("hosts", "processes", "devices", "tracks")] == [2, 2, 2, 4]
    assert trace.array("kernels", "id").tolist() == [0, 1, 2]


def test_parents_are_those_of_their_own_trace() -> None:
    def one(shift: int) -> Trace:
        return build_trace(span("outer", shift, 100), span("inner", shift + 10, 20))

    trace = merge_traces(_parts(one(0), one(5)), "built", "both")
    assert [trace.name(row) for row in trace.array("spans", "name").tolist()] == ["outer", "outer", "inner", "inner"]
    assert trace.array("spans", "parent").tolist() == [-1, -1, 0, 1]


def test_a_gpu_with_a_uuid_is_one_device() -> None:
    first, second = (_with_uuid(build_trace(kernel(at, 5)), "GPU-1") for at in (0, 20))
    trace = merge_traces(_parts(first, second), "built", "both")
    assert trace.rows("devices") == 1
    assert trace.array("tracks", "device").tolist() == [0, 0]


def test_what_one_trace_lacks_is_said_of_its_processes() -> None:
    first = build_trace(launch("gemm", at=0, start=10, dur=5), missing={"spans": "not traced"})
    second = build_trace(kernel(0, 5), span("a", 0, 5), missing={"calls": "not traced"})
    trace = merge_traces(_parts(first, second), "built", "both")
    assert trace.missing == {"spans": {0: "not traced"}, "calls": {1: "not traced"}}
    both = merge_traces(_parts(first, first), "built", "both")
    assert both.missing == {"spans": {-1: "not traced"}}


def test_sentences_are_said_once_with_their_files() -> None:
    traces = [build_trace(kernel(0, 5), warnings=texts) for texts in (("a",), ("a", "b"), ("a", "b"))]
    warnings = merge_traces(_parts(*traces), "built", "all").meta.warnings
    assert warnings[:2] == ("a (in all 3 files)", "b (in 2 files: 1.json, 2.json)")
    assert warnings[2].startswith("clocks of the ranks are not aligned")
    assert merge_traces(_parts(traces[0]), "built", "one").meta.warnings == ("0.json: a",)


def test_absolute_times_go_on_one_axis() -> None:
    first, second = build_trace(kernel(0, 5)), build_trace(kernel(0, 5))
    first = replace(first, meta=replace(first.meta, utc_ns=1_000, clock="realtime"))
    second = replace(second, meta=replace(second.meta, utc_ns=400, clock="realtime"))
    trace = merge_traces(_parts(first, second), "built", "both")
    assert trace.array("kernels", "start_ns").tolist() == [0, 600]
    assert (trace.meta.utc_ns, trace.meta.clock) == (400, "realtime")
    assert [(w.start_ns, w.end_ns) for w in trace.windows] == [(0, 5), (600, 605)]


def test_times_that_no_axis_holds() -> None:
    """Damage: absolute times that differ by more than 73 years are not used, captures of one process are refused."""
    first, second = build_trace(kernel(0, 5)), build_trace(kernel(0, 5))
    first = replace(first, meta=replace(first.meta, utc_ns=0))
    second = replace(second, meta=replace(second.meta, utc_ns=(1 << 63) - 1))
    trace = merge_traces(_parts(first, second), "built", "both")
    assert trace.array("kernels", "start_ns").tolist() == [0, 0]
    assert trace.meta.utc_ns == -1
    assert "each trace begins at 0" in trace.meta.warnings[-1]
    one, other = _parts(first, replace(second, meta=replace(second.meta, utc_ns=-1, origin_ns=1 << 62)))
    with pytest.raises(InputError, match="both: the times of captures of one process lie too far apart"):
        merge_traces([one, replace(other, same_as=0)], "built", "both")


def test_nothing_to_join() -> None:
    with pytest.raises(InputError, match="no trace to join"):
        merge_traces([], "built", "none")
    with pytest.raises(InputError, match="not read yet"):
        merge_traces([Part(Path("a"), build_trace(kernel(0, 5)), same_as=0)], "built", "one")
