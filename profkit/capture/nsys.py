"""Nsight Systems: where it is installed, which version it is, and how a report becomes SQLite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.capture.run import FAILED, NOT_FOUND
from profkit.errors import ProfkitError

OLDEST = (2022, 1)
"""The oldest version whose reports have what profkit reads: .nsys-rep files and CUDA graph nodes."""
INSTALL_HINT = (
    "install nsight-systems-cli from NVIDIA's package repository, or give its place by --nsys PATH or NSYS_DIR"
)
EXPORT_TIMEOUT_S = 3600

_INSTALLS = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems/*/host-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/usr/local/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/lib/nsight-systems/*/nsys",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Systems/bin/nsys",
)
_INSIDE_NSYS_DIR = ("nsys", "bin/nsys", "target-linux-*/nsys", "host-linux-*/nsys")


@dataclass(frozen=True)
class Found:
    """The result of looking for nsys."""

    path: Path | None
    looked_in: tuple[str, ...]
    unusable: tuple[Path, ...] = ()
    """Files of that name which cannot be executed."""

    def why_not(self) -> str:
        """One sentence for a user who needs nsys and has none."""
        broken = "".join(f"; {path} is there but cannot be executed" for path in self.unusable)
        return f"nsys not found{broken}; looked in {', '.join(self.looked_in)}; {INSTALL_HINT}"


def find(explicit: Path | None = None, env: Mapping[str, str] | None = None) -> Found:
    """Look for nsys: ``explicit``, else NSYS_DIR, PATH, the known install folders (newest version first).

    Raises ProfkitError 127 if ``explicit`` is given and is not an executable nsys, or a folder with one.
    """
    env = os.environ if env is None else env
    if explicit is not None:
        usable, broken = _split([explicit] if explicit.is_file() else _inside(explicit))
        if not usable:
            state = "cannot be executed" if broken else "no nsys there"
            raise ProfkitError(f"--nsys {explicit}: {state}; the program was not started", NOT_FOUND)
        return Found(usable[0], (str(explicit),))
    looked_in = []
    candidates: list[Path] = []
    if env.get("NSYS_DIR"):
        looked_in.append("NSYS_DIR")
        candidates += _inside(Path(env["NSYS_DIR"]))
    looked_in.append("PATH")
    candidates += [Path(folder) / "nsys" for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder]
    looked_in += [pattern.removesuffix("/nsys") for pattern in _INSTALLS]
    candidates += sorted(_installed(), key=_version_in_path, reverse=True)
    usable, broken = _split(candidates)
    return Found(usable[0] if usable else None, tuple(looked_in), tuple(broken))


def version(nsys: Path) -> str:
    """What ``nsys --version`` calls itself, such as ``2024.4.1.61``; empty if it does not tell."""
    try:
        answer = subprocess.run(
            [nsys, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\d{4}(?:\.\d+)+", answer.stdout)
    return match[0] if match else ""


def is_too_old(version_text: str) -> bool:
    """Whether a version is known and older than profkit supports."""
    return bool(version_text) and _numbers(version_text) < OLDEST


def export(nsys: Path, report: Path, target: Path) -> None:
    """Write ``report`` as SQLite to ``target``.

    Raises ProfkitError 125 with nsys's own last lines if it fails or leaves no file; nothing half-written stays.
    """
    command = [str(nsys), "export", "-t", "sqlite", "-o", str(target), "-f", "true", str(report)]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=EXPORT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        target.unlink(missing_ok=True)
        raise ProfkitError(f"nsys export of {report} failed: {error}", FAILED) from error
    written = target.is_file() and target.stat().st_size > 0
    if answer.returncode == 0 and written:
        return
    target.unlink(missing_ok=True)
    what = f"exit code {answer.returncode}" if answer.returncode else f"it wrote no {target}"
    raise ProfkitError(f"nsys export of {report} failed: {what}: {last_lines(answer.stderr + answer.stdout)}", FAILED)


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of a program's output that say anything, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "it said nothing"


def _inside(folder: Path) -> list[Path]:
    return [path for pattern in _INSIDE_NSYS_DIR for path in sorted(folder.glob(pattern), reverse=True)]


def _installed() -> Iterator[Path]:
    for pattern in _INSTALLS:
        yield from Path("/").glob(pattern.removeprefix("/"))


def _split(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """(executable, there but not executable), each in order."""
    files = [path for path in paths if path.is_file()]
    usable = [path for path in files if shutil.which(str(path))]
    return usable, [path for path in files if path not in usable]


def _version_in_path(path: Path) -> tuple[int, ...]:
    match = re.search(r"\d{2,4}(?:\.\d+)+", str(path))
    return _numbers(match[0]) if match else ()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
