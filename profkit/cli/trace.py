"""``profkit trace``: run a program under a profiler, and say what was found."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path

import typer

from profkit.cli import Command
from profkit.errors import ProfkitError, UsageError


def trace(
    ctx: typer.Context,
    output: Path | None = typer.Option(
        None, "--output", help="Or -o: NAME of the files. Default: profkit-PROGRAM-DATE-TIME in the current folder."
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite files of that name."),
    profiler: str = typer.Option("auto", "--profiler", help="nsys, torch, or auto: nsys where it is installed."),
    nsys: Path | None = typer.Option(None, "--nsys", help="nsys, or its folder. Default: NSYS_DIR, PATH, /opt/nvidia."),
    grace: float = typer.Option(10.0, "--grace", min=0, help="Seconds for nsys to write its report after a signal."),
    steps: int = typer.Option(200, "--steps", min=1, help="PyTorch profiler: stop after so many decode/prefill steps."),
    seconds: float = typer.Option(60.0, "--seconds", min=0, help="PyTorch profiler: stop after so many seconds."),
    children: bool | None = typer.Option(
        None,
        "--children/--no-children",
        help="PyTorch profiler: record Python child processes. Default: launchers only.",
    ),
) -> None:
    """Record a program and say what was found.

    Under Nsight Systems, or under the PyTorch profiler where there is no nsys.

    Flags that are not listed here go to nsys. The program's arguments, streams and exit code are its own: 128+n if
    signal n ended it, 125 if profkit failed, 126 if the program cannot be executed, 127 if it was not found.
    """
    from profkit.capture.interpreter import label_of
    from profkit.capture.trace import Options, record

    command: list[str] = ctx.obj or []
    if not command:
        raise UsageError("no program behind --: profkit trace [FLAGS] -- PROGRAM ARGUMENTS")
    if profiler not in ("auto", "nsys", "torch"):
        raise UsageError(f"--profiler {profiler}: must be auto, nsys or torch")
    short, flags = take_output(ctx.args)
    name = output or short or Path(f"profkit-{label_of(command)}-{datetime.now():%Y%m%d-%H%M%S}")
    options = Options(
        name, force, profiler, nsys, tuple(flags), grace_s=grace, steps=steps, seconds=seconds, children=children
    )
    recording = record(command, options, say)
    for path in recording.outputs:
        if not report(path) and not recording.problem:
            recording = recording.failed(f"{path} was recorded but could not be opened")
    if recording.problem:
        say(recording.problem)
    if recording.code:
        say(f"exit code {recording.code} is {recording.whose}")
    raise typer.Exit(recording.code)


def take_output(flags: list[str]) -> tuple[Path | None, list[str]]:
    """Take ``-o NAME`` out of the flags that the parser does not know.

    The parser must not know a short option: it would find an ``o`` in nsys's ``-tcuda,osrt`` and take the rest for its
    value. Raises UsageError for ``-o`` without a name.
    """
    output: Path | None = None
    rest: list[str] = []
    words = iter(flags)
    for word in words:
        if not word.startswith("-o"):
            rest.append(word)
            continue
        name = word[2:].removeprefix("=") or next(words, "")
        if not name:
            raise UsageError("-o needs a name")
        output = Path(name)
    return output, rest


def report(path: Path) -> bool:
    """Print headline and findings of what was recorded; False, after one line, if it cannot be opened."""
    try:
        from profkit.api import check

        result = check(path)
    except ProfkitError as error:
        say(f"{path}: {error.message}")
        return False
    except Exception as error:  # a bug behind this call must not cost the program's exit code
        say(f"{path}: {type(error).__name__}: {error}")
        return False
    say(f"{path}: {result.headline}")
    for finding in result.findings:
        if finding.message not in result.headline:
            say(f"  {finding.severity} {finding.code}: {finding.message}")
    say(f"next: profkit check {shlex.quote(str(path))}, or profkit report {shlex.quote(str(path))}")
    return True


def say(text: str) -> None:
    """One remark, on stderr: stdout is the program's."""
    print(f"profkit: {' '.join(text.split())}", file=sys.stderr, flush=True)


COMMAND = Command(
    name="trace",
    run=trace,
    example="profkit trace -o run1 -- python generate.py --batch 8",
    aliases=("profile",),
    takes_program=True,
)
