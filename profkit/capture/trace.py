"""Chooses the profiler for a command: nsys where it is installed, else the PyTorch profiler for a Python program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.capture import kineto, nsys, nsys_record
from profkit.capture.interpreter import python_command
from profkit.capture.run import FAILED, NOT_FOUND, Recording, Say, resolve
from profkit.errors import ProfkitError

_KNOWN_SUFFIXES = (kineto.SUFFIX, ".json", *nsys_record.SUFFIXES)


@dataclass(frozen=True)
class Options:
    """What a user may say about a recording; the defaults are the command line's."""

    name: Path
    """Where the outputs go, without their suffixes."""
    force: bool = False
    profiler: str = "auto"
    """auto, nsys or torch."""
    nsys: Path | None = None
    nsys_flags: tuple[str, ...] = ()
    grace_s: float = 10.0
    steps: int = 200
    seconds: float = 60.0
    children: bool | None = None
    """Whether to record child processes; None means for known launchers."""


def record(command: Sequence[str], options: Options, say: Say) -> Recording:
    """Run ``command`` under a profiler. Raises ProfkitError if it was not started, with the code that says why."""
    resolve(command[0])
    name = _without_suffix(options.name)
    if not name.parent.is_dir():
        raise ProfkitError(f"{name.parent}: no such folder; the program was not started", FAILED)
    found = nsys.find(options.nsys) if options.profiler != "torch" else None
    if found is not None and found.path is not None:
        return nsys_record.record(
            found.path,
            command,
            name,
            flags=options.nsys_flags,
            force=options.force,
            grace_s=options.grace_s,
            say=say,
        )
    why = found.why_not() if found is not None else "--profiler torch"
    python = python_command(command) if options.profiler != "nsys" else None
    if python is None:
        reason = f"{why}; the program was not started"
        if options.profiler != "nsys":
            reason = f"{command[0]} is no Python, which the PyTorch profiler needs: {reason}"
        raise ProfkitError(reason, NOT_FOUND)
    if python.obstacle:
        raise ProfkitError(
            f"{python.obstacle}, so the PyTorch profiler cannot be loaded: leave the flag out, or install nsys; "
            "the program was not started",
            NOT_FOUND,
        )
    if found is not None:
        say("no nsys found: recording by the PyTorch profiler")
    if options.nsys_flags:
        say(f"flags for nsys are not used: {' '.join(options.nsys_flags)}")
    return kineto.record(
        command,
        python,
        name,
        limits=kineto.Limits(options.steps, options.seconds),
        children=options.children,
        force=options.force,
        say=say,
    )


def _without_suffix(name: Path) -> Path:
    for suffix in _KNOWN_SUFFIXES:
        if name.name.endswith(suffix) and name.name != suffix:
            return name.with_name(name.name.removesuffix(suffix))
    return name
