"""Which command lines start a Python, and how that Python is started."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"python(\d+(\.\d+)*t?)?(\.exe)?")
_WITH_VALUE = "WX"
_ENDS_FLAGS = "cm"
# Programs that set something up and then run the command in their arguments, and are no Python themselves.
_WRAPPERS = {"env", "nice", "nohup", "numactl", "setarch", "stdbuf", "taskset", "time", "timeout", "uv"}
# Python programs whose work is done by Python processes that they start.
_LAUNCHERS = {"accelerate", "deepspeed", "pdm", "pipenv", "poetry", "sglang", "torchrun", "vllm"}
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "sglang", "vllm")
_FLAGS_THAT_KEEP_US_OUT = {
    "I": "-I ignores PYTHONPATH",
    "E": "-E ignores PYTHONPATH",
    "S": "-S leaves out the site module",
}


@dataclass(frozen=True)
class PythonCommand:
    """A command that runs Python code."""

    label: str
    """What runs, for a file name: the script or module, else ``python``."""
    flags: str = ""
    """The interpreter's own one-letter flags."""
    launcher: bool = False
    """Whether the work is done by other Python processes that it starts."""

    @property
    def obstacle(self) -> str:
        """Why nothing can be loaded into this interpreter, or empty."""
        return next((why for flag, why in _FLAGS_THAT_KEEP_US_OUT.items() if flag in self.flags), "")


def python_command(command: Sequence[str]) -> PythonCommand | None:
    """What Python code ``command`` runs; None if it is no Python as far as its words and its shebang tell."""
    name = Path(command[0]).name
    if _PYTHON.fullmatch(name):
        return _parse_flags(command[1:])
    if name in _WRAPPERS:
        for at, word in enumerate(command[1:], start=1):
            if _PYTHON.fullmatch(Path(word).name):
                return _parse_flags(command[at + 1 :])
        return None
    interpreter = _shebang(command[0])
    if interpreter is None:
        return None
    script = _parse_flags([*interpreter[1:], command[0]])
    return PythonCommand(Path(name).stem, script.flags, name in _LAUNCHERS)


def label_of(command: Sequence[str]) -> str:
    """A short name for what runs, fit for a file name."""
    python = python_command(command)
    name = python.label if python else Path(command[0]).stem
    return re.sub(r"[^\w.-]+", "_", name).strip("._-") or "program"


def _parse_flags(arguments: Sequence[str]) -> PythonCommand:
    """Read the interpreter's own arguments, up to the code that it runs (``python -Wd -um pkg.mod`` and the like)."""
    flags = ""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word.startswith("--"):
            if word == "--check-hash-based-pycs" and rest:
                rest.pop(0)
            continue
        for at, letter in enumerate(word[1:], start=1):
            value = word[at + 1 :]
            if letter in _ENDS_FLAGS:
                code = value or (rest[0] if rest else "")
                return PythonCommand(code if letter == "m" else "python", flags, letter == "m" and _launches(code))
            if letter in _WITH_VALUE:
                if not value and rest:
                    rest.pop(0)
                break
            flags += letter
    if rest and rest[0] not in ("-", "--"):
        return PythonCommand(Path(rest[0]).stem, flags, Path(rest[0]).name in _LAUNCHERS)
    return PythonCommand("python", flags)


def _launches(module: str) -> bool:
    return any(module == known or module.startswith(known + ".") for known in _LAUNCHER_MODULES)


def _shebang(program: str) -> list[str] | None:
    """The interpreter and its arguments from the first line of a console script, if that is a Python."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        with Path(found).open("rb") as file:
            lines = file.read(1024).decode(errors="replace").splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if len(lines) > 1 and lines[1].startswith("'''exec' "):
        # pip writes this for an interpreter whose path is too long, or has a space, for a first line.
        words = lines[1].removeprefix("'''exec' ").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S" and "=" not in word]
    if words and _PYTHON.fullmatch(Path(words[0].strip('"')).name):
        return [word for word in words if word not in ('"$0"', '"$@"')]
    return None
