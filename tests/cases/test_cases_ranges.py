"""Cases C: NVTX ranges that are open, nameless, or of several domains."""

from __future__ import annotations

import json
import resource
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from profkit.ingest import open_trace
from profkit.schema import FLAG_OPEN_END

US, MS = 1_000, 1_000_000
TID = 100 * 0x1000000 + 100


def ranges(seen: Any) -> dict[tuple[str | None, str], tuple[int, int, int]]:
    """(count, unclosed, total_ns) by (domain, name)."""
    return {(r["domain"], r["name"]): (r["count"], r["unclosed"], r["total_ns"]) for r in seen.summary["ranges"]}


def test_C04_pushed_but_never_popped(nsys: Any, check: Any, page: Any) -> None:
    for start in (0, 10 * US, 20 * US):
        nsys.nvtx(start, None, text="work")
    nsys.nvtx(30 * US, 40 * US, text="work")
    nsys.nvtx(50 * US, 65 * US, text="work")
    nsys.kernel(0, 100 * US)
    nsys.kernel(200 * US, 300 * US)
    path = nsys.write()

    seen = check(path)

    assert seen.summary["counts"]["spans"] == 5
    assert seen.summary["counts"]["unclosed_spans"] == 3
    assert ranges(seen) == {(None, "work"): (2, 3, 25 * US)}
    assert "3 unclosed ranges" in seen.text.splitlines()
    trace = open_trace(path)
    still_open = (trace.array("spans", "flags") & FLAG_OPEN_END) != 0
    assert still_open.tolist() == [True, True, True, False, False]
    ends = trace.array("spans", "start_ns") + trace.array("spans", "dur_ns")
    assert ends.tolist() == [300 * US, 300 * US, 300 * US, 40 * US, 65 * US]
    assert trace.array("spans", "depth").tolist() == [0, 1, 2, 3, 3]
    words = page(path)
    assert "work (open)" in words
    for length, at in (("300", "0.000000000"), ("290", "0.000010000"), ("280", "0.000020000")):
        assert f"range, never closed: {length} µs at {at} s" in words
    assert "never closed: 10.0 µs" not in words
    (unclosed,) = seen.findings("PK508")
    assert "3 of 5 ranges (60.0 %) were never closed" in unclosed["message"]


def test_C04_open_stages_are_left_out_of_durations(nsys: Any, check: Any) -> None:
    for start in (0, 10 * US, 20 * US):
        nsys.nvtx(start, None, text="decode")
    nsys.nvtx(30 * US, 40 * US, text="decode")
    nsys.nvtx(50 * US, 65 * US, text="decode")
    nsys.kernel(0, 300 * US)

    seen = check(nsys.write())

    (decode,) = seen.summary["stages"]
    assert (decode["stage"], decode["count"], decode["unclosed"]) == ("decode", 2, 3)
    assert (decode["host_p50_ns"], decode["host_p90_ns"], decode["host_p99_ns"]) == (10 * US, 15 * US, 15 * US)


def test_C05_registered_strings_and_a_missing_one(nsys: Any, check: Any) -> None:
    nsys.strings["forward"] = 12
    nsys.nvtx(0, 30 * US, textId=12)
    nsys.nvtx(40 * US, 60 * US, textId=999)
    nsys.nvtx(70 * US, 80 * US, text="direct")

    seen = check(nsys.write())

    assert ranges(seen) == {
        (None, "forward"): (1, 0, 30 * US),
        (None, "<unknown #999>"): (1, 0, 20 * US),
        (None, "direct"): (1, 0, 10 * US),
    }
    for name in ("forward", "<unknown #999>", "direct"):
        assert seen.line(f"{name}  ").split()[-4:-2] == ["1", "0"]
    assert "None" not in seen.text


def two_domains(nsys: Any) -> None:
    nsys.nvtx(0, None, eventType=75, text="libcudf", domainId=1)
    nsys.nvtx(0, None, eventType=75, text="app", domainId=2)
    nsys.nvtx(0, 1 * MS, text="read", domainId=1)
    nsys.nvtx(2 * MS, 4 * MS, text="read", domainId=2)
    nsys.nvtx(5 * MS, 8 * MS, text="read", domainId=7)


def test_C07_two_domains_use_the_same_range_name(nsys: Any, check: Any) -> None:
    two_domains(nsys)

    seen = check(nsys.write())

    assert ranges(seen) == {
        ("libcudf", "read"): (1, 0, 1 * MS),
        ("app", "read"): (1, 0, 2 * MS),
        ("domain 7", "read"): (1, 0, 3 * MS),
    }
    assert seen.summary["counts"]["spans"] == 3
    for name, words in (("libcudf/read", "1.00 ms"), ("app/read", "2.00 ms"), ("domain 7/read", "3.00 ms")):
        assert seen.line(f"{name} ").endswith(words)


def test_C07_a_domain_filter_exists(nsys: Any, check: Any) -> None:
    two_domains(nsys)

    seen = check(nsys.write(), "--domain", "app")

    assert ranges(seen) == {("app", "read"): (1, 0, 2 * MS)}
    assert "app/read" in seen.text
    assert "libcudf/read" not in seen.text


def launched(nsys: Any, at: int, correlation: int, thread: int) -> None:
    """A launch on a thread of process 100, and its kernel right after."""
    nsys.call(at, at + 5 * US, "cudaLaunchKernel_v7000", correlation=correlation)
    nsys.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]["globalTid"] = 100 * 0x1000000 + thread
    nsys.kernel(at + 6 * US, at + 50 * US, correlation=correlation)


def test_C02_backward_pass_runs_on_another_thread(nsys: Any, check: Any) -> None:
    nsys.nvtx(0, 10 * MS, text="backward", globalTid=TID + 1)
    for i in range(8):
        launched(nsys, (i + 1) * MS, i + 1, thread=102)
    launched(nsys, 20 * MS, 9, thread=102)

    seen = check(nsys.write())

    (backward,) = seen.summary["ranges"]
    assert (backward["kernels"], backward["kernels_of_other_threads"], backward["other_threads"]) == (0, 8, [102])
    assert seen.line("backward: ") == (
        "backward: 0 kernels launched by its own thread; 8 kernels launched during it by thread 102"
    )
    assert "no GPU work" not in seen.text


def test_C02_a_range_owns_what_its_own_thread_launches(nsys: Any, check: Any) -> None:
    """Nested ranges of one name count a kernel for each, as a launch that reaches out of a range for none."""
    nsys.nvtx(0, 10 * MS, text="forward", globalTid=TID + 2)
    nsys.nvtx(1 * MS, 4 * MS, text="layer", globalTid=TID + 2)
    nsys.nvtx(20 * MS, 20 * MS + 2 * US, text="cut", globalTid=TID + 2)
    for i, at in enumerate((2 * MS, 3 * MS, 5 * MS, 20 * MS)):
        launched(nsys, at, i + 1, thread=102)

    seen = check(nsys.write())

    assert {r["name"]: r["kernels"] for r in seen.summary["ranges"]} == {"forward": 3, "layer": 2, "cut": 0}
    assert {r["kernels_of_other_threads"] for r in seen.summary["ranges"]} == {0}
    assert "own thread" not in seen.text


@pytest.mark.parametrize("binary", [bytes(range(16)), None], ids=["blob", "null"])
def test_C08_binary_payloads_break_nothing(nsys: Any, check: Any, page: Any, binary: bytes | None) -> None:
    nsys.nvtx(0, 10 * US, text="ncclAllReduce")
    launched(nsys, 20 * US, 1, thread=100)
    path = nsys.write()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData TEXT")
        db.execute("UPDATE NVTX_EVENTS SET binaryData = ?", (binary,))
        db.commit()

    seen = check(path)

    assert ranges(seen) == {(None, "ncclAllReduce"): (1, 0, 10 * US)}
    assert seen.document["trace"]["warnings"] == []
    assert open_trace(path).frame("collectives")["operation"].tolist() == ["all_reduce"]
    assert "ncclAllReduce" in page(path)


def test_C10_a_million_nested_ranges(nsys: Any, run: Any) -> None:
    """1,000,000 push/pop ranges of depth 20 and 100,000 kernels, all of one thread."""
    depth, blocks, each = 20, 50_000, 100 * US
    names = {nsys.string(f"level {level}"): level for level in range(depth)}
    for number in range(1, 2 * blocks + 1):
        at = (number - 1) // 2 * each + (30 + 10 * ((number - 1) % 2)) * US
        nsys.call(at, at + 2 * US, "cudaLaunchKernel_v7000", correlation=number)
        nsys.kernel(at + 5 * US, at + 9 * US, correlation=number)
    path = nsys.write()
    rows = (
        (block * each + level * US, (block + 1) * each - 1 - level * US, 59, text, TID, 0)
        for block in range(blocks)
        for text, level in names.items()
    )
    columns = "start, end, eventType, textId, globalTid, domainId"
    with closing(sqlite3.connect(path)) as db:
        db.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        db.commit()

    began = time.monotonic()
    printed = run("check", path, "--json")
    took = time.monotonic() - began

    assert printed.code == 0
    assert took < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # kB
    summary = json.loads(printed.out)["summary"]
    assert summary["counts"]["spans"] == depth * blocks
    assert summary["counts"]["kernels"] == 2 * blocks
    found = {r["name"]: (r["count"], r["total_ns"], r["kernels"]) for r in summary["ranges"]}
    assert found == {f"level {n}": (blocks, blocks * (each - 1 - 2 * n * US), 2 * blocks) for n in range(depth)}
