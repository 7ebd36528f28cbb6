"""Every real export: it opens, what it says is strict and adds up, and no name decides what it is."""

from __future__ import annotations

import html
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profkit.rules import all_rules

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
FILES = sorted(path for kind in ("nsys", "kineto") for path in (Path(CORPUS) / kind).glob("*")) if CORPUS else []
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
needs_corpus = pytest.mark.skipif(not FILES, reason="PROFKIT_CORPUS names no folder of real exports")
NO_GPU = {
    "centerformer-nvtx-only.sqlite",
    "jacc-4xa100-empty.sqlite",
    "jacc-a100-async-nocuda.sqlite",
    "hta-cpu-only-rank34.json.gz",
    "hta-cupti-profiler.json.gz",
    "hta-mtia-inference.json.gz",
    "hta-no-distributed-info.json.gz",
}


@needs_corpus
@every_file
def test_what_it_says_adds_up(path: Path, check: Callable[..., dict[str, Any]]) -> None:
    document = check(path)

    assert document["schema"] == "profkit.check/1"
    assert document["headline"]
    assert "\n" not in document["headline"]
    assert document["trace"]["file"] == path.name
    summary = document["summary"]
    idle, devices = summary["idle_by_cause"], summary["devices"]
    if path.name in NO_GPU:
        assert (devices, idle, summary["window_ns"]) == ([], None, None)
        assert "no gpu" in document["headline"].lower()
        gpu = [stage[key] for stage in summary["stages"] for key in stage if key.startswith("gpu_")]
        assert set(gpu) <= {None}
        return
    assert devices
    for device in devices:
        assert device["busy_ns"] + device["idle_ns"] == summary["window_ns"]
        assert 0 <= device["idle_ns"] <= summary["window_ns"]
        parts = [device[f"{part}_ns"] for part in ("kernel", "copy", "graph")]
        assert max(parts) <= device["busy_ns"] <= sum(parts)
        assert device["busy_share"] == pytest.approx(device["busy_ns"] / summary["window_ns"])
    assert min(idle.values()) >= 0
    assert sum(idle.values()) == sum(device["idle_ns"] for device in devices)
    found = [*document["findings"], *document["others"]]
    codes = [f["code"] for f in found] + [folded["code"] for f in found for folded in f["folded"]]
    judged = codes + [n["code"] for n in document["not_run"]] + document["clean"]
    assert set(judged) == set(all_rules())
    assert not set(codes) & set(document["clean"])
    assert not {n["code"] for n in document["not_run"]} & set(document["clean"])


@needs_corpus
@every_file
def test_a_renamed_copy_gives_the_same_text(
    path: Path, tmp_path: Path, check: Callable[..., dict[str, Any]], run: Callable[..., tuple[int, str, str]]
) -> None:
    copy = tmp_path / ("copy.json.gz" if path.suffix == ".sqlite" else "copy.sqlite")
    shutil.copy(path, copy)

    code, out, err = run("check", copy)

    assert (code, err) == (0, "")
    assert "\x1b" not in out
    source = "nsys-sqlite" if path.suffix == ".sqlite" else "kineto-json"
    assert out.splitlines()[-1].startswith(f"from {source}")
    assert out == run("check", path)[1]
    if path.name in NO_GPU:
        assert "GPU busy and idle: n/a" in out
        assert "100.0 %" not in out
    else:
        assert "sum over streams" in out


def test_graphs_recorded_as_one_piece_are_busy(
    corpus: Path, check: Callable[..., dict[str, Any]], run: Callable[..., tuple[int, str, str]]
) -> None:
    path = corpus / "nsys" / "cs336-a100-2.7B-cudagraph.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        rows = db.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE ORDER BY start").fetchall()
    assert all(before[1] <= after[0] for before, after in pairwise(rows))

    document = check(path)

    assert document["summary"]["counts"]["graphs"] == len(rows) == 10
    assert document["summary"]["counts"]["kernels"] == 30
    (device,) = document["summary"]["devices"]
    assert device["graph_ns"] == sum(end - start for start, end in rows)
    assert round(device["graph_ns"] / 10**9, 1) == 7.8
    assert device["kernel_sum_over_streams_ns"] == 78_270
    assert device["busy_ns"] >= device["graph_ns"]
    assert device["busy_share"] > 0.99
    assert "Kernels inside CUDA graphs were not recorded" in document["headline"]
    (hidden,) = [f for f in (*document["findings"], *document["others"]) if f["code"] == "PK501"]
    assert hidden["facts"]["graph_launches"] == 10
    assert "Kernels inside 10 CUDA graph launches were not recorded" in run("check", path, "--all")[1]


@needs_corpus
@every_file
def test_a_report_of_it(
    path: Path, tmp_path: Path, check: Callable[..., dict[str, Any]], run: Callable[..., tuple[int, str, str]]
) -> None:
    target = tmp_path / "report.html"

    code, out, err = run("report", path, "-o", target)

    assert (code, err) == (0, "")
    assert out.strip() == str(target)
    page = target.read_text(encoding="utf-8")
    assert len(page.encode()) <= 2_000_000
    assert html.escape(check(path)["headline"], quote=False) in page.replace("&#34;", '"').replace("&#39;", "'")
    assert "<script" not in page.lower()
    assert not re.search(r"""(?i)(?:src|href)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?(?:https?:)?//""", page)
