"""What is read of every real export, pinned in a readable dump; a store gives it back, another name changes nothing.

A dump holds counts, sums, edges and checksums, nothing of the export's own text. To write them anew after a change that
is meant: PROFKIT_WRITE_DUMPS=1 pytest tests/corpus/test_dumps.py, then read the difference.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from profkit.ingest import open_trace
from profkit.model import Trace
from profkit.schema import TABLES
from profkit.store import save

CORPUS = Path(os.environ.get("PROFKIT_CORPUS") or "/nonexistent")
DUMPS = Path(__file__).parent / "dumps"
FILES = sorted(path for folder in ("nsys", "kineto") for path in (CORPUS / folder).glob("*"))

pytestmark = pytest.mark.skipif(not os.environ.get("PROFKIT_CORPUS"), reason="needs PROFKIT_CORPUS")


def dump(trace: Trace) -> str:
    """One line a table that holds rows: how many, when, how long in all, and a checksum of each column."""
    lines = [
        f"source {trace.meta.source} {trace.meta.source_version}".rstrip(),
        f"origin {trace.meta.origin_ns} utc {trace.meta.utc_ns} resolution {trace.meta.resolution_ns}",
        f"windows {[(w.start_ns, w.end_ns) for w in trace.windows]}",
        f"missing {sorted(trace.missing)} warnings {len(trace.meta.warnings)} notes {len(trace.meta.notes)}",
    ]
    for name, table in TABLES.items():
        if table.kind == "derived" or not trace.rows(name):
            continue
        words = [f"{name} rows {trace.rows(name)}"]
        if table.kind == "event":
            start, dur = trace.array(name, "start_ns"), trace.array(name, "dur_ns")
            words.append(f"from {int(start.min())} to {int((start + dur).max())} sum_ns {int(dur.sum())}")
        lines.append(" ".join(words))
        lines += [f"  {column.name} {_checksum(trace, name, column.name)}" for column in table.columns]
    return "\n".join(lines) + "\n"


def _checksum(trace: Trace, table: str, column: str) -> str:
    values = trace.tables[table].column(column).to_pylist()
    return f"{zlib.crc32(repr(values).encode('utf-8', 'surrogatepass')):08x}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_dump_renamed_and_stored(path: Path, tmp_path: Path) -> None:
    found = dump(open_trace(path))
    pinned = DUMPS / f"{path.name}.txt"
    if os.environ.get("PROFKIT_WRITE_DUMPS"):
        DUMPS.mkdir(exist_ok=True)
        pinned.write_text(found, "utf-8")
    assert found == pinned.read_text("utf-8")
    renamed = tmp_path / "capture.bin"
    shutil.copy(path, renamed)
    again = open_trace(renamed)
    # The rank in a file's name is a hint where the content names none: a note, no number.
    assert _but_notes(dump(again)) == _but_notes(found)
    save(again, tmp_path / "store")
    assert dump(open_trace(tmp_path / "store")) == dump(again)


def _but_notes(text: str) -> list[str]:
    """A dump without what a file's name may change: the number of notes and the ranks of processes."""
    lines = text.splitlines()
    return [line.split(" notes ")[0] for line in lines if not line.startswith("  rank ")]
