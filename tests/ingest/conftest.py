"""An nsys export in a few lines: ``read(TABLE=[rows])`` writes it as SQLite and opens it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profkit.ingest import open_trace
from profkit.model import Trace

Rows = list[dict[str, Any]]
STRINGS = {
    1: "gemm", 2: "cudaLaunchKernel_v7000", 3: "cudaEventRecord_v3020", 4: "ncclAllReduce", 5: "ncclGroupStart",
    6: "ncclGroupEnd", 7: "ncclSend", 8: "ncclRecv", 9: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
    10: "ncclDevKernel_SendRecv(ncclDevKernelArgs)", 11: "ncclCommInitRank", 12: "MPI_Send", 13: "MPI_Allreduce",
    14: "MPI_Waitall", 15: "libcuda.so", 16: "main", 17: "worker", 18: "flush", 19: "cudaMalloc_v3020",
}  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Trace]:
    """Reads an export with these tables; columns are those of all rows."""

    def write(**tables: Rows) -> Trace:
        path = tmp_path / "run.sqlite"
        path.unlink(missing_ok=True)
        tables = {"StringIds": [{"id": i, "value": text} for i, text in STRINGS.items()]} | tables
        with closing(sqlite3.connect(path)) as db:
            for name, rows in tables.items():
                columns = list(dict.fromkeys(key for row in rows for key in row))
                db.execute(f"CREATE TABLE {name} ({','.join(chr(34) + c + chr(34) for c in columns)})")
                marks = ",".join("?" * len(columns))
                db.executemany(f"INSERT INTO {name} VALUES ({marks})", [[row.get(c) for c in columns] for row in rows])
            db.commit()
        return open_trace(path)

    return write
