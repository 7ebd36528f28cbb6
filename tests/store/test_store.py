"""A store gives back what was saved, opens by mapping, and says in one line what is wrong with a folder."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.summary import summarize
from profkit.derived import MAKERS, Derived
from profkit.errors import InputError, ProfkitError
from profkit.ingest import open_trace
from profkit.model import EVERY_PROCESS, Trace, Window
from profkit.schema import FLAG_OPEN_END, TABLES
from profkit.store import META, is_store, kept_derived, load, save
from profkit.testing import build_trace, call, copy, graph, kernel, launch, os_call, span, sync

CORPUS = os.environ.get("PROFKIT_CORPUS", "")
FILES = sorted(path for kind in ("nsys", "kineto") for path in (Path(CORPUS) / kind).glob("*")) if CORPUS else []
HOSTILE = 'a "quoted", <b>\n</script>\ttab \\ \x1b[31m\u2028 核函数 '


@pytest.fixture
def trace() -> Trace:
    built = build_trace(
        launch(HOSTILE, at=0, start=10_000, dur=50_000),
        launch("norm", at=6_000, start=70_000, dur=5_000, stream=9),
        copy(80_000, 1_000, "h2d", 4096, "pageable", "device"),
        graph(90_000, 5_000),
        call(62_000, 20_000, "cudaStreamSynchronize_v3020"),
        sync(62_000, 20_000),
        span("decode", 0, 100_000, payload=8),
        span("open", 50, -1),
        kernel(99_000, -1),
        os_call(0, 10),
        simulated=True,
        windows=(Window(0, 40_000), Window(50_000, 120_000)),
        missing={"allocs": "not asked for"},
        warnings=("one",),
    )
    meta = replace(
        built.meta,
        path="/home/someone/secret-project/run.sqlite",
        origin_ns=1_700_000_000_000_000_000,
        utc_ns=1_700_000_000_123_456_789,
        captured=("cuda", "nvtx"),
        notes=("two",),
        extra={"nsys": "2025.5"},
        partial=True,
    )
    return Trace(
        meta, built.tables, {**built.missing, "calls": {0: "this process only", EVERY_PROCESS: "all"}}, built.windows
    )


def same(left: Trace, right: Trace) -> None:
    assert left.tables.keys() == right.tables.keys()
    for name in left.tables:
        assert left.tables[name].equals(right.tables[name]), name
    assert right.meta == left.meta
    assert right.missing == left.missing
    assert right.windows == left.windows


def test_what_is_saved_is_what_is_loaded(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "run.store")

    opened = open_trace(tmp_path / "run.store")

    same(replace(trace, meta=replace(trace.meta, path="run.sqlite")), opened)
    assert opened.array("kernels", "id").tolist() == [0, 1, 2]
    assert opened.array("kernels", "flags")[2] & FLAG_OPEN_END
    assert opened.name(int(opened.array("kernels", "name")[0])) == HOSTILE
    assert opened.why_missing("calls", 0) == "this process only"


def test_no_folder_of_this_machine_is_in_it(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "run.store", Derived(Analysis(trace)).all())
    for file in (tmp_path / "run.store").iterdir():
        content = file.read_bytes()
        assert b"secret-project" not in content, file.name
        assert str(tmp_path).encode() not in content, file.name


def test_big_integers_of_meta_are_text_in_its_json(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "run.store")
    meta = json.loads((tmp_path / "run.store" / META).read_text("utf-8"))
    assert meta["schema"] == "profkit.store/1"
    assert meta["meta"]["utc_ns"] == "1700000000123456789"
    assert meta["windows"] == [[0, 40_000], [50_000, 120_000]]


def test_arrays_are_the_mapped_file_and_no_copy(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "run.store")
    before = pa.total_allocated_bytes()
    opened = load(tmp_path / "run.store")
    for table, column in (("kernels", "start_ns"), ("kernels", "name"), ("copies", "kind"), ("spans", "payload_float")):
        values = opened.tables[table].column(column)
        array = opened.array(table, column)
        assert values.num_chunks == 1
        assert array.ctypes.data == values.chunk(0).buffers()[1].address
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_table_in_pieces_is_stored_in_one(tmp_path: Path) -> None:
    trace = build_trace(kernel(0, 10), kernel(20, 10))
    kernels = trace.tables["kernels"]
    pieces = pa.concat_tables([kernels.slice(0, 1), kernels.slice(1, 1)])
    assert pieces.column("start_ns").num_chunks == 2
    save(Trace(trace.meta, {**trace.tables, "kernels": pieces}, trace.missing, trace.windows), tmp_path / "s")
    assert load(tmp_path / "s").tables["kernels"].column("start_ns").num_chunks == 1


def test_an_empty_trace(tmp_path: Path) -> None:
    save(build_trace(), tmp_path / "s")
    same(build_trace(), load(tmp_path / "s"))


def test_derived_tables_are_kept_and_found_by_the_version_that_made_them(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = Derived(Analysis(trace)).all()
    save(trace, tmp_path / "s", derived)

    kept = kept_derived(tmp_path / "s")

    assert kept.keys() == derived.keys() == MAKERS.keys()
    assert all(kept[name].equals(derived[name]) for name in kept)
    assert kept_derived(tmp_path) == {}
    monkeypatch.setattr("profkit.store.version", lambda _: "99.0")
    assert kept_derived(tmp_path / "s") == {}


def test_nothing_is_overwritten_unasked(trace: Trace, tmp_path: Path) -> None:
    save(build_trace(), tmp_path / "s")
    with pytest.raises(ProfkitError, match=r"s exists: choose another name, or replace it with --force"):
        save(trace, tmp_path / "s")
    assert load(tmp_path / "s").rows("kernels") == 0
    save(trace, tmp_path / "s", force=True)
    assert load(tmp_path / "s").rows("kernels") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_force_never_replaces_what_profkit_did_not_write(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"cat")
    with pytest.raises(ProfkitError, match="was not written by profkit"):
        save(trace, tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "cat.png").read_bytes() == b"cat"


def test_a_failure_on_the_way_leaves_what_was_there(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(trace, tmp_path / "s")

    def fail(*_: Any) -> dict[str, int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("profkit.store._write", fail)
    with pytest.raises(ProfkitError, match=r"cannot write .*s: No space left on device"):
        save(build_trace(), tmp_path / "s", force=True)
    assert load(tmp_path / "s").rows("kernels") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def edited(folder: Path, **values: Any) -> None:
    meta = json.loads((folder / META).read_text("utf-8"))
    (folder / META).write_text(json.dumps(meta | values, indent=1), "utf-8")


def rewritten(folder: Path, name: str, table: pa.Table) -> None:
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
        writer.write_table(table)
    meta = json.loads((folder / META).read_text("utf-8"))
    size = (folder / f"{name}.arrow").stat().st_size
    meta["tables"][name] = {"rows": table.num_rows, "bytes": size}
    (folder / META).write_text(json.dumps(meta, indent=1), "utf-8")


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_trace(folder)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.fixture
def stored(trace: Trace, tmp_path: Path) -> Path:
    save(trace, tmp_path / "run")
    return tmp_path / "run"


def test_a_newer_store(stored: Path) -> None:
    edited(stored, schema="profkit.store/2", profkit_version="9.9")
    assert "written by a newer profkit (9.9, store schema 2; this one reads up to 1)" in refused(stored)


def test_a_column_that_is_not_known(stored: Path, trace: Trace) -> None:
    hosts = trace.tables["hosts"]
    rewritten(stored, "hosts", hosts.append_column("altitude", pa.array([1], pa.int64())))
    assert "written by a newer profkit (" in refused(stored)
    assert "hosts has ['altitude']" in refused(stored)


def test_a_table_that_is_not_known(stored: Path) -> None:
    meta = json.loads((stored / META).read_text("utf-8"))
    edited(stored, tables={**meta["tables"], "dreams": {"rows": 0, "bytes": 0}})
    assert "it has tables ['dreams']" in refused(stored)


def test_an_older_store_lacks_a_column_and_a_table_that_came_later(stored: Path, trace: Trace) -> None:
    rewritten(stored, "copies", trace.tables["copies"].drop_columns(["cause"]))
    rewritten(stored, "names", trace.tables["names"].drop_columns(["family"]))
    meta = json.loads((stored / META).read_text("utf-8"))
    del meta["tables"]["sched"]
    edited(stored, tables=meta["tables"])
    opened = open_trace(stored)
    assert opened.array("copies", "cause").tolist() == [-1]
    assert set(opened.text("names", "family")) == {""}
    assert opened.rows("sched") == 0


def test_a_file_that_is_cut(stored: Path) -> None:
    file = stored / "kernels.arrow"
    size = file.stat().st_size
    os.truncate(file, size // 2)
    assert f"kernels.arrow: truncated or damaged: {size // 2} bytes, meta.json says {size}" in refused(stored)


def test_a_file_that_is_gone(stored: Path) -> None:
    (stored / "spans.arrow").unlink()
    assert "incomplete: spans.arrow is missing" in refused(stored)


def test_a_file_of_the_right_size_that_is_no_table(stored: Path) -> None:
    file = stored / "kernels.arrow"
    file.write_bytes(b"\0" * file.stat().st_size)
    assert "kernels.arrow: damaged" in refused(stored)


HEAD = '{"schema": "profkit.store/1"'


@pytest.mark.parametrize(
    "content",
    ["", HEAD, HEAD + "}", '{"schema": "profkit.store/x"}', HEAD + ', "profkit_version": "1", "tables": 3}'],
)
def test_meta_that_is_cut_or_wrong(stored: Path, content: str) -> None:
    (stored / META).write_text(content)
    words = refused(stored)
    assert "truncated or damaged" in words or "a folder that holds no trace" in words


def test_types_rows_and_nulls_are_checked(stored: Path, trace: Trace) -> None:
    hosts = trace.tables["hosts"]
    rewritten(stored, "hosts", hosts.set_column(2, "offset_ns", pa.array([0.5])))
    assert "hosts.offset_ns is double" in refused(stored)
    rewritten(stored, "hosts", hosts.set_column(2, "offset_ns", pa.array([None], pa.int64())))
    assert "holds nulls" in refused(stored)


@pytest.mark.parametrize(("table", "column", "value"), [("kernels", "name", 99), ("kernels", "track", -2),
    ("copies", "kind", 77), ("tracks", "device", 5)])  # fmt: skip
def test_codes_that_point_at_nothing(stored: Path, trace: Trace, table: str, column: str, value: int) -> None:
    rows = trace.tables[table]
    values = np.full(rows.num_rows, value)
    kind = TABLES[table].column(column).type
    rewritten(stored, table, rows.set_column(rows.column_names.index(column), column, pa.array(values).cast(kind)))
    assert f"{table}.arrow: damaged: {column} points at nothing" in refused(stored)


def test_texts_whose_offsets_leave_their_file(stored: Path) -> None:
    file = stored / "names.arrow"
    content = bytearray(file.read_bytes())
    with pa.memory_map(str(file)) as source:
        texts = pa.ipc.open_file(source).read_all().column("text").chunk(0)
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1].tobytes()
    at = content.find(offsets)
    assert at > 0
    content[at + 4 : at + 8] = (1 << 30).to_bytes(4, "little")
    file.write_bytes(content)
    assert "names.arrow: damaged" in refused(stored)


def test_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / META).write_text('{"schema": "other/1"}')
    assert not is_store(tmp_path)
    assert "a folder that holds no trace" in refused(tmp_path)
    with pytest.raises(InputError, match="no profkit store"):
        load(tmp_path)


def test_a_renamed_store_is_detected(stored: Path, tmp_path: Path) -> None:
    shutil.move(stored, tmp_path / "x.sqlite")
    assert open_trace(tmp_path / "x.sqlite").rows("kernels") == 3


@pytest.mark.skipif(not FILES, reason="PROFKIT_CORPUS names no folder of real exports")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_real_export_saved_and_loaded(path: Path, tmp_path: Path) -> None:
    trace = open_trace(path)
    save(trace, tmp_path / "s")
    opened = open_trace(tmp_path / "s")
    same(trace, opened)
    assert summarize(Analysis(opened)) == summarize(Analysis(trace))
