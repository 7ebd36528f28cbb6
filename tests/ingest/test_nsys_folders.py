"""nsys exports as folders of Parquet and Arrow files, made by hand from the columns of the SQLite export."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profkit.errors import InputError
from profkit.ingest import open_trace
from profkit.model import Trace

PID, TID = 100 << 24, (100 << 24) + 100
DEVICE_ROW = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "globalPid": PID}
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
TABLES: dict[str, list[dict[str, Any]]] = {
    "StringIds": [{"id": i, "value": text} for i, text in enumerate(("gemm", "cudaLaunchKernel_v7000", "worker"), 1)],
    KERNEL: [
        {"start": 20, "end": 60, **DEVICE_ROW, "demangledName": 1, "shortName": 1, "gridX": 4, "graphNodeId": None},
        {"start": 90, "end": 95, **DEVICE_ROW, "demangledName": 1, "shortName": 1, "gridX": 8, "graphNodeId": 3},
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        {"start": 0, "end": 5, "eventClass": 0, "globalTid": TID, "correlationId": 1, "nameId": 2, "returnValue": 0}
    ],
    "NVTX_EVENTS": [
        {"start": 0, "end": 99, "eventType": 59, "text": "decode", "textId": None, "globalTid": TID, "domainId": 0},
        {"start": 1, "end": None, "eventType": 59, "text": None, "textId": 3, "globalTid": TID, "domainId": 0},
    ],
    "ThreadNames": [{"nameId": 3, "priority": 0, "globalTid": TID}],
    "PROCESSES": [{"globalPid": PID, "pid": 100, "name": "python"}],
    "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"}],
}


def to_sqlite(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for name, rows in TABLES.items():
            db.execute(f"CREATE TABLE {name} ({','.join(f'{c!r}' for c in rows[0])})".replace("'", '"'))
            marks = ",".join("?" * len(rows[0]))
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", [tuple(row.values()) for row in rows])
        db.commit()
    return path


def write_parquet(table: pa.Table, folder: Path, name: str) -> None:
    pq.write_table(table, folder / f"{name}.parquet")


def write_arrow_file(table: pa.Table, folder: Path, name: str) -> None:
    with pa.ipc.new_file(folder / f"{name}.arrow", table.schema) as writer:
        writer.write_table(table)


def write_arrow_stream(table: pa.Table, folder: Path, name: str) -> None:
    with pa.ipc.new_stream(folder / f"{name}.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


WRITERS = {"parquet": write_parquet, "file": write_arrow_file, "stream": write_arrow_stream}
every_format = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
Write = Callable[[pa.Table, Path, str], None]


def to_folder(folder: Path, write: Write, **tables: pa.Table) -> Path:
    folder.mkdir()
    for name, rows in TABLES.items():
        write(tables.get(name, pa.Table.from_pylist(rows)), folder, name)
    return folder


def same(first: Trace, second: Trace) -> bool:
    neutral = [replace(trace.meta, source="", path="") for trace in (first, second)]
    tables = all(first.tables[name].equals(second.tables[name]) for name in first.tables)
    return tables and neutral[0] == neutral[1] and first.missing == second.missing


@every_format
def test_a_folder_gives_the_trace_of_the_sqlite_export(tmp_path: Path, write: Write) -> None:
    folder = open_trace(to_folder(tmp_path / "run", write))
    assert folder.meta.source == ("nsys-parquet" if write is write_parquet else "nsys-arrow")
    assert folder.array("kernels", "graph_node").tolist() == [-1, 3]
    assert same(folder, open_trace(to_sqlite(tmp_path / "run.sqlite")))


def as_texts(name: str, columns: dict[str, str], dictionary: bool) -> pa.Table:
    """A table whose ids of StringIds are the texts themselves."""
    words = {row["id"]: row["value"] for row in TABLES["StringIds"]}
    table = pa.Table.from_pylist(TABLES[name])
    for column in columns:
        values = pa.array([words.get(i) for i in table.column(column).to_pylist()], pa.string())
        values = values.dictionary_encode() if dictionary else values
        table = table.set_column(table.schema.get_field_index(column), column, values)
    return table


@every_format
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
def test_texts_in_place_of_ids(tmp_path: Path, write: Write, dictionary: bool) -> None:
    columns = {
        KERNEL: ("demangledName", "shortName"), "CUPTI_ACTIVITY_KIND_RUNTIME": ("nameId",), "NVTX_EVENTS": ("textId",),
        "ThreadNames": ("nameId",),
    }  # fmt: skip
    tables = {name: as_texts(name, dict.fromkeys(of, ""), dictionary) for name, of in columns.items()}
    folder = to_folder(tmp_path / "run", write, **tables)
    next(folder.glob("StringIds.*")).unlink()
    assert same(open_trace(folder), open_trace(to_sqlite(tmp_path / "run.sqlite")))


def retyped(name: str, column: str, values: list[Any], kind: pa.DataType) -> pa.Table:
    table = pa.Table.from_pylist(TABLES[name])
    return table.set_column(table.schema.get_field_index(column), column, pa.array(values, kind))


@every_format
def test_unsigned_ids_are_the_signed_ones_of_sqlite(tmp_path: Path, write: Write) -> None:
    high = (0xFE << 56) + PID
    table = retyped(KERNEL, "globalPid", [high, high], pa.uint64())
    trace = open_trace(to_folder(tmp_path / "run", write, **{KERNEL: table}))
    assert trace.array("processes", "pid").tolist() == [100, 100]
    assert trace.array("processes", "gpu_rows").tolist() == [True, False]


def test_small_types_and_floats_with_gaps(tmp_path: Path) -> None:
    nodes = retyped(KERNEL, "graphNodeId", [float("nan"), 3.0], pa.float64())
    nodes = nodes.set_column(nodes.schema.get_field_index("gridX"), "gridX", pa.array([4, 8], pa.uint16()))
    nodes = nodes.set_column(nodes.schema.get_field_index("streamId"), "streamId", pa.array([7, 7], pa.uint32()))
    trace = open_trace(to_folder(tmp_path / "run", write_parquet, **{KERNEL: nodes}))
    assert same(trace, open_trace(to_sqlite(tmp_path / "run.sqlite")))


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (pa.float64(), [1.5, 3.0], "graphNodeId: 1 values that are no integers"),
        (pa.string(), ["x", "y"], "graphNodeId: 2 values of type string"),
    ],
)
def test_values_of_another_type_are_absent_and_said(tmp_path: Path, kind: Any, values: Any, words: str) -> None:
    table = retyped(KERNEL, "graphNodeId", values, kind)
    trace = open_trace(to_folder(tmp_path / "run", write_parquet, **{KERNEL: table}))
    assert trace.array("kernels", "graph_node").tolist() == [-1, 3 if kind == pa.float64() else -1]
    assert any(words in warning for warning in trace.meta.warnings)


@every_format
def test_a_needed_column_that_is_missing_is_named(tmp_path: Path, write: Write) -> None:
    table = pa.Table.from_pylist(TABLES[KERNEL]).rename_columns(
        ["device" if c == "deviceId" else c for c in TABLES[KERNEL][0]]
    )
    with pytest.raises(InputError, match=rf"{KERNEL}\.deviceId is missing"):
        open_trace(to_folder(tmp_path / "run", write, **{KERNEL: table}))


@every_format
def test_a_damaged_file(tmp_path: Path, write: Write) -> None:
    folder = to_folder(tmp_path / "run", write)
    next(folder.glob("NVTX_EVENTS.*")).write_bytes(b"no table at all")
    trace = open_trace(folder)
    assert trace.meta.partial
    assert trace.rows("kernels") == 2
    assert trace.why_missing("spans") == "the table NVTX_EVENTS of this export is damaged"
    next(folder.glob(f"{KERNEL}.*")).write_bytes(b"")
    with pytest.raises(InputError, match=rf"{KERNEL}\.\w+ is damaged"):
        open_trace(folder)


def test_a_stream_that_was_cut_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    folder = to_folder(tmp_path / "run", write_arrow_stream)
    file = folder / f"{KERNEL}.arrow"
    file.write_bytes(file.read_bytes()[:-300])
    trace = open_trace(folder)
    assert trace.array("kernels", "start_ns").tolist() == [20]
    assert trace.meta.partial
    assert any(f"{KERNEL} ends early: the first 1 rows were read" in warning for warning in trace.meta.warnings)


def test_other_folders_are_no_export(tmp_path: Path) -> None:
    for name in ("kernels.parquet", "notes.txt"):
        (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(InputError, match="folder that holds no trace"):
        open_trace(tmp_path)
