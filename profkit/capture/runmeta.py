"""What is written into a capture about the run itself: enough to compare two runs, nothing that is private."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from profkit.redact import hide_paths, mask_command

__all__ = ["hide_paths", "mask_command", "run_metadata"]


def run_metadata(command: Sequence[str], facts: dict[str, str]) -> dict[str, str]:
    """The ``profkit`` entry of a capture: the masked command, versions, and ``facts`` of the recording."""
    return {"profkit_version": version("profkit"), "command": mask_command(command), **facts}
