"""Recording by ``nsys profile``: its command line, the program's own stdout, and what nsys left behind."""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from profkit.capture import nsys
from profkit.capture.run import FAILED, Ended, Recording, Say, run
from profkit.errors import ProfkitError

_REPORTS = (".nsys-rep", ".nsys-rep.qdrep", ".qdrep")
_STREAM = ".qdstrm"
SUFFIXES = (".nsys-rep", ".qdrep", ".sqlite", _STREAM)
"""What may be left off, or written, behind ``-o NAME``."""

# Each default with the options of the user that replace it. CPU samples cost most and answer no question about the GPU;
# without graph nodes a replayed CUDA graph is one opaque row. nsys wants cpuctxsw to follow sample, and backtraces need
# samples.
_DEFAULTS = (
    ("--trace=cuda,nvtx,osrt", {"-t", "--trace"}),
    ("--sample=none", {"-s", "--sample", "-b", "--backtrace", "--cudabacktrace"}),
    ("--cpuctxsw=none", {"-s", "--sample", "-b", "--backtrace", "--cudabacktrace", "--cpuctxsw"}),
    ("--cuda-graph-trace=node", {"--cuda-graph-trace"}),
)
_FOREIGN = {"docker", "kubectl", "nerdctl", "oc", "podman", "srun", "ssh", "sudo"}
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

# nsys prints its own progress to stdout, so it gets our stderr there; the program gets the real stdout back, as an
# inherited descriptor or, where nsys closes those, by its place in /proc. The first line tells us that it was started.
# ``true``, because a failed redirection of ``:`` ends a POSIX shell.
_SHIM = """: >"$0"
for _profkit_out in {places}; do
  if eval "true >$_profkit_out" 2>/dev/null; then eval 'exec "$@"' ">$_profkit_out"; fi
done
exec "$@"
"""


def record(
    tool: Path, command: Sequence[str], name: Path, *, flags: Sequence[str], force: bool, grace_s: float, say: Say
) -> Recording:
    """Run ``command`` under nsys and export what it wrote; ``flags`` are the user's own, for nsys.

    Raises ProfkitError, before the program starts, if an output exists and ``force`` is not set.
    """
    force = force or _value(flags, "-f", "--force-overwrite") == "true"
    _refuse_overwrite(name, force)
    version = nsys.version(tool)
    if nsys.is_too_old(version):
        say(f"nsys {version} is older than {'.'.join(map(str, nsys.OLDEST))}, the oldest that profkit reads in full")
    foreign = foreign_launcher(command)
    for remark in (foreign, _sampling_remark(flags)):
        if remark:
            say(remark)
    before = _outputs(name)
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        started = Path(folder) / "started"
        ended = _run(
            tool, command, name, flags, force=force, version=version, started=started, grace_s=grace_s, say=say
        )
        has_started = started.exists()
    new = [path for path, state in _outputs(name).items() if before.get(path) != state]
    outputs, problem = _collect(tool, version, name, new, ended)
    if not has_started and ended.code != 0:
        failure = f"nsys failed before the program started (its exit code is {ended.code})"
        return Recording(FAILED, problem=f"{failure}; {problem}", whose="profkit's: the program did not run")
    if problem and foreign:
        problem += f"; {foreign}"
    whose = "profkit's SIGKILL after the grace time" if ended.killed else "what nsys passed on"
    if not problem and not ended.killed:
        whose = Recording.whose
    recording = Recording(_own_code(ended, flags, bool(outputs), say), tuple(outputs), whose=whose)
    return recording.failed(problem) if problem else recording


def profile_flags(flags: Sequence[str], name: Path, *, force: bool, version: str) -> list[str]:
    """The arguments of ``nsys profile`` before the program: our defaults, except where the user's own say otherwise."""
    given = {_option(flag) for flag in flags}
    ours = [default for default, replaced_by in _DEFAULTS if not given & replaced_by]
    if nsys.is_too_old(version):
        ours = [default for default in ours if not default.startswith("--cuda-graph-trace")]
    if force and not given & {"-f", "--force-overwrite"}:
        ours.append("--force-overwrite=true")
    return [*ours, "-o", str(name), *flags]


def foreign_launcher(command: Sequence[str]) -> str:
    """A remark if the command has another process start the program, out of the profiler's reach; else empty."""
    name = Path(command[0]).name
    if name not in _FOREIGN:
        return ""
    inside = "srun profkit trace ..." if name == "srun" else f"{name} ... profkit trace -- PROGRAM"
    return f"what {name} starts is not its child and is not traced: put the profiler inside ({inside})"


def _run(
    tool: Path,
    command: Sequence[str],
    name: Path,
    flags: Sequence[str],
    *,
    force: bool,
    version: str,
    started: Path,
    grace_s: float,
    say: Say,
) -> Ended:
    env = dict(os.environ)
    if _value(flags, "-c", "--capture-range") == "nvtx":
        # By default only registered NVTX texts open a capture range, and torch's are not registered.
        env.setdefault("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0")
    full = [str(tool), "profile", *profile_flags(flags, name, force=force, version=version)]
    try:
        fd = fcntl.fcntl(sys.__stdout__ or 1, fcntl.F_DUPFD, 3)
    except OSError:
        return run([*full, *command], env, grace_s=grace_s, say=say)
    os.set_inheritable(fd, True)
    try:
        # One digit is all that a POSIX shell takes.
        places = [f"'&{fd} {fd}>&-'"] if fd <= 9 else []
        shim = _SHIM.format(places=" ".join([*places, f"'>/proc/{os.getpid()}/fd/1'"]))
        shimmed = ["sh", "-c", shim, str(started), *_same_pwd(env), *command]
        return run([*full, *shimmed], env, stdout=2, grace_s=grace_s, say=say)
    finally:
        os.close(fd)


def _same_pwd(env: Mapping[str, str]) -> list[str]:
    """What gives the program its PWD back where that is not the current folder: a shell puts it right on its own."""
    pwd = env.get("PWD")
    if pwd is None:
        return ["env", "-u", "PWD"]
    try:
        return [] if Path(pwd).is_absolute() and Path(pwd).samefile(".") else ["env", f"PWD={pwd}"]
    except OSError:
        return ["env", f"PWD={pwd}"]


def _collect(tool: Path, version: str, name: Path, new: Sequence[Path], ended: Ended) -> tuple[list[Path], str]:
    """(SQLite files of the new reports, what went wrong or empty)."""
    reports = [path for path in new if path.name.endswith(_REPORTS)]
    whole = [path for path in reports if path.stat().st_size > 0]
    streams = [path for path in new if path.suffix == _STREAM]
    if not whole:
        if reports:
            why = "it was killed while writing" if ended.killed else "it ended before it had written it"
            return [], f"{reports[0]} is incomplete (0 bytes): {why}; a longer --grace may help"
        if streams:
            return [], (
                f"the capture ran but its import failed: {streams[0]} is kept; import it with a matching or newer nsys "
                f"(this one is {version or 'of unknown version'})"
            )
        return [], _no_report(name, new, version)
    outputs: list[Path] = []
    for report in whole:
        target = report.with_name(_stem(report.name) + ".sqlite")
        try:
            if target not in new:
                nsys.export(tool, report, target)
        except ProfkitError as error:
            return outputs, f"{report} is kept, but {error.message}"
        outputs.append(target)
    return outputs, ""


def _no_report(name: Path, new: Sequence[Path], version: str) -> str:
    text = f"nsys {version or '(version unknown)'} wrote no {name}.nsys-rep"
    text += f"; new files: {', '.join(map(str, new))}" if new else "; it left no file of that name"
    if nsys.is_too_old(version):
        text += f"; it is older than {'.'.join(map(str, nsys.OLDEST))}, the oldest that profkit supports"
    return text


def _own_code(ended: Ended, flags: Sequence[str], has_report: bool, say: Say) -> int:
    """The program's code; 0 where nsys ended the program as asked, which it reports as 128 + its signal."""
    signal_number = {"": 15, "sigterm": 15, "sigkill": 9}.get(_value(flags, "--kill").lower(), 0)
    if ended.code != 128 + signal_number or ended.signals or not (has_report and _ends_program(flags)):
        return ended.code
    say(f"nsys ended the program by signal {signal_number} when its capture was over, as its flags ask: counts as 0")
    return 0


def _ends_program(flags: Sequence[str]) -> bool:
    ranged = _value(flags, "-c", "--capture-range") not in ("", "none")
    end = _value(flags, "--capture-range-end", "--stop-on-range-end")
    return (ranged and (end in ("", "true") or "shutdown" in end)) or _value(flags, "-d", "--duration") != ""


def _sampling_remark(flags: Sequence[str]) -> str:
    asked = _value(flags, "-s", "--sample") not in ("", "none")
    try:
        paranoid = int(_PARANOID.read_text())
    except (OSError, ValueError):
        return ""
    if not asked or paranoid <= 2:
        return ""
    return (
        f"CPU sampling is off (perf_event_paranoid is {paranoid}, at most 2 is needed); the CUDA trace is not affected"
    )


def _outputs(name: Path) -> dict[Path, tuple[int, int]]:
    """The files that belong to ``-o name`` now, each with its time of change (ns) and size."""
    # nsys fills in %h, %p, %i, %q{ENV} itself, and numbers the reports of repeated capture ranges.
    pattern = re.sub(r"%(?:q\{[^}]*\}|[a-z])", "*", re.sub(r"([\[*?])", r"[\1]", name.name))
    found = {}
    for path in sorted(name.parent.glob(pattern + ".*")):
        middle = path.name[len(name.name) :].split(".")[1:-1] if "%" not in name.name else []
        if path.name.endswith(SUFFIXES) and all(part.isdigit() or part == "nsys-rep" for part in middle):
            state = path.stat()
            found[path] = (state.st_mtime_ns, state.st_size)
    return found


def _refuse_overwrite(name: Path, force: bool) -> None:
    existing = [] if force else list(_outputs(name))
    if existing and "%" not in name.name:
        raise ProfkitError(f"{existing[0]} exists: choose another name with -o, or pass --force", FAILED)


def _stem(report: str) -> str:
    return next(report.removesuffix(suffix) for suffix in (".nsys-rep.qdrep", *_REPORTS) if report.endswith(suffix))


def _option(flag: str) -> str:
    """The option that an argument names: ``--trace`` of ``--trace=cuda``, ``-t`` of ``-tcuda``; else empty."""
    if flag.startswith("--"):
        return flag.partition("=")[0]
    return flag[:2] if flag.startswith("-") else ""


def _value(flags: Sequence[str], *options: str) -> str:
    """The value that the user gave to the last of these options, in any of its spellings; empty if none."""
    value = ""
    for at, flag in enumerate(flags):
        if _option(flag) in options:
            _, has_value, text = flag.partition("=")
            following = flags[at + 1] if at + 1 < len(flags) else ""
            value = text if has_value else (flag[2:] if not flag.startswith("--") else "") or following
    return value
