"""Against what nsys stats itself printed for real exports: integers exactly, the rest to the digits printed."""

from __future__ import annotations

import csv
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from profkit.cli import main

REPORTS = (
    "osrt_sum",
    "cuda_api_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_trace",
    "nvtx_sum",
    "um_sum",
    "um_total_sum",
)
_SECTION = re.compile(r"^Processing \[.*/(?P<report>\w+)\.py\]\.\.\. *$", re.MULTILINE)
CORPUS = os.environ.get("PROFKIT_CORPUS", "")
needs_corpus = pytest.mark.skipif(not CORPUS, reason="PROFKIT_CORPUS names no folder of real exports")


@dataclass(frozen=True)
class Golden:
    """One report of one export as nsys printed it; no rows where it was skipped."""

    export: Path
    report: str
    rows: list[list[str]] | None

    def __str__(self) -> str:
        return f"{self.export.stem}-{self.report}"


def goldens() -> list[Golden]:
    if not CORPUS:
        return []
    folder = Path(CORPUS) / "golden"
    exports = Path(CORPUS) / "nsys"
    out = []
    for printed in sorted(folder.glob("*.nsys-stats.txt")):
        export = exports / f"{printed.name.removesuffix('.nsys-stats.txt')}.sqlite"
        parts = _SECTION.split(printed.read_text(encoding="utf-8"))[1:]
        for report, body in zip(parts[::2], parts[1::2], strict=True):
            if report in REPORTS:
                out.append(Golden(export, report, None if "SKIPPED" in body else aligned_rows(body)))
    for printed in sorted((folder / "trixi-profile").glob("*.csv")):
        rows = list(csv.reader(io.StringIO(printed.read_text(encoding="utf-8"))))
        out.append(Golden(exports / "trixi-julia-v100-profile.sqlite", printed.stem, [row for row in rows if row]))
    return out


def aligned_rows(body: str) -> list[list[str]]:
    """Cells of an aligned table, cut where the dashes under the heading say."""
    lines = [line for line in body.splitlines() if line.strip()]
    rule = next(i for i, line in enumerate(lines) if set(line) == {" ", "-"})
    cuts = [match.span() for match in re.finditer("-+", lines[rule])]
    cuts[-1] = (cuts[-1][0], 10**6)
    return [[line[low:high].strip() for low, high in cuts] for line in (lines[rule - 1], *lines[rule + 1 :])]


def same(printed: str, golden: str) -> bool:
    return printed.startswith(golden[:-1]) if golden.endswith("…") else printed == golden


@needs_corpus
def test_every_golden_answer_is_found() -> None:
    found = {(golden.export.stem, golden.report): golden.rows is not None for golden in goldens()}
    five = dict.fromkeys(REPORTS[:5], True) | dict.fromkeys(("nvtx_sum", "um_sum", "um_total_sum"), False)
    graph = five | {"cuda_gpu_mem_time_sum": False, "cuda_gpu_mem_size_sum": False}
    assert found == {
        **{("cs336-a100-2.7B", report): printed for report, printed in five.items()},
        **{("cs336-a100-2.7B-cudagraph", report): printed for report, printed in graph.items()},
        **{
            ("trixi-julia-v100-profile", report): True
            for report in ("cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_trace")
        },
    }


@needs_corpus
@pytest.mark.parametrize("form", ["csv", "table"])
@pytest.mark.parametrize("golden", goldens(), ids=str)
def test_equal_to_nsys(golden: Golden, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(golden.export), golden.report, "--format", form]) == 0
    printed, remarks = capsys.readouterr()
    if golden.rows is None:
        assert printed == ""
        assert "in this capture" in remarks
        return
    rows = aligned_rows(printed) if form == "table" else list(csv.reader(io.StringIO(printed)))
    expected = golden.rows
    if form == "table":  # absent cells are blank there, as in nsys's own tables
        expected = [["" if cell == "None" else cell for cell in row] for row in expected]
    assert len(rows) == len(expected)
    different = [(got, want) for got, want in zip(rows, expected, strict=True) if not all(map(same, got, want))]
    assert different == []


@needs_corpus
def test_csv_is_equal_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    export = Path(CORPUS) / "nsys" / "trixi-julia-v100-profile.sqlite"
    for printed in sorted((Path(CORPUS) / "golden" / "trixi-profile").glob("*.csv")):
        assert main(["stats", str(export), printed.stem, "--format", "csv"]) == 0
        assert capsys.readouterr().out.rstrip("\n") == printed.read_text(encoding="utf-8").rstrip("\n")
