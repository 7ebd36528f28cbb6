"""The command line: one ``COMMAND`` a file, and the one place where an error becomes a line and an exit code.

A command parses, makes one library call, and prints. Results go to stdout, remarks and progress to stderr. Heavy
imports stand inside the functions: ``--help`` of every command must answer in 0.3 s.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import typer

from profkit.errors import ProfkitError
from profkit.plugins import discover

# typer carries a copy of click of its own since 0.26 and publishes only the leaves of its error tree.
_ParserError = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

EXIT_GATE_FAILED = 3
EXIT_GATE_UNDECIDED = 4


@dataclass(frozen=True)
class Command:
    """One command: ``run`` is a typer function whose docstring is the help, ``example`` a line that works as typed."""

    name: str
    run: Callable[..., object]
    example: str
    aliases: tuple[str, ...] = ()
    takes_program: bool = False
    """Arguments after the first ``--`` are a program's: the parser never sees them, ``ctx.obj`` is their list."""


def build_app(commands: dict[str, Command]) -> typer.Typer:
    """The typer application of all commands; aliases work but are not listed."""
    app = typer.Typer(
        name="profkit",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Where does each step's time go, and what would fix it?",
        epilog="profkit FILE is short for profkit check FILE.",
    )

    @app.callback(invoke_without_command=True)
    def root(
        show_version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if show_version:
            print(version("profkit"))
            raise typer.Exit

    for command in commands.values():
        settings = {"ignore_unknown_options": True, "allow_extra_args": True} if command.takes_program else {}
        for name in (command.name, *command.aliases):
            app.command(
                name,
                epilog=f"Example: {command.example}",
                hidden=name != command.name,
                context_settings=settings,
            )(command.run)
    return app


def prepare(argv: list[str], commands: dict[str, Command]) -> tuple[list[str], list[str]]:
    """(arguments for the parser, a program's own arguments): expands ``profkit FILE``, splits at the first ``--``."""
    by_name = {name: c for c in commands.values() for name in (c.name, *c.aliases)}
    if argv and not argv[0].startswith("-") and argv[0] not in by_name and looks_like_path(argv[0]):
        argv = ["check", *argv]
    command = by_name.get(argv[0]) if argv else None
    if command is None or not command.takes_program or "--" not in argv:
        return argv, []
    cut = argv.index("--")
    return argv[:cut], argv[cut + 1 :]


def looks_like_path(text: str) -> bool:
    """Whether a first argument that is no command is meant as a file: it exists, or has a separator or a suffix."""
    try:
        return Path(text).exists() or os.sep in text or Path(text).suffix != ""
    except (OSError, ValueError):  # too long, or with a NUL: no command either, so the error should speak of a file
        return True


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; every ProfkitError becomes one line on stderr."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    gc.freeze()  # what was imported stays
    gc.set_threshold(100_000, 50, 50)  # arrays are no cycles: looking for some takes 3 % of the time to read a trace
    try:
        commands = discover("profkit.cli", "COMMAND", Command)
        args, program = prepare(sys.argv[1:] if argv is None else argv, commands)
        code = typer.main.get_command(build_app(commands)).main(
            args, prog_name="profkit", standalone_mode=False, obj=program
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ProfkitError as error:
        print(f"profkit: {error.message}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our stdout went away (| head): nothing more can be said, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        if not isinstance(error, _ParserError):
            raise
        error.show()  # type: ignore[attr-defined]
        return int(error.exit_code)  # type: ignore[attr-defined]
