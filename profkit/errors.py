"""The one error type that a user sees: a message of one line, and the exit code that goes with it."""

from __future__ import annotations

from profkit.text import printable


class ProfkitError(Exception):
    """Something that the user can act on: one line, which the command line prints before it exits with the code."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        self.message = printable(" ".join(message.split()))
        super().__init__(self.message)
        if exit_code is not None:
            self.exit_code = exit_code


class InputError(ProfkitError):
    """A file that is missing, is no trace, is damaged, or lacks what is needed."""


class UsageError(ProfkitError):
    """A command line or an argument that makes no sense."""

    exit_code = 2


class MissingExtra(ProfkitError):  # noqa: N818 - read as what happened
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        how = f"pip install 'profkit[{extra}]' (in a clone: '.[{extra}]')"
        super().__init__(f"{feature} needs packages that are not installed: {how}")
