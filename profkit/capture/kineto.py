"""Recording by the PyTorch profiler inside the program: how it gets in, and what comes out.

The program's own interpreter loads ``_bootstrap/sitecustomize.py`` through PYTHONPATH. Each recorded process leaves
notes and one raw trace in a private folder; from those this module makes ``NAME.json.gz``, after the program has ended
and outside of it, without host names and absolute paths.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.capture.interpreter import PythonCommand
from profkit.capture.run import Recording, Say, run
from profkit.capture.runmeta import run_metadata
from profkit.errors import ProfkitError
from profkit.redact import hide_hosts, hide_paths, mask, mask_value, with_suspicion, without_environment

BOOTSTRAP = Path(__file__).parent / "_bootstrap"
SUFFIX = ".json.gz"

# A JSON text, with the colon if it is a key, and the text behind that if its value is one.
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"(?:(\s*:\s*)(?:"((?:[^"\\]|\\.)*)")?)?')
_HOST_KEYS = {"host", "hostname", "host_name", "node_name", "nodename"}
# Names of kernels, ranges and Python functions are what a trace is about; they are data and stay.
_NAME_KEYS = {"name", "cat", "ph"}
_MAYBE_PRIVATE = re.compile(r'/|\\|"(?:host|node_?name|trace_?name)', re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """When a recording ends by itself."""

    steps: int = 200
    seconds: float = 60.0


@dataclass(frozen=True)
class Notes:
    """What the recorder noted in one process: its events, each with the last text that came with it."""

    pid: int
    events: Mapping[str, str]

    @property
    def rank(self) -> str:
        """The process's RANK, as launchers set it; empty if it has none."""
        rank = self.events.get("rank", "")
        return rank if rank.isdigit() else ""

    @property
    def raw(self) -> str:
        return f"{self.pid}.json"


def record(
    command: Sequence[str],
    python: PythonCommand,
    name: Path,
    *,
    limits: Limits,
    children: bool | None,
    force: bool,
    say: Say,
) -> Recording:
    """Run ``command`` with the recorder inside and write ``name``.json.gz.

    ``children``: record the Python processes that it starts too; None means for known launchers only. Raises
    ProfkitError, before the program starts, if an output exists and ``force`` is not set.
    """
    follow = python.launcher if children is None else children
    _refuse_overwrite(name, force)
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        ended = run(command, injected(dict(os.environ), Path(folder), limits, follow), say=say)
        notes = read_notes(Path(folder))
        outputs, problem = [], ""
        written = [n for n in notes if "written" in n.events and _holds_events(Path(folder) / n.raw)]
        # Where there are ranks, a process without one is their launcher, which does no work of its own.
        written = sorted((n for n in written if n.rank), key=lambda n: int(n.rank)) or written
        for n in written:
            target = name.with_name(_output_name(name.name, n, alone=len(written) == 1))
            try:
                _publish(Path(folder) / n.raw, target, run_metadata(command, _facts(n)))
            except OSError as error:
                problem = f"{target}: could not be written: {error.strerror}"
                break
            outputs.append(target)
            _say_what_was_recorded(n, target, limits, say)
    if not outputs and not problem:
        problem = explain_nothing(notes, follow, say)
    recording = Recording(ended.code, tuple(outputs))
    return recording.failed(problem) if problem else recording


def injected(env: dict[str, str], folder: Path, limits: Limits, children: bool) -> dict[str, str]:
    """``env`` as the program gets it; the bootstrap takes these changes back before the program's first line."""
    before = env.get("PYTHONPATH")
    if before is not None:
        env["PROFKIT_TRACE_PATH"] = before
    # An empty entry would mean the current folder.
    env["PYTHONPATH"] = os.pathsep.join([str(BOOTSTRAP), before] if before else [str(BOOTSTRAP)])
    env["PROFKIT_TRACE_DIR"] = str(folder)
    env["PROFKIT_TRACE_STEPS"] = str(limits.steps)
    env["PROFKIT_TRACE_SECONDS"] = str(limits.seconds)
    env["PROFKIT_TRACE_CHILDREN"] = "1" if children else "0"
    return env


def read_notes(folder: Path) -> list[Notes]:
    """The notes of every process that loaded the recorder, in the order in which they did."""
    files = sorted(folder.glob("*.notes"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    notes = []
    for file in files:
        lines = (line.split("\t", 1) for line in file.read_text(encoding="utf-8").splitlines() if "\t" in line)
        notes.append(Notes(int(file.stem), dict(lines)))
    return notes


def _refuse_overwrite(name: Path, force: bool) -> None:
    if force:
        return
    for existing in (name.with_name(name.name + SUFFIX), *sorted(name.parent.glob(f"{name.name}.rank*{SUFFIX}"))):
        if existing.exists():
            raise ProfkitError(f"{existing} exists: choose another name with -o, or pass --force", 125)


def _output_name(name: str, notes: Notes, *, alone: bool) -> str:
    if alone:
        return name + SUFFIX
    return name + (f".rank{notes.rank}" if notes.rank else f".pid{notes.pid}") + SUFFIX


def _facts(notes: Notes) -> dict[str, str]:
    kept = {"torch": "torch", "started": "activities", "stopped": "stopped_by", "steps": "steps", "rank": "rank"}
    return {fact: notes.events[event] for event, fact in kept.items() if notes.events.get(event)}


def _say_what_was_recorded(notes: Notes, target: Path, limits: Limits, say: Say) -> None:
    steps, reason = notes.events.get("steps", "0"), notes.events.get("stopped", "")
    say(f"{target}: PyTorch profiler, {notes.events.get('started', '')}, {steps} steps; ended because: {reason}")
    if steps == "0" and reason.endswith("s recorded"):
        say(f"no step began within {limits.seconds:g} s: mark them with profkit.stage('decode'), or raise --seconds")


def explain_nothing(notes: Sequence[Notes], follow: bool, say: Say) -> str:
    """Say why there is no trace; the result is that reason if a trace was due, else empty."""
    for n in notes:
        if "error" in n.events:
            return f"no trace: the PyTorch profiler failed: {n.events['error']}"
    for n in notes:
        if "started" in n.events and "written" not in n.events:
            return "no trace: the program ended (by a signal, a crash, or another program in its place) while recording"
    if any("written" in n.events for n in notes):
        say("no trace: torch was imported, but ran nothing while it was recorded")
        return ""
    if any("torch" in n.events for n in notes):
        return "no trace: the program ended before the PyTorch profiler had started"
    if notes:
        hint = "" if follow else " (if a Python process that it starts does, pass --children)"
        say(f"no trace: the program did not import torch{hint}")
    else:
        say("no trace: the program started no Python that loads sitecustomize")
    return ""


def _holds_events(raw: Path) -> bool:
    """Whether a raw trace has an event besides the span of the recording itself, which is of the category Trace."""
    with raw.open(encoding="utf-8", errors="replace") as lines:
        return any('"cat"' in line and '"cat": "Trace"' not in line for line in lines)


def _publish(raw: Path, target: Path, metadata: Mapping[str, str]) -> None:
    """Write ``raw`` to ``target``, cleaned and compressed; ``target`` appears whole or not at all."""
    part = target.with_name(target.name + ".part")
    try:
        with raw.open(encoding="utf-8", errors="surrogateescape", newline="") as lines, gzip.open(part, "wb", 5) as out:
            for line in clean(lines, target.name, socket.gethostname(), metadata):
                out.write(line.encode("utf-8", "surrogateescape"))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def clean(lines: Iterable[str], trace_name: str, host: str, metadata: Mapping[str, str]) -> Iterator[str]:
    """The lines of a Kineto JSON without secrets, host names and absolute paths, and with ``metadata`` as ``profkit``.

    Works on the text, pair by pair: a trace can be larger than the memory, and digits of times must stay as they are.
    Names of events lose secrets only.
    """

    def clean_value(key: str, value: str) -> str:
        if key.lower() in _HOST_KEYS:
            return ""
        if key.lower() in ("tracename", "trace_name"):
            return trace_name
        if key in _NAME_KEYS:
            return mask(value)
        return hide_hosts(hide_paths(mask_value(key, value)), [host])

    def clean_text(match: re.Match[str]) -> str:
        first, colon, value = match.groups()
        if colon is None:
            return f'"{clean_value("", first)}"'
        return match[0] if value is None else f'"{first}"{colon}"{clean_value(first, value)}"'

    entry = f'"profkit": {json.dumps(dict(metadata))},'
    due = True
    for line, suspect in with_suspicion(without_environment(lines)):
        if due and line.strip().startswith('"schemaVersion"') and line.strip().endswith(","):
            line, due = f"{line.rstrip()}\n    {entry}\n", False
        elif suspect or host in line or _MAYBE_PRIVATE.search(line):
            line = _TEXT.sub(clean_text, line)
        yield line
