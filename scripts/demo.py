"""``make demo``: record the reference loop on whatever is here, check it, report it.

Without a GPU there is nothing to say about one, so a built sample is checked and reported beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from profkit.analysis.context import Analysis
from profkit.api import check_analysis
from profkit.ingest import open_trace
from profkit.report import render_report, write_page
from profkit.samples import launch_bound_decode
from profkit.show import check_text

FOLDER = Path("profkit-demo")
LOOP = [
    "-m",
    "profkit.loop",
    "--preset",
    "nano",
    "--requests",
    "4",
    "--batch",
    "2",
    "--max-new",
    "16",
    "--warm-up",
    "0",
]


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    out = FOLDER / "loop"
    _say(f"recording: profkit trace -o {out} -- python {' '.join(LOOP)}")
    command = [sys.executable, "-m", "profkit", "trace", "--force", "-o", str(out), "--", sys.executable, *LOOP]
    code = subprocess.run(command, check=False).returncode
    recorded = next((path for path in (out.with_suffix(".sqlite"), out.with_suffix(".json.gz")) if path.exists()), None)
    if code or recorded is None:
        _say(f"recording failed (exit code {code}); profkit doctor says what is missing")
        return code or 1
    analysis = Analysis(open_trace(recorded))
    reports = [_check_and_report(f"the loop, {recorded}", analysis, FOLDER / "loop.html")]
    if not analysis.has_gpu_rows:
        sample = Analysis(launch_bound_decode())
        reports.append(_check_and_report("SIMULATED: a launch-bound decode", sample, FOLDER / "sample.html"))
    _say("reports, to open in a browser:")
    for path in reports:
        print(f"  {path}")
    return 0


def _check_and_report(title: str, analysis: Analysis, path: Path) -> Path:
    _say(title)
    result = check_analysis(analysis)
    print(check_text(result))
    write_page(render_report(analysis, result), path)
    return path


def _say(text: str) -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    print(f"\n{'-' * width}\n{text}\n{'-' * width}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
