"""What holds for any input, however damaged: asked of the command line, in this process."""

from __future__ import annotations

import io
import json
import random
import re
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.cli import main

SIGNED = {"start_ns", "end_ns", "offset_ns"}
"""Points in time and differences; every other ``_ns`` is a length."""
_UNFORESEEN = "or a fault of profkit"
_NEGATIVE = re.compile(r"(?<![\w.,/-])-\d[\d,.]* (?:ns|µs|ms|s|B|kB|MB|GB|TB|%)(?!\w)")
# Damage can leave a GPU with such a word for a name: that is text, not a number.
_NAMED = re.compile(r"\b(?:inf|nan)\b(?= \(GPU)", re.IGNORECASE)
_NOT_FINITE = re.compile(r"(?<![\w.])(?:nan|-?inf)(?![\w.])")
OTHERS = (
    ("check",), ("check",), ("stats",), ("stats", "--format", "json"), ("stats", "--format", "csv"), ("report",),
    ("export", "perfetto"), ("export", "store"), ("export", "csv"),
)  # fmt: skip


class BrokenPropertyError(Exception):
    """A property that does not hold; ``kind`` groups equal faults."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


@dataclass(frozen=True)
class Said:
    """What one command left behind."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Seen:
    """The outcome of a case: whether the trace was read, and every remark that was made about it."""

    read: bool
    remarks: frozenset[str]


def command(*words: str | Path) -> Said:
    """Run the command line here. An exception that it lets out is a broken property."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([str(word) for word in words])
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        raise BrokenPropertyError(
            f"traceback {type(error).__name__} at {place} in {words[0]}", str(error)[:200]
        ) from error
    texts = []
    for stream in (out, err):
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        texts.append(buffer.getvalue().decode())
    return Said(code, *texts)


def examine(path: Path, folder: Path, rng: random.Random) -> Seen:
    """Check a file with ``check --json`` and one other command. Raises BrokenPropertyError."""
    said = command("check", path, "--json")
    document = None
    if said.code == 0:
        document = _strict(said.out)
        check_document(document)
    else:
        check_refusal(said, path)
    name, *options = rng.choice(OTHERS)
    other = _other(name, options, path, folder)
    if said.code == 0:
        # Sums that no integer holds are refused by what adds them up: an honest end, too.
        lines = other.err.splitlines()
        damaged = other.code == 1 and not other.out and len(lines) == 1 and "the trace is damaged" in lines[0]
        if other.code != 0 and not damaged:
            raise BrokenPropertyError(f"check reads what {name} {' '.join(options)} refuses", other.err[:300])
        check_words(name, other, options)
    else:
        check_refusal(other, path)
        if other.err != said.err:
            raise BrokenPropertyError("two commands give two reasons", f"{said.err!r} {other.err!r}")
    if document is None:
        return Seen(False, frozenset([said.err]))
    trace = document["trace"]
    return Seen(True, frozenset([*trace["warnings"], *trace.get("notes", ()), *trace["missing"].values()]))


def _other(name: str, options: list[str], path: Path, folder: Path) -> Said:
    if name == "report":
        return command("report", path, "-o", folder / "r.html", "--force")
    if name == "export":
        target = folder / ("out.json" if options == ["perfetto"] else f"out-{options[0]}")
        said = command("export", path, "--to", options[0], "-o", target, "--force")
        if said.code == 0 and options == ["perfetto"]:
            _strict(target.read_text("utf-8"))
        if said.code == 0 and options == ["store"]:
            _check_reopened(path, target)
        return said
    return command(name, path, *options)


def _check_reopened(path: Path, store: Path) -> None:
    """A store says what its source says."""
    kept = ("headline", "summary")
    first, second = (_strict(command("check", where, "--json").out or "{}") for where in (path, store))
    for key in kept:
        if first.get(key) != second.get(key):
            raise BrokenPropertyError(f"the store of a trace has another {key}")


def check_refusal(said: Said, path: Path) -> None:
    """An error the user can act on: exit 1, nothing on stdout, one line that names the file."""
    lines = said.err.splitlines()
    if said.code != 1 or said.out or len(lines) != 1 or not lines[0].startswith(f"profkit: {path}"):
        raise BrokenPropertyError(
            "a refusal is no single line", f"exit {said.code}, {said.out[:100]!r}, {said.err[:300]!r}"
        )
    if _UNFORESEEN in lines[0]:
        found = re.search(r"\((\w+): (.*)\)", lines[0])
        kind = re.sub(r"\d+", "N", found[0])[:80] if found else ""
        raise BrokenPropertyError(f"unforeseen {kind}", lines[0][-300:])


def _strict(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise BrokenPropertyError("JSON is not strict", word)

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise BrokenPropertyError("JSON is not strict", str(error)) from error


def check_document(document: dict[str, Any]) -> None:
    """The numbers of ``check --json`` agree with each other and are possible."""
    summary = document["summary"]
    window = _number(summary["window_ns"])
    for device in summary["devices"]:
        if _number(device["busy_ns"]) + _number(device["idle_ns"]) != window:
            raise BrokenPropertyError("busy + idle is not the window", json.dumps(device))
    idle = summary["idle_by_cause"]
    if idle is not None:
        total = sum(_number(value) for value in idle.values())
        if total != sum(_number(device["idle_ns"]) for device in summary["devices"]):
            raise BrokenPropertyError("causes of idle time do not add up", json.dumps(idle))
    for key, value in _leaves(document):
        name = key.rsplit(".", 1)[-1]
        number = _number(value)
        if name.endswith("_ns") and name not in SIGNED and number < 0:
            raise BrokenPropertyError(f"negative {name}", f"{key} = {value}")
        if name.endswith("share") and not 0 <= number <= 1:
            raise BrokenPropertyError(f"{name} outside 0..1", f"{key} = {value}")
        if name in ("count", "bytes", "n") and number < 0:
            raise BrokenPropertyError(f"negative {name}", f"{key} = {value}")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, number or digits) of every number; what a finding's text says is not one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    elif isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"-?\d{16,}", value)):
        yield path, value


def _number(value: Any) -> int | float:
    """Integers over 2^53 are digits in a string."""
    if value is None:
        return 0
    return int(value) if isinstance(value, str) else value


def check_words(name: str, said: Said, options: list[str]) -> None:
    """What a person reads has no negative length or size and no number that is none."""
    if "Traceback" in said.out + said.err:
        raise BrokenPropertyError(f"a traceback in the words of {name}")
    if name == "check":
        shown = "\n".join(line for line in said.out.splitlines() if not line.startswith(("warning:", "note:")))
        shown = _NAMED.sub("a name", shown)
        if found := _NEGATIVE.search(shown) or _NOT_FINITE.search(shown):
            raise BrokenPropertyError(f"{name} shows an impossible number", found[0])
    if name == "stats" and options[-1:] == ["json"]:
        _strict(said.out)
