"""Every report of every real trace: no traceback, strict JSON, and ranges that agree with the export's own rows."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profkit import stats
from profkit.cli import main
from profkit.ingest import open_trace
from profkit.stats import _render

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
pytestmark = pytest.mark.skipif(not CORPUS, reason="PROFKIT_CORPUS names no folder of real exports")
SMALL_BYTES = 400_000
"""Traces up to this size are printed in every format; the others in JSON."""
RANGES = "cs336-a100-2.7B-nvtx.sqlite"


def traces() -> list[Path]:
    return sorted(path for folder in ("nsys", "kineto") for path in Path(CORPUS, folder).glob("*")) if CORPUS else []


def every_report() -> list[str]:
    reports = stats.all_reports()
    with_arguments = [f"{report.name}:mangled" for report in reports if "mangled" in report.arguments]
    return [*(report.name for report in reports), *with_arguments]


@pytest.mark.parametrize("path", traces(), ids=lambda path: path.name)
def test_every_report_prints_or_says_why_not(path: Path) -> None:
    trace = open_trace(path)
    answers = [stats.answer(trace, choice) for choice in stats.choose(every_report())]
    assert all(answer.reason for answer in answers if answer.listing is None)
    printed = "".join(_render.as_json(answers, "0"))
    listed = {report["report"]: report["rows"] for report in json.loads(printed, parse_constant=pytest.fail)["reports"]}
    for answer in answers:
        if answer.listing is None:
            assert answer.name not in listed
            continue
        rows = listed[answer.name]
        assert len(rows) == answer.listing.rows > 0
        if path.stat().st_size > SMALL_BYTES:
            continue
        for delimiter in ",\t":
            text = "".join(_render.as_delimited(answer.listing, delimiter))
            cells = list(csv.reader(io.StringIO(text), delimiter=delimiter))
            assert len(cells) == len(rows) + 1
            assert {len(row) for row in cells} == {len(rows[0])}
        assert len("".join(_render.as_table(answer.name, answer.listing)).splitlines()) == len(rows) + 5


def queried(sql: str) -> list[tuple[Any, ...]]:
    path = Path(CORPUS) / "nsys" / RANGES
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(sql).fetchall()


def reported(name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["stats", str(Path(CORPUS) / "nsys" / RANGES), name, "--format", "json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["reports"][0]["rows"]
    return rows


def test_ranges_of_a_real_export_are_its_own_rows(capsys: pytest.CaptureFixture[str]) -> None:
    expected = queried(
        "SELECT ':' || coalesce(text, (SELECT value FROM StringIds WHERE id = textId)), count(*), sum(end - start) "
        "FROM NVTX_EVENTS WHERE eventType = 59 GROUP BY 1 ORDER BY 3 DESC"
    )
    keys = ("range", "instances", "total_time_ns")
    assert [tuple(row[key] for key in keys) for row in reported("nvtx_sum", capsys)] == expected


def test_projections_of_a_real_export_are_those_of_a_plain_join(capsys: pytest.CaptureFixture[str]) -> None:
    expected = queried(
        """
        WITH work AS (
            SELECT start, end, correlationId AS id FROM CUPTI_ACTIVITY_KIND_KERNEL
            UNION ALL SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY
        ), launched AS (
            SELECT r.start, r.end, r.globalTid AS tid, r.correlationId AS id, min(w.start) AS low, max(w.end) AS high
            FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN work w ON w.id = r.correlationId GROUP BY r.rowid
        )
        SELECT n.start, n.end - n.start, min(low), max(high) - min(low), count(DISTINCT id)
        FROM NVTX_EVENTS n JOIN launched l ON l.tid = n.globalTid AND l.start >= n.start AND l.end <= n.end
        WHERE n.eventType = 59 GROUP BY n.rowid ORDER BY min(low), max(high) - min(low) DESC, n.start
        """
    )
    keys = ("orig_start_ns", "orig_duration_ns", "projected_start_ns", "projected_duration_ns", "num_gpu_ops")
    assert [tuple(row[key] for key in keys) for row in reported("nvtx_gpu_proj_trace", capsys)] == expected


def test_kernels_in_ranges_of_a_real_export_are_those_of_a_plain_join(capsys: pytest.CaptureFixture[str]) -> None:
    expected = queried(
        """
        WITH launched AS (
            SELECT r.start, r.end, r.globalTid AS tid, k.rowid AS id, k.end - k.start AS dur, s.value AS name
            FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)
            JOIN StringIds s ON s.id = k.shortName
        )
        SELECT ':' || n.text, l.name, count(DISTINCT n.rowid), count(DISTINCT l.id), sum(dur)
        FROM NVTX_EVENTS n JOIN launched l ON l.tid = n.globalTid AND l.start >= n.start AND l.end <= n.end
        WHERE n.eventType = 59 GROUP BY 1, 2
        """
    )
    keys = ("nvtx_range", "kernel_name", "nvtx_instances", "kernel_instances", "total_time_ns")
    rows = [tuple(row[key] for key in keys) for row in reported("nvtx_kern_sum:base", capsys) if row["nvtx_range"]]
    assert sorted(rows) == sorted(expected)
