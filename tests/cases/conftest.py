"""Builders of the inputs that the cases describe (BASE-N, BASE-K), and the command line run in-process.

Files are written with the standard library only: they go through the readers as any other file does.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from profkit.cli import main

US = 1_000
DEVICE = 2
"""nsys's number for memory of the device; 0 is pageable, 1 pinned."""

_STRINGS = (
    "gemm",
    "cudaLaunchKernel_v7000",
    "cudaMemcpyAsync_v3020",
    "cudaStreamSynchronize_v3020",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "cudaGraphLaunch_v10000",
    "cudaDeviceSynchronize_v3020",
    "cudaFree_v3020",
)
_DEVICE_ROW = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
BASE_N = {
    "StringIds": ("id", "value"),
    KERNEL: (*_DEVICE_ROW, "demangledName", "shortName", *_GRID, "graphNodeId"),
    MEMCPY: (*_DEVICE_ROW, "bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"),
    MEMSET: (*_DEVICE_ROW, "bytes", "value", "memKind"),
    RUNTIME: ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    SYNC: (*_DEVICE_ROW, "syncType"),
    NVTX: ("start", "end", "eventType", "rangeId", "text", "textId", "globalTid", "endGlobalTid", "domainId"),
    "TARGET_INFO_GPU": ("id", "name", "busLocation", "uuid"),
    "META_DATA_EXPORT": ("name", "value"),
}
OTHER_TABLES = {
    GRAPH: (*_DEVICE_ROW, "graphId", "graphExecId"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid", "uuid"),
    "PROCESSES": ("globalPid", "pid", "name"),
}
_TEXT_COLUMNS = {"value", "name", "text", "busLocation", "uuid"}


def process_id(pid: int) -> int:
    return pid * 0x1000000


def thread_id(pid: int, tid: int) -> int:
    return process_id(pid) + tid


@dataclass
class NsysExport:
    """BASE-N: rows are added, ``write`` makes the SQLite file. Absolute times in ns."""

    path: Path
    strings: dict[str, int] = field(default_factory=lambda: {text: i for i, text in enumerate(_STRINGS, 1)})
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, max(self.strings.values()) + 1)

    def add(self, table: str, **values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def device_row(
        self, table: str, start: int, end: int, *, device: int = 0, stream: int = 7, correlation: int = 0,
        pid: int = 100, **values: Any,
    ) -> None:  # fmt: skip
        self.add(
            table,
            start=start,
            end=end,
            deviceId=device,
            contextId=1,
            streamId=stream,
            correlationId=correlation,
            globalPid=process_id(pid),
            **values,
        )

    def kernel(self, start: int, end: int, name: str = "gemm", node: int | None = None, **where: Any) -> None:
        names = {"demangledName": self.string(name), "shortName": self.string(name)}
        self.device_row(KERNEL, start, end, **names, **dict.fromkeys(_GRID, 1), graphNodeId=node, **where)

    def memcpy(self, start: int, end: int, kind: int, size: int, src: int, dst: int, **where: Any) -> None:
        self.device_row(MEMCPY, start, end, bytes=size, copyKind=kind, srcKind=src, dstKind=dst, **where)

    def memset(self, start: int, end: int, size: int, **where: Any) -> None:
        self.device_row(MEMSET, start, end, bytes=size, value=0, memKind=DEVICE, **where)

    def graph(self, start: int, end: int, **where: Any) -> None:
        self.device_row(GRAPH, start, end, graphId=1, graphExecId=2, **where)

    def call(self, start: int, end: int, name: str, correlation: int = 0, pid: int = 100) -> None:
        self.add(
            RUNTIME,
            start=start,
            end=end,
            eventClass=1 if name.startswith("cu") and not name.startswith("cuda") else 0,
            globalTid=thread_id(pid, pid),
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=0,
        )

    def nvtx(self, start: int, end: int | None, **values: Any) -> None:
        """A push/pop range unless ``eventType`` says otherwise."""
        row = {"eventType": 59, "globalTid": thread_id(100, 100), "domainId": 0} | values
        self.add(NVTX, start=start, end=end, **row)

    def write(self, name: str = "run.sqlite", tables: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Path:
        """The file with all tables of BASE-N, or only ``tables``, and those that rows were added to."""
        path = self.path / name
        if "TARGET_INFO_GPU" not in self.rows:
            for i in range(8):
                self.add("TARGET_INFO_GPU", id=i, name="NVIDIA H200", busLocation=f"0000:0{i}:00.0", uuid=f"gpu-{i}")
            self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")
            self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1.210")
        self.rows["StringIds"] = [{"id": i, "value": text} for text, i in self.strings.items()]
        wanted = tables or (*BASE_N, *(table for table in self.rows if table in OTHER_TABLES))
        with closing(sqlite3.connect(path)) as db:
            for table in wanted:
                if table not in without:
                    self._write_table(db, table)
            db.commit()
        return path

    def _write_table(self, db: sqlite3.Connection, table: str) -> None:
        columns = (BASE_N | OTHER_TABLES)[table]
        types = ", ".join(f'"{c}" {"TEXT" if c in _TEXT_COLUMNS and c != "id" else "INTEGER"}' for c in columns)
        if table == MEMSET:
            types = types.replace('"value" TEXT', '"value" INTEGER')
        db.execute(f"CREATE TABLE {table} ({types})")
        unknown = {key for row in self.rows.get(table, []) for key in row} - set(columns)
        assert not unknown, f"{table} has no {unknown}"
        marks = ",".join("?" * len(columns))
        db.executemany(
            f"INSERT INTO {table} VALUES ({marks})",
            [tuple(row.get(column) for column in columns) for row in self.rows.get(table, [])],
        )


@dataclass
class KinetoTrace:
    """BASE-K: events are added, ``write`` makes the JSON file. Times in us, texts go in as they are."""

    path: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    top: dict[str, Any] = field(
        default_factory=lambda: {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
            "distributedInfo": {"rank": 0, "world_size": 1},
        }
    )

    def event(self, cat: str, name: str, ts: Any, dur: Any, pid: Any = 100, tid: Any = 100, **args: Any) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)

    def on_device(self, cat: str, name: str, ts: Any, dur: Any, correlation: int, **args: Any) -> None:
        where = {"device": 0, "stream": 7, "correlation": correlation}
        self.event(cat, name, ts, dur, pid=0, tid=7, **where, **args)

    def launch(self, ts: Any, dur: Any, correlation: int) -> None:
        self.event("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation=correlation)

    def call(self, name: str, ts: Any, dur: Any, correlation: int) -> None:
        self.event("cuda_runtime", name, ts, dur, correlation=correlation)

    def kernel(self, ts: Any, dur: Any, correlation: int, name: str = "gemm") -> None:
        self.on_device("kernel", name, ts, dur, correlation)

    def base(self) -> None:
        """The launch and the kernel of BASE-K."""
        self.launch(1000, 5, 1)
        self.kernel(1010, 100, 1)

    def write(self, name: str = "trace.json") -> Path:
        path = self.path / name
        path.write_text(json.dumps({**self.top, "traceEvents": self.events}), encoding="utf-8")
        return path


@dataclass(frozen=True)
class Output:
    """What a command left behind: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Checked:
    """``check`` of a file: its JSON document and the texts that a person sees, without and with ``--all``."""

    document: dict[str, Any]
    text: str
    everything: str

    @property
    def summary(self) -> dict[str, Any]:
        return self.document["summary"]

    @property
    def device(self) -> dict[str, Any]:
        """The only device."""
        (device,) = self.summary["devices"]
        return device

    @property
    def headline(self) -> str:
        return self.document["headline"]

    @property
    def not_run(self) -> dict[str, str]:
        """Reason by code of each rule that could not judge."""
        return {item["code"]: item["reason"] for item in self.document["not_run"]}

    def findings(self, code: str) -> list[dict[str, Any]]:
        """Of those that matter and of the others."""
        return [f for f in (*self.document["findings"], *self.document["others"]) if f["code"] == code]

    @property
    def codes(self) -> list[str]:
        """Of the findings that matter, first to last."""
        return [finding["code"] for finding in self.document["findings"]]

    def copies(self) -> dict[tuple[str, str, str], tuple[int, int, int]]:
        """(count, bytes, sum_ns) by (kind, src, dst)."""
        return {(c["kind"], c["src"], c["dst"]): (c["count"], c["bytes"], c["sum_ns"]) for c in self.summary["copies"]}

    def line(self, needle: str) -> str:
        """The only line of the text that holds ``needle``."""
        (line,) = [line for line in self.text.splitlines() if needle in line]
        return line


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture
def nsys(tmp_path: Path) -> NsysExport:
    return NsysExport(tmp_path)


@pytest.fixture
def kineto(tmp_path: Path) -> KinetoTrace:
    return KinetoTrace(tmp_path)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with BASE-N of 20,000 kernels, and BASE-K of 10,000 events, plain and zipped."""
    folder = tmp_path_factory.mktemp("whole")
    export, trace = NsysExport(folder), KinetoTrace(folder)
    for i in range(20_000):
        export.kernel(i * 10 * US, i * 10 * US + 5 * US, correlation=i + 1)
    for i in range(5_000):
        trace.launch(1000 + 20 * i, 5, i + 1)
        trace.kernel(1010 + 20 * i, 8, i + 1)
    export.write()
    with gzip.open(folder / "trace.json.gz", "wb") as file:
        file.write(trace.write().read_bytes())
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    """Runs the command line in this process."""

    def run_command(*args: object) -> Output:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Output(code, out, err)

    return run_command


class _Visible(HTMLParser):
    """What a person reads on a page, or in its ``only`` elements: text outside of style sheets."""

    def __init__(self, only: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._only, self._hidden, self._inside = only, 0, int(not only)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("style", "script")
        self._inside += tag == self._only

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script")
        self._inside -= tag == self._only

    def handle_data(self, data: str) -> None:
        if self._inside and not self._hidden:
            self.parts.append(data)


@pytest.fixture
def page(run: Callable[..., Output], tmp_path: Path) -> Callable[..., str]:
    """The words on the page that ``report`` writes (in its ``only`` elements, say "table"), on one line."""

    def read_page(path: Path, *options: str, only: str = "") -> str:
        target = tmp_path / f"{path.name}.html"
        made = run("report", path, "-o", target, "--force", *options)
        assert (made.code, made.err) == (0, "")
        visible = _Visible(only)
        visible.feed(target.read_text(encoding="utf-8"))
        return " ".join(" ".join(visible.parts).split())

    return read_page


@pytest.fixture
def check(run: Callable[..., Output]) -> Callable[..., Checked]:
    """``check`` as JSON and as text; both must succeed, and say nothing on stderr."""

    def check_file(path: Path, *options: str) -> Checked:
        as_json = run("check", path, "--json", *options)
        assert (as_json.code, as_json.err) == (0, "")
        document = json.loads(as_json.out, parse_constant=refuse_constant)
        assert document["schema"] == "profkit.check/1"
        as_text = run("check", path, *options)
        assert (as_text.code, as_text.err) == (0, "")
        with_all = run("check", path, "--all", *options)
        assert (with_all.code, with_all.err) == (0, "")
        return Checked(document, as_text.out, with_all.out)

    return check_file
