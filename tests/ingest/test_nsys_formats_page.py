"""docs/formats.md names every table of an nsys export that the code reads, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(
    r"^(CUPTI_ACTIVITY_KIND_\w+|CUDA_G\w+_EVENTS|NVTX_EVENTS|NVTX_PAYLOAD_\w+|MPI_\w+|OSRT_API|PROFILER_OVERHEAD"
    r"|GPU_METRICS|TARGET_INFO_\w+|SCHED_EVENTS|COMPOSITE_EVENTS|SAMPLING_CALLCHAINS|PROCESSES|ThreadNames|META_DATA_\w+"
    r"|EXPORT_META_DATA|DIAGNOSTIC_EVENT|StringIds)$"
)


def test_the_page_names_the_tables_that_are_read() -> None:
    read = set()
    for file in (ROOT / "profkit" / "ingest" / "nsys").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and TABLE.match(node.value):
                read.add(node.value)
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    named = {word for word in re.findall(r"`([\w.]+)`", page) if TABLE.match(word)}
    assert read == named
