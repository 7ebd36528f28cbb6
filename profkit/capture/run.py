"""Runs the recorded program: signals reach it, its exit code comes back, its streams are its own."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.errors import ProfkitError

FAILED = 125
"""profkit itself failed; as env, nice and timeout have it."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127

_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_FORWARDED = _ENDING | {signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
# si_code of a signal that the kernel sent, as for Ctrl-C: it went to the whole foreground group, the program included.
_FROM_KERNEL = 0x80
_POLL_S = 0.5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """How a child process ended."""

    code: int
    """As a shell has it: 128 + n for one that signal n ended."""
    signals: tuple[int, ...] = ()
    """What was asked of it from outside, in order."""
    killed: bool = False
    """It outlasted the grace time and got SIGKILL."""


@dataclass(frozen=True)
class Recording:
    """What a recorded run left behind."""

    code: int
    """The exit code for profkit itself."""
    outputs: tuple[Path, ...] = ()
    """Files to open, one for each process or capture range."""
    problem: str = ""
    """Why there is no sound result although one was due; empty if there is, or none was due."""
    whose: str = "the program's own"
    """Where ``code`` comes from."""

    def failed(self, problem: str) -> Recording:
        """This recording with a problem: the program's own code stands, but a failure never looks like success."""
        if self.code:
            return replace(self, problem=problem)
        return replace(self, code=FAILED, problem=problem, whose="profkit's: the program itself succeeded")


def resolve(program: str) -> Path:
    """The file that ``program`` names, by PATH as a shell finds it.

    Raises ProfkitError 127 if there is none, 126 if it cannot be executed.
    """
    found = shutil.which(program)
    if found:
        return Path(found)
    candidates = [Path(program)] if os.sep in program else [Path(d) / program for d in os.get_exec_path()]
    for candidate in candidates:
        if candidate.exists():
            raise ProfkitError(f"{candidate}: cannot be executed; the program was not started", NOT_EXECUTABLE)
    raise ProfkitError(f"{program}: not found; the program was not started", NOT_FOUND)


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdout: int | None = None,
    grace_s: float | None = None,
    say: Say,
) -> Ended:
    """Run ``command`` to its end; inherited files and streams are its own, ``stdout`` replaces that one.

    Signals go to the child. With ``grace_s`` (the child is a profiler that has a report to write) they go to its
    descendants too, and what has not ended that long after the first of SIGINT, SIGTERM and SIGHUP is killed. Raises
    ProfkitError 126 where the system refuses to execute it.
    """
    if not hasattr(signal, "sigtimedwait"):
        raise ProfkitError("trace needs a Linux system", FAILED)
    watched = _FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = subprocess.Popen(
            command,
            env=env,
            stdout=stdout,
            close_fds=False,
            # Blocked signals are inherited. Python between fork and exec is safe: this process has one thread.
            preexec_fn=functools.partial(signal.pthread_sigmask, signal.SIG_SETMASK, before),
        )
        return _watch(child, watched, grace_s, say)
    except OSError as error:
        raise ProfkitError(f"{command[0]}: {error.strerror}; the program was not started", NOT_EXECUTABLE) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(child: subprocess.Popen[bytes], watched: set[signal.Signals], grace_s: float | None, say: Say) -> Ended:
    seen: list[int] = []
    deadline: float | None = None
    killed = False
    while child.poll() is None:
        if deadline is not None and time.monotonic() >= deadline and not killed:
            killed = True
            say(f"still running after the grace time of {grace_s:g} s: killed")
            _send(child.pid, signal.SIGKILL, descendants(child.pid))
        info = signal.sigtimedwait(watched, _POLL_S)
        if info is None or info.si_signo == signal.SIGCHLD:
            continue
        number = signal.Signals(info.si_signo)
        seen.append(number)
        if info.si_code != _FROM_KERNEL:
            _send(child.pid, number, descendants(child.pid) if grace_s is not None else [])
        if grace_s is not None and number in _ENDING and deadline is None:
            deadline = time.monotonic() + grace_s
            say(f"{number.name} passed on; up to {grace_s:g} s for the report to be written (--grace)")
    code = child.returncode
    return Ended(code if code >= 0 else 128 - code, tuple(seen), killed)


def _send(pid: int, number: signal.Signals, others: Sequence[int]) -> None:
    for target in (pid, *others):
        try:
            os.kill(target, number)
        except (ProcessLookupError, PermissionError):
            continue


def descendants(pid: int) -> list[int]:
    """Processes that ``pid`` started, directly or not, as /proc shows them now; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything, spaces and parentheses too.
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    rest = [pid]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found
