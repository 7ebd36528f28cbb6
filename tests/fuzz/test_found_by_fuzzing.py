"""What fuzzing found, each with the smallest input that shows it."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import profkit
from profkit.analysis.intervals import merge_by_group
from profkit.testing import build_trace, kernel, launch, span

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts import fuzz_properties, fuzz_sources  # noqa: E402


@pytest.mark.parametrize("ts", ["Infinity", "null", '"x"', "1e300", "[]"])
def test_an_event_without_a_time_is_left_out_and_counted(tmp_path: Path, ts: str) -> None:
    """Found by fuzzing: its time was taken as 2^62 ns before the others'."""
    path = fuzz_sources.write_kineto(tmp_path / "trace.json")
    text = path.read_text()
    assert text.count('"ts": 1000009,') == 1
    path.write_text(text.replace('"ts": 1000009,', f'"ts": {ts},'))
    document = json.loads(fuzz_properties.command("check", path, "--json").out)
    assert document["summary"]["counts"]["kernels"] == 11
    assert "1 of category kernel without a time" in " ".join(document["trace"]["warnings"])
    assert document["trace"]["span_ns"] == 1_180_500


def test_one_group_of_any_width_is_merged() -> None:
    """Groups are lifted to stretches of their own, and halved where those do not fit: one group has no half."""
    start, end = np.asarray([-(1 << 62), 5]), np.asarray([7, (1 << 62) + 9])
    merged, owner = merge_by_group(start, end, np.asarray([3, 3]))
    assert (merged.start.tolist(), merged.end.tolist(), owner.tolist()) == ([-(1 << 62)], [(1 << 62) + 9], [3])


def test_half_a_surrogate_pair_as_a_thread(tmp_path: Path) -> None:
    path = fuzz_sources.write_kineto(tmp_path / "trace.json")
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op":
            event["tid"] = "\ud800"
    path.write_text(json.dumps(document))
    assert profkit.open(path).text("tracks", "label").count("?") == 1


def test_a_share_is_never_over_one() -> None:
    """One step of three waits for 30 others: shared out, that is more than the median step has."""
    rows = []
    for start, dur in ((0, 100_000), (100_000, 3_000_000), (3_100_000, 100_000), (3_200_000, 100_000)):
        rows.append(span("decode", start, dur))
        for at in range(start, start + dur, 50_000):
            rows += launch("gemm", at=at + 1_000, start=at + 8_000, dur=2_000)
    shares = {f.code: f.share for f in profkit.check(build_trace(*rows, kernel(3_301_000, 1_000))).findings}
    assert 0 < shares["PK201"] <= 1


def test_calls_without_a_name(tmp_path: Path) -> None:
    path = fuzz_sources.write_nsys(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = 'x'")
        db.commit()
    document = json.loads(fuzz_properties.command("check", path, "--json").out)
    assert document["summary"]["calls"] == []
    assert "CUPTI_ACTIVITY_KIND_RUNTIME.nameId: 37 values of another type" in " ".join(document["trace"]["warnings"])
