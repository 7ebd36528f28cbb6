"""Wall time and peak memory of a new process with everything that it starts."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import struct_rusage

POLL_SECONDS = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Measured:
    """``seconds`` of each run that ended well, the largest ``peak_bytes`` of them, and why there are no more."""

    seconds: tuple[float, ...] = ()
    peak_bytes: int = 0
    problem: str = ""
    cpu_seconds: tuple[float, ...] = ()
    """Time on a core, of all threads and of children that were waited for: a busy machine changes it little."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None


def measure(
    command: Sequence[str],
    runs: int = 5,
    timeout_s: float = 600.0,
    env: Mapping[str, str] | None = None,
    before: Callable[[], object] = lambda: None,
) -> Measured:
    """Run ``command`` that many times, one after the other, each after ``before``.

    A failure or a run over the limit ends the measurement.
    """
    seconds: list[float] = []
    cpu: list[float] = []
    peak = 0
    for _ in range(runs):
        before()
        # A folder of its own: some programs leave files where they are started.
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=folder,
                env=dict(env or os.environ),
                start_new_session=True,
            )
            most, ended = _watch(process.pid, began + timeout_s)
            took = time.perf_counter() - began
            if ended is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return Measured(tuple(seconds), peak, f"over {timeout_s:g} s")
            code, usage = ended
            process.returncode = code
            if code:
                errors.seek(0)
                words = errors.read().decode(errors="replace").strip().splitlines()
                return Measured(tuple(seconds), peak, f"exit {code}: {words[-1][:120] if words else ''}")
        seconds.append(took)
        cpu.append(usage.ru_utime + usage.ru_stime)
        peak = max(peak, most)
    return Measured(tuple(seconds), peak, "", tuple(cpu))


def _watch(pid: int, deadline: float) -> tuple[int, tuple[int, struct_rusage] | None]:
    """(largest sum of resident memory of the tree, (exit code, what the process used) or None past the deadline).

    The sum is sampled; with it the kernel's own high-water mark of the first process, so that a short peak between two
    samples is not missed. (``ru_maxrss`` would be no measure: it starts with the size of the process that forked.)
    Pages that processes share count once for each.
    """
    most = 0
    while time.perf_counter() < deadline:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return most, (os.waitstatus_to_exitcode(status), usage)
        most = max(most, sum(_resident(member) for member in _tree(pid)), _high_water(pid))
        time.sleep(POLL_SECONDS)
    return most, None


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for member in found:  # grows while it is walked
        for tasks in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found += [int(child) for child in tasks.read_text().split()]
            except OSError:
                continue
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _high_water(pid: int) -> int:
    """Most resident memory that a process ever had since its program was loaded."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def warm(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
