"""A clean-install smoke test: build a wheel, install it in a fresh environment, use it as a user would.

Proves that links are followed, that data files are inside, and that nothing needs torch. Loud when a step fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUST_CONTAIN = (
    "profkit/analysis/constants.toml",
    "profkit/reports/base.html",
    "profkit/reports/sections/",
    "profkit/kernels/__init__.py",
    "profkit/loop/",
    "profkit/py.typed",
)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wheel = _build(Path(folder))
        _check_content(wheel)
        python = _install(Path(folder), wheel)
        _use(python, Path(folder))
    print("clean install: ok")
    return 0


def _build(folder: Path) -> Path:
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # what an earlier build left there would go into the wheel
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], ROOT)
    return next(folder.glob("profkit-*.whl"))


def _check_content(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    missing = [wanted for wanted in MUST_CONTAIN if not any(name.startswith(wanted) for name in names)]
    if missing:
        raise SystemExit(f"clean install: the wheel lacks {', '.join(missing)}")


def _install(folder: Path, wheel: Path) -> Path:
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], folder)
    return python


def _use(python: Path, folder: Path) -> None:
    """From a folder that is not the project, so that only what was installed is found."""
    _run([str(python), "-m", "profkit", "--version"], folder)
    _run([str(python), "-m", "profkit", "rules"], folder)
    _run([str(python), "-m", "profkit", "doctor"], folder)
    trace = ROOT / "traces" / "loop-cpu-nano.json.gz"
    _run([str(python), "-m", "profkit", "check", str(trace), "--json"], folder)
    _run([str(python), "-m", "profkit", "report", str(trace), "-o", "report.html"], folder)
    if not (folder / "report.html").stat().st_size:
        raise SystemExit("clean install: the report is empty")
    code = subprocess.run(
        [str(python), "-m", "profkit", "loop"], cwd=folder, capture_output=True, text=True, check=False
    )
    if code.returncode != 1 or "profkit[loop]" not in code.stderr:
        raise SystemExit(f"clean install: loop without torch must name its extra, said: {code.stderr!r}")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"clean install: {' '.join(command[:6])} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


if __name__ == "__main__":
    sys.exit(main())
