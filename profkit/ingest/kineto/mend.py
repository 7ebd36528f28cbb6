"""The slow path for what the strict decoder refuses: event by event, so that one bad event costs itself only.

Mended, because the text that was meant is clear: numbers that are none (inf, NaN), backslashes that JSON does not
allow, raw line breaks and tabs, bytes that are no UTF-8, half a surrogate pair, properties of an odd type. Left out and
counted, with the place of the first: everything else, such as quotes inside a text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from profkit.ingest.kineto.records import (
    NO_DIGITS,
    TYPES,
    Args,
    Complete,
    Half,
    Instant,
    MemoryArgs,
    MetaArgs,
    Record,
    decode,
)

BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s)"\s*:)')
LIST_END = re.compile(rb"\}\s*,?\s*\]")
NOT_FINITE = "number that is not finite (inf, NaN)"
BACKSLASH = "text with backslashes that JSON does not allow"
CONTROL = "text with raw line breaks or tabs"
ENCODING = "text that is not UTF-8"
SURROGATE = "text with half a surrogate pair"
_MOST_AT_ONCE = 4096
_MOST_JOINED = 16
_MANY_LOST = 1_000
_MOST_ENDS = 64
_NO_MORE = re.compile(rb"\s*,?\s*\]")

_BLANKS = re.compile(rb"\s*")
# A key, a colon and a word where a number belongs. A key follows a brace or a comma, so this is no part of a text.
_NOT_FINITE_VALUE = re.compile(rb'(?<=[{,])(\s*"[^"\\]*"\s*:\s*)-?(?:inf(?:inity)?|nan)(?=\s*[,}])', re.IGNORECASE)
_LONE = re.compile("[\ud800-\udfff]")
_TEXT_OR_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:inf(?:inity)?|nan)\b', re.IGNORECASE | re.DOTALL)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(?:[^"\\/bfnrtu]|u(?![0-9a-fA-F]{4}))', re.DOTALL)
_DIGITS = re.compile(r"-?\d+")


@dataclass
class Damage:
    """What was wrong with the events of a file: how many were mended, by reason, and how many left out."""

    mended: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    first: dict[str, int] = field(default_factory=dict)
    """Byte of the unpacked content at which a reason, or "lost", was first met."""

    def note(self, reason: str, at: int, count: int = 1) -> None:
        self.first.setdefault(reason, at)
        if reason == "lost":
            self.lost += count
        else:
            self.mended[reason] += count


@dataclass(frozen=True)
class Mended:
    """Records of a buffer, the bytes they took, and whether the list of events ended there."""

    records: list[Record]
    used: int
    ended: bool


def mend(buffer: bytes, at: int, damage: Damage, final: bool) -> Mended:
    """Records of a buffer that does not decode as a whole; ``at`` is its place in the file.

    Batches of events shrink where they do not decode and grow again behind. What follows the last border is left
    unless it ends the list; so are the last events that cannot be read while more bytes (``final`` false) may show
    that a border among them was none.
    """
    borders = [(m.start() + 1, m.end()) for m in BORDER.finditer(buffer)]
    starts = [0, *(after for _, after in borders)]
    ends = [*(end for end, _ in borders), len(buffer)]
    whole = len(borders)
    words = _NOT_FINITE_VALUE.search(buffer) is not None
    records: list[Record] = []
    row, step = 0, _MOST_AT_ONCE
    while row < whole:
        upto = min(row + step, whole)
        found = _batch(buffer, starts[row], ends[upto - 1], at, damage if words else None)
        if found is not None:
            records += found
            row, step = upto, min(step * 2, _MOST_AT_ONCE)
            continue
        if step > 1:
            step = max(step // 8, 1)
            continue
        # Where most is lost, what reaches over borders is not looked for far.
        reach = ends[row : min(row + (_MOST_JOINED if damage.lost < _MANY_LOST else 2), whole)]
        taken = _one(buffer, starts[row], reach[:1], at, damage) or _joined(buffer, starts[row], reach[1:])
        if taken is None and not final and row >= whole - _MOST_JOINED:
            return Mended(records, starts[row], False)
        upto_end = ends[min(row + _MOST_JOINED, whole)]
        if taken is None and final and (end := _end_of_list(buffer, starts[row], upto_end, at, damage)) is not None:
            return Mended(records + end[0], end[1], True)
        taken = taken or _one(buffer, starts[row], reach, at, damage)
        if taken is None:
            damage.note("lost", at + _first_byte(buffer, starts[row]))
            taken = [], 1
        records += taken[0]
        row += taken[1]
    if final and (end := _end_of_list(buffer, starts[whole], len(buffer), at, damage)) is not None:
        return Mended(records + end[0], end[1], True)
    if final and (behind := _end_behind_lost(buffer, starts[whole])) is not None:
        damage.note("lost", at + _first_byte(buffer, starts[whole]))
        return Mended(records, behind, True)
    return Mended(records, starts[whole], False)


def _batch(buffer: bytes, start: int, end: int, at: int, damage: Damage | None) -> list[Record] | None:
    """Records of a piece, None where it does not decode; with ``damage``, values that are not finite are mended."""
    piece = b"[" + buffer[start:end] + b"]"
    found = decode(piece)
    if found is not None or damage is None or (first := _NOT_FINITE_VALUE.search(piece)) is None:
        return found
    piece, count = _NOT_FINITE_VALUE.subn(rb"\1null", piece)
    found = decode(piece)
    if found is not None:
        damage.note(NOT_FINITE, at + start + first.end(1) - 1, count)
    return found


def _first_byte(buffer: bytes, start: int) -> int:
    """Where the blanks from ``start`` on end."""
    match = _BLANKS.match(buffer, start)
    return match.end() if match else start


def _joined(buffer: bytes, start: int, ends: list[int]) -> tuple[list[Record], int] | None:
    """(the event that reaches over borders, pieces it takes): a border inside a text or a nested value is none."""
    for count, end in enumerate(ends, 2):
        found = decode(b"[" + buffer[start:end] + b"]")
        if found is not None and len(found) == 1:
            return found, count
    return None


def _end_behind_lost(buffer: bytes, start: int) -> int | None:
    """The byte behind the list's closing bracket where the last event cannot be read: what follows must be JSON."""
    for match in islice(re.compile(rb"\]").finditer(buffer, start), _MOST_ENDS):
        tail = buffer[match.end() :].strip()
        try:
            if not tail or (tail[:1] in b",}" and json.loads(b'{"events":[]' + tail)):
                return match.end()
        except (ValueError, RecursionError):
            continue
    return None


def _end_of_list(buffer: bytes, start: int, upto: int, at: int, damage: Damage) -> tuple[list[Record], int] | None:
    """(the last event, the byte behind the closing bracket) if the list of events ends in this piece."""
    if (match := _NO_MORE.match(buffer, start, upto)) is not None:
        return [], match.end()
    for match in islice(LIST_END.finditer(buffer, start, upto), _MOST_ENDS):
        piece = buffer[start : match.start() + 1]
        found = decode(b"[" + piece + b"]")
        if found is None:
            notes: list[str] = []
            try:
                found = [loose(piece, notes.append)]
            except ValueError:
                continue
            for note in notes:
                damage.note(note, at + start)
        return [record for record in found if record is not None], match.end()
    return None


def _one(buffer: bytes, start: int, ends: list[int], at: int, damage: Damage) -> tuple[list[Record], int] | None:
    """(the event, mended, pieces it takes), None where it cannot be mended."""
    for count, end in enumerate(ends, 1):
        notes: list[str] = []
        try:
            record = loose(buffer[start:end], notes.append)
        except ValueError:
            continue
        for note in notes:
            damage.note(note, at + _first_byte(buffer, start))
        return [] if record is None else [record], count
    return None


def loose(piece: bytes, note: Callable[[str], None]) -> Record | None:
    """The record of one event, None for a phase that is not read; each kind of mending is told to ``note``.

    Raises ValueError for what cannot be mended.
    """
    try:
        content = piece.decode("utf-8")
    except UnicodeDecodeError:
        content = piece.decode("utf-8", "replace")
        note(ENCODING)
    found = loose_json(content, note)
    if not isinstance(found, dict):
        raise ValueError("an event is an object")
    return _record(found, note)


def loose_json(content: str, note: Callable[[str], None]) -> Any:
    """The value of a JSON text; numbers with a fraction stay digits. Raises ValueError for what cannot be mended."""
    strict = True
    for _ in range(4):
        try:
            return json.loads(content, strict=strict, parse_float=str, parse_constant=lambda _: note(NOT_FINITE))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except json.JSONDecodeError as error:
            if error.msg.startswith("Invalid control character") and strict:
                strict = False
                note(CONTROL)
                continue
            before = content
            if error.msg.startswith("Invalid \\"):
                content = _TEXT.sub(_double_backslashes, content)
                note(BACKSLASH)
            elif error.msg.startswith("Expecting value"):
                content = _TEXT_OR_WORD.sub(lambda m: m[0] if m[0][0] == '"' else "null", content)
                note(NOT_FINITE)
            if content == before:
                raise
    raise ValueError("more than can be mended")


def _double_backslashes(match: re.Match[str]) -> str:
    """A text that holds one bad escape was written without any: each backslash in it is meant as itself."""
    return match[0].replace("\\", "\\\\") if _BAD_ESCAPE.search(match[0]) else match[0]


def _record(found: dict[str, Any], note: Callable[[str], None]) -> Record | None:
    kind = TYPES.get(found.get("ph", "")) if isinstance(found.get("ph"), str) else None
    if kind is None:
        return None
    given = found.get("args")
    args = given if isinstance(given, dict) else {}
    values: dict[str, Any] = {
        key: _id(found.get(key)) for key in ("pid", "tid", "id") if key in kind.__struct_fields__ and key in found
    }
    for key in ("cat", "name"):
        if key in kind.__struct_fields__:
            values[key] = _text(found.get(key), note)
    for key in ("ts", "dur"):
        if key in kind.__struct_fields__:
            values[key] = _digits(found.get(key))
    return kind(**values, args=_properties(kind, args, note))


def _properties(kind: Any, args: dict[str, Any], note: Callable[[str], None]) -> Any:
    struct: Any = Args if issubclass(kind, Complete | Half) else MemoryArgs if issubclass(kind, Instant) else MetaArgs
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(struct):
        if info.encode_name not in args:
            continue
        value = args[info.encode_name]
        if info.type is int:
            values[info.name] = number(value)
        elif info.type is str:
            values[info.name] = _text(value, note)
        elif info.type is msgspec.Raw:
            values[info.name] = _digits(value)
        elif info.name in ("grid", "block"):
            if isinstance(value, list) and len(value) == 3:
                values[info.name] = tuple(number(side) for side in value)
        else:
            values[info.name] = _text(value, note)
    return struct(**values)


def number(value: Any) -> int:
    """An integer from what a source wrote as one: 7, "7", "stream 7"; -1 for what is none or does not fit."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value if abs(value) < 1 << 62 else -1
    if isinstance(value, str) and (match := _DIGITS.search(value)) and len(match[0]) < 20:
        return int(match[0]) if abs(int(match[0])) < 1 << 62 else -1
    return -1


def _id(value: Any) -> int | str:
    return value if isinstance(value, int | str) else str(value)


def _text(value: Any, note: Callable[[str], None]) -> str:
    content = value if isinstance(value, str) else "" if value is None else str(value)
    if _LONE.search(content):
        note(SURROGATE)
        content = _LONE.sub("\ufffd", content)
    return content


def _digits(value: Any) -> msgspec.Raw:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return NO_DIGITS
    return msgspec.Raw(str(value).encode("utf-8", "replace"))
