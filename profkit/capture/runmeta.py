"""What is written into a capture about the run itself: enough to compare two runs, nothing that is private."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

MASK = "***"

_SECRET_OPTION = re.compile(r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|credential|auth)")
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|AKIA|nvapi-|eyJ)[\w.-]{8,}")
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
# A path of at least two parts that starts at a word, so that units such as GB/s and fractions stay.
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~*<-])/(?:[^/\s\"'\\,;:()=]+/+)+([^/\s\"'\\,;:()=]*)")
_DRIVE_PATH = re.compile(r"\b[A-Za-z]:(?:\\{1,2}|/)(?:[^\\/\s\"']+(?:\\{1,2}|/))*([^\\/\s\"']*)")


def mask_command(command: Sequence[str]) -> str:
    """The command in one line: secrets masked, absolute paths cut to their last part."""
    words: list[str] = []
    secret_next = False
    for word in command:
        name, has_value, _ = word.partition("=")
        is_secret = bool(_SECRET_OPTION.search(name))
        if secret_next and not word.startswith("-"):
            word = MASK
        elif is_secret and has_value:
            word = f"{name}={MASK}"
        secret_next = is_secret and not has_value and word.startswith("-")
        words.append(hide_paths(_URL_LOGIN.sub(f"{MASK}@", _SECRET_VALUE.sub(MASK, word))))
    return " ".join(words)


def hide_paths(text: str) -> str:
    """``text`` with absolute paths cut to their last part."""
    return _DRIVE_PATH.sub(r"\1", _ABSOLUTE_PATH.sub(r"\1", text))


def run_metadata(command: Sequence[str], facts: dict[str, str]) -> dict[str, str]:
    """The ``profkit`` entry of a capture: the masked command, versions, and ``facts`` of the recording."""
    return {"profkit_version": version("profkit"), "command": mask_command(command), **facts}
