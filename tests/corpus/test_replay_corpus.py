"""Replays of real exports: the unchanged one is the record, and how far each model holds is pinned in a table.

To write it anew after a change that is meant: PROFKIT_WRITE_DUMPS=1 pytest tests/corpus/test_replay_corpus.py, then
read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.replay import build_model, how_far, replay
from profkit.ingest import open_trace

CORPUS = Path(os.environ.get("PROFKIT_CORPUS") or "/nonexistent")
FILES = sorted(path for folder in ("nsys", "kineto") for path in (CORPUS / folder).glob("*"))
TABLE = Path(__file__).parent / "replay.txt"
HEAD = f"{'file':46}{'operations':>10} {'calls':>7} {'error ppm':>9}  prices"

pytestmark = pytest.mark.skipif(not os.environ.get("PROFKIT_CORPUS"), reason="needs PROFKIT_CORPUS")


def line_of(path: Path) -> str:
    """One file: operations and outermost calls of its model, the error in millionths, whether there are prices."""
    analysis = Analysis(open_trace(path))
    if not analysis.has_gpu_rows:
        return f"{path.name:46}{'':>10} {'':>7} {'':>9}  no GPU rows"
    model = build_model(analysis)
    times, trust = replay(model), how_far(model)
    assert times.start.tolist() == model.work.start.tolist()
    assert times.end.tolist() == model.work.end.tolist()
    known = "known" if trust.holds else trust.why_not
    error = round(trust.share * 1_000_000)
    return f"{path.name:46}{len(model.work):>10} {len(model.calls):>7} {error:>9}  {known}"


def test_the_unchanged_replay_is_the_record_and_how_far_it_holds() -> None:
    found = "\n".join([HEAD, *(line_of(path) for path in FILES)]) + "\n"
    if os.environ.get("PROFKIT_WRITE_DUMPS"):
        TABLE.write_text(found, "utf-8")
    assert found == TABLE.read_text("utf-8")


def test_most_real_traces_have_prices() -> None:
    lines = TABLE.read_text("utf-8").splitlines()[1:]
    assert len(lines) == len(FILES)
    with_work = [line for line in lines if not line.endswith("no GPU rows")]
    assert sum(line.endswith("  known") for line in with_work) >= 0.8 * len(with_work)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_has_an_answer(path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("whatif", path, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    holds = document["replay"]["holds"]
    assert holds == (document["replay"]["why_not"] is None)
    for fix in document["fixes"]:
        assert (fix["cost_ns"] is not None) == holds
        assert fix["count"] > 0
        if holds:
            assert fix["saving_ns"] <= max(fix["cost_ns"], 0) + 0.02 * document["replay"]["replayed_window_ns"], fix[
                "fix"
            ]
    names = [arg for fix in document["fixes"] for arg in ("--fix", fix["fix"])]
    code, out, err = run("whatif", path, *names)
    assert (code, err) == (0, "")
    assert ("all fixes together" in out) == (holds and bool(names))
