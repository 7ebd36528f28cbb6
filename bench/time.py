"""What it costs to say where the time goes: ``python -m bench.time --tools DIR --data DIR``.

Idle time by cause, the model of a replay, one replay, and the commands ``check`` and ``whatif`` on the easy generated
trace at 100k and 1M kernels (``--hard``: on the hard one too; ``--large``: also at 10M), each in a new process with the
page cache warm. ``part`` is the time of what is measured, ``wall`` that of the whole process, imports and reading
included, both medians; ``peak`` the most resident memory. Files are made once and kept in ``--data``, as those of
``bench.open``. Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench._measure import Measured, measure, warm
from bench.open import MIB, make_file

REPLAY_BUDGET_S = {"1m": 10.0}
"""Model and one replay of the easy trace; twice that on the hard one."""
_FRAME = """
import json, sys, time
import profkit
from profkit.analysis.context import Analysis
path, out = sys.argv[1:]
parts = {{}}
def timed(name, function, *arguments):
    began = time.perf_counter()
    found = function(*arguments)
    parts[name] = time.perf_counter() - began
    return found
{body}
with open(out, "a") as file:
    file.write(json.dumps(parts) + "\\n")
"""
_OPEN = 'analysis = Analysis(timed("open", profkit.open, path))\n'
BODIES = {
    "idle": _OPEN + 'analysis.runs, analysis.ranges, analysis.owner\ntimed("idle", lambda: analysis.idle)',
    "replay": _OPEN
    + "from profkit.analysis.replay import build_model, replay\nanalysis.whole_work, analysis.call_kind\n"
    'model = timed("model", build_model, analysis)\ntimed("one replay", replay, model)',
    "check": "from profkit.cli import main\ntimed('check', main, ['check', path])",
    "whatif": "from profkit.cli import main\ntimed('whatif', main, ['whatif', path])",
    "whatif --fix": "from profkit.cli import main\n"
    "timed('whatif --fix cuda-graphs', main, ['whatif', path, '--fix', 'cuda-graphs'])",
}


def measure_body(name: str, path: Path, runs: int, timeout_s: float) -> tuple[Measured, dict[str, float]]:
    """(the process, the median of each part of it in seconds); no parts where a run failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "parts"
        code = _FRAME.format(body=BODIES[name])
        found = measure((sys.executable, "-c", code, str(path.resolve()), str(out)), runs, timeout_s)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if found.problem or not lines:
        return found, {}
    return found, {part: statistics.median(line[part] for line in lines) for part in lines[0]}


def measure_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One record for each trace and process."""
    kinds = ("easy", "hard") if options.hard else ("easy",)
    sizes = options.sizes or (["100k", "1m", "10m"] if options.large else ["100k", "1m"])
    for size in sizes:
        for kind in kinds:
            path = make_file(options.tools, options.data, kind, size)
            warm(path)
            for name in options.only or BODIES:
                found, parts = measure_body(name, path, options.runs, options.timeout)
                yield record_of(kind, size, name, found, parts)


def record_of(kind: str, size: str, name: str, found: Measured, parts: dict[str, float]) -> dict[str, Any]:
    """The numbers of one process, with the budget where there is one."""
    budget = REPLAY_BUDGET_S.get(size) if name == "replay" else None
    return {
        "trace": f"{kind} {size}",
        "what": name,
        "parts_s": {part: round(seconds, 3) for part, seconds in parts.items()},
        "wall_s": None if found.median is None else round(found.median, 2),
        "cpu_s": round(statistics.median(found.cpu_seconds), 2) if found.cpu_seconds else None,
        "peak_mib": round(found.peak_bytes / MIB) or None,
        "budget_s": budget and budget * (2 if kind == "hard" else 1),
        "problem": found.problem,
    }


def lines_of(record: dict[str, Any]) -> list[str]:
    """A line for each part, the numbers of the process in the first; the budget is for all parts but reading."""
    numbers = f"{record['wall_s'] or '':>9}{record['cpu_s'] or '':>9}{record['peak_mib'] or '':>10}"
    if record["problem"] or not record["parts_s"]:
        return [f"{record['trace']:10} {record['what']:26}{'':>9}{numbers}  {record['problem']}".rstrip()]
    lines = []
    for place, (part, seconds) in enumerate(record["parts_s"].items()):
        about = numbers if not place else ""
        lines.append(f"{record['trace']:10} {part:26}{seconds:>9.3f}{about}".rstrip())
    if record["budget_s"]:
        total = sum(seconds for part, seconds in record["parts_s"].items() if part != "open")
        lines.append(f"{record['trace']:10} {'model and one replay':26}{total:>9.3f}  budget {record['budget_s']:g} s")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"), help="Folder of the generators.")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "profkit-bench", help="For the files."
    )
    parser.add_argument("--sizes", type=lambda text: text.split(","), help="Of 100k, 1m, 10m.")
    parser.add_argument("--large", action="store_true", help="Also 10M kernels.")
    parser.add_argument("--hard", action="store_true", help="Also the hard trace.")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"Of {', '.join(BODIES)}.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=900.0, help="Seconds a run may take.")
    options = parser.parse_args()
    if unknown := [name for name in options.only or () if name not in BODIES]:
        parser.error(f"nothing is called {', '.join(unknown)}")
    before = os.getloadavg()[0]
    print(f"{'trace':10} {'part':26}{'part s':>9}{'wall s':>9}{'CPU s':>9}{'peak MiB':>10}", flush=True)
    records = []
    for record in measure_all(options):
        records.append(record)
        print("\n".join(lines_of(record)), flush=True)
    print(f"load before {before:.1f}, after {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    about = {"bench": "time", "python": platform.python_version(), "profkit": version("profkit")}
    about |= {"cores": os.cpu_count(), "load_before": before, "load_after": os.getloadavg()[0]}
    print(json.dumps(about | {"results": records}))


if __name__ == "__main__":
    main()
