"""What it costs to open a trace: ``python -m bench.open --tools DIR --data DIR``.

Wall of a new process with its imports, page cache warm, no profkit cache, median of 5 runs, and peak resident memory of
the process tree. The easy trace and the hard one (random row order, 8 processes, as many ranges as kernels) at each of
``--sizes``, and with ``--kineto`` a PyTorch trace of 1M kernels (919 MiB of JSON). Beside profkit: reading the same
columns with ADBC, connectorx and pandas, where they are installed, and the peers that ``--peers DIR`` holds. Files are
made once and kept in ``--data``. Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench._measure import Measured, measure, warm

SIZES = {"100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}
KINETO_KERNELS = 1_000_000
MIB = 1 << 20

# What design says a trace may cost to open: (seconds, MiB) for the easy trace; twice that for the hard one.
BUDGET = {
    ("profkit open", "1m"): (2.0, 600),
    ("profkit open", "10m"): (18.0, 3072),
    ("profkit open + all rules", "1m"): (4.0, 1024),
    ("profkit open + all rules", "10m"): (35.0, 4096),
    ("profkit open", "kineto"): (12.0, 1536),
}
PROFKIT = {
    "profkit open": "import sys, profkit; profkit.open(sys.argv[1])",
    "profkit open + all rules": "import sys, profkit; profkit.check(sys.argv[1])",
}

# The columns of each large table that profkit reads, for readers that know no trace.
_DEVICE = "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid"
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE}, demangledName, shortName, mangledName, launchType, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, clusterX, clusterY, clusterZ, registersPerThread, staticSharedMemory, "
    "dynamicSharedMemory, localMemoryTotal, graphId, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE}, bytes, copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId, "
    "migrationCause, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE}, bytes, memKind, graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_DEVICE}, syncType, eventId, eventSyncId",
    "NVTX_EVENTS": "start, end, eventType, category, coalesce(text, '') AS text, textId, globalTid, endGlobalTid, "
    "domainId, int64Value, uint64Value, int32Value, uint32Value, doubleValue, floatValue",
    "OSRT_API": "start, end, eventClass, globalTid, nameId, returnValue",
    "StringIds": "id, value",
}
_QUERIES = """
import sqlite3, sys
with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as db:
    have = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
found = [f"SELECT {columns} FROM {table}" for table, columns in COLUMNS.items() if table in have]
queries = [query.replace(" end,", ' "end",') for query in found]
"""
BARE = {
    # ADBC takes the type of a column from its first rows: NULLs are -1 here, as in profkit.
    "bare ADBC": ("adbc_driver_sqlite", """
import re
import adbc_driver_sqlite.dbapi as dbapi
with dbapi.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1") as db, db.cursor() as cursor:
    for query in queries:
        columns, table = query.removeprefix("SELECT ").rsplit(" FROM ", 1)
        plain = [c if " AS " in c else f"coalesce({c}, -1) AS {c}" for c in re.split(r", (?![^(]*\\))", columns)]
        cursor.execute(f"SELECT {', '.join(plain)} FROM {table}")
        cursor.fetch_arrow_table()
"""),
    "bare connectorx": ("connectorx", """
import connectorx
for query in queries:
    connectorx.read_sql("sqlite://" + sys.argv[1], query, return_type="arrow")
"""),
    "pandas.read_sql": ("pandas", """
import pandas
with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as db:
    for query in queries:
        pandas.read_sql(query, db)
"""),
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """A program that reads a trace: a command for a path, and its environment if it needs another."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] | None = None


def nsys_contenders(peers: Path | None) -> Iterator[Contender]:
    for name, code in PROFKIT.items():
        yield Contender(name, (sys.executable, "-c", code))
    for name, (module, code) in BARE.items():
        if importlib.util.find_spec(module):
            yield Contender(name, (sys.executable, "-c", f"COLUMNS = {COLUMNS!r}\n{_QUERIES}{code}"))
    if peers is not None and (peers / "nsysai/bin/nsys-ai").exists():
        home = os.environ | {"HOME": str(peers.resolve() / "home")}
        yield Contender("nsys-ai diagnose", (str(peers.resolve() / "nsysai/bin/nsys-ai"), "diagnose"), home)


def kineto_contenders(peers: Path | None) -> Iterator[Contender]:
    for name, code in PROFKIT.items():
        yield Contender(name, (sys.executable, "-c", code))
    yield Contender("json.load", (sys.executable, "-c", "import json, sys; json.load(open(sys.argv[1]))"))
    if peers is not None and (peers / "hta/bin/python").exists():
        code = "import sys; from hta.trace_analysis import TraceAnalysis; TraceAnalysis(trace_files={0: sys.argv[1]})"
        yield Contender("HTA", (str(peers.resolve() / "hta/bin/python"), "-c", code))


def make_file(tools: Path, data: Path, kind: str, size: str) -> Path:
    """A generated trace, made when it is not there."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / (f"{kind}_{size}.sqlite" if kind != "kineto" else "kineto_1m.json")
    if path.exists():
        return path
    tool = tools / ("make_hard_trace.py" if kind == "hard" else "make_llm_trace.py")
    if not tool.exists():
        raise SystemExit(f"{tool} is not there: name the folder of the generators with --tools")
    with tempfile.TemporaryDirectory(dir=data) as folder:
        part = Path(folder) / path.name
        words = ["-k", str(SIZES.get(size, KINETO_KERNELS)), "-o", str(part)]
        if kind == "kineto":
            words = ["-k", str(KINETO_KERNELS), "-o", str(Path(folder) / "beside.sqlite"), "--kineto", str(part)]
        subprocess.run([sys.executable, str(tool), *words], check=True, stdout=subprocess.DEVNULL)
        part.rename(path)
    return path


def forget(path: Path) -> None:
    """Remove what other tools keep beside a file: each run reads the file itself."""
    for kept in path.parent.glob(f"{path.stem}.nsys-cache*"):
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()


def measure_all(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One record a file and contender."""
    files = [(kind, size) for size in arguments.sizes for kind in arguments.kinds]
    for kind, size in [*files, *([("kineto", "kineto")] if arguments.kineto else [])]:
        path = make_file(arguments.tools, arguments.data, kind, size)
        warm(path)
        contenders = kineto_contenders if kind == "kineto" else nsys_contenders
        for contender in contenders(arguments.peers):
            if arguments.only and not any(word in contender.name for word in arguments.only):
                continue
            runs = arguments.runs if contender.name.startswith("profkit") else min(arguments.runs, arguments.other_runs)
            command = (*contender.command, str(path.resolve()))
            found = measure(command, runs, arguments.timeout, contender.env, lambda: forget(path))  # noqa: B023
            yield record_of(kind, size, path, contender.name, found)


def record_of(kind: str, size: str, path: Path, name: str, found: Measured) -> dict[str, Any]:
    """The numbers of one measurement, with the budget where there is one."""
    budget = BUDGET.get((name, size))
    factor = 2 if kind == "hard" else 1
    return {
        "trace": kind if kind == "kineto" else f"{kind} {size}",
        "file_mib": round(path.stat().st_size / MIB),
        "reader": name,
        "wall_s": None if found.median is None else round(found.median, 2),
        "runs_s": [round(seconds, 2) for seconds in found.seconds],
        "cpu_s": round(statistics.median(found.cpu_seconds), 2) if found.cpu_seconds else None,
        "peak_mib": round(found.peak_bytes / MIB) or None,
        "budget_s": budget and budget[0] * factor,
        "budget_mib": budget and budget[1] * factor,
        "problem": found.problem,
    }


def line_of(record: dict[str, Any]) -> str:
    wall = record["problem"] if record["wall_s"] is None else f"{record['wall_s']:.2f}"
    peak, cpu = record["peak_mib"] or "", "" if record["cpu_s"] is None else f"{record['cpu_s']:.2f}"
    budget = f"{record['budget_s']:g} s, {record['budget_mib']} MiB" if record["budget_s"] else ""
    head = f"{record['trace']:10}{record['file_mib']:>7}  {record['reader']:26}"
    return f"{head}{wall:>8}{cpu:>8}{peak:>9}  {budget}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"), help="Folder of the generators.")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "profkit-bench", help="For the files."
    )
    parser.add_argument("--peers", type=Path, help="Folder with environments of other tools.")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["100k", "1m"], help="Of 100k, 1m, 10m.")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["easy", "hard"], help="Of easy, hard.")
    parser.add_argument("--kineto", action="store_true", help="Also the JSON of a PyTorch trace.")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), help="Readers whose names hold one of these words."
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--other-runs", type=int, default=3, help="Most runs of what is not profkit.")
    parser.add_argument("--timeout", type=float, default=600.0, help="Seconds a run may take.")
    arguments = parser.parse_args()
    if unknown := [size for size in arguments.sizes if size not in SIZES]:
        parser.error(f"no such size: {', '.join(unknown)}")
    before = os.getloadavg()[0]
    print(f"{'trace':10}{'MiB':>7}  {'reader':26}{'wall s':>8}{'CPU s':>8}{'peak MiB':>9}  budget", flush=True)
    records = []
    for record in measure_all(arguments):
        records.append(record)
        print(line_of(record), flush=True)
    print(f"load before {before:.1f}, after {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    about = {
        "bench": "open",
        "python": platform.python_version(),
        "profkit": version("profkit"),
        "cores": os.cpu_count(),
    }
    print(json.dumps(about | {"load_before": before, "load_after": os.getloadavg()[0], "results": records}))


if __name__ == "__main__":
    main()
