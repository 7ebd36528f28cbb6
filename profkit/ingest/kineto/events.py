"""Cuts the JSON into chunks at event borders and decodes them, so that a file of any size needs little memory.

A border is a closing brace, a comma and an opening brace with a key of an event behind it. A border inside a text or a
nested value gives a chunk that does not decode; then an earlier border, or more bytes, are tried. So a wrong cut can
cost time, never an event.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from profkit import text
from profkit.errors import InputError
from profkit.ingest.kineto.mend import BORDER, Damage, loose_json, mend
from profkit.ingest.kineto.records import Record, decode
from profkit.ingest.kineto.source import UTF8_MARK, UTF16_MARKS, Source

CHUNK_BYTES = 16 << 20
PARTIAL_VARIABLE = "PROFKIT_PARTIAL"
_BORDER_WINDOW = 1 << 18
_MOST_BORDERS = 2
_MOST_WITHOUT_EVENT = 256 << 20

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def _depth(text: bytes) -> int:
    """How many brackets are open at the end of the text; an open string counts as a hundred."""
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
        elif len(mark) < 2 or not mark.endswith(b'"'):
            depth += 100
    return depth


class EventFile:
    """Events of a file, in chunks; once they are read: ``top``, what stands beside them, and ``damage``.

    Iterating raises InputError for what is no trace and, unless PROFKIT_PARTIAL is set, for what is cut short. Then
    ``partial`` says why events are lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.top: dict[str, Any] = {}
        self.legacy = False
        """The root is a list of events."""
        self.damage = Damage()
        self.partial = ""
        self.remarks: list[str] = []
        self._source = Source(path, CHUNK_BYTES)
        self._count = 0

    def __iter__(self) -> Iterator[list[Record]]:
        blocks = self._source.blocks()
        head, buffer = self._find_list(blocks)
        at = len(head)
        for block in blocks:
            buffer += block
            if len(buffer) >= CHUNK_BYTES:
                records, used = self._decode_prefix(buffer, at)
                buffer, at = buffer[used:], at + used
                if not used and len(buffer) > _MOST_WITHOUT_EVENT:
                    raise InputError(f"{self.path}: damaged: no event ends behind byte {at}")
                self._count += len(records)
                if records:
                    yield records
        records, tail = self._decode_last(buffer, at)
        self._count += len(records)
        if records:
            yield records
        if tail is None:
            self._cut(at + len(buffer))
        if self._source.cut and tail is not None:
            self._cut_behind(self._source, head, tail)
        if not self.legacy:
            self.top = self._top_level(head, tail)

    def _find_list(self, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """(bytes before the first event, bytes from it on)."""
        head = next(blocks, b"")
        mark = len(head) - len(head.removeprefix(UTF8_MARK))
        if head.startswith(UTF16_MARKS):
            raise InputError(f"{self.path}: the text is UTF-16, a trace is UTF-8: save it as UTF-8")
        bare = head[mark:].lstrip()
        if bare.startswith(b"["):
            self.legacy = True
            start = len(head) - len(bare) + 1
            return head[:start], head[start:]
        if not bare:
            self._refuse_empty()
        if not bare.startswith(b"{"):
            raise InputError(f"{self.path}: not a trace: JSON with an object or a list was expected")
        seen = 0
        while (match := _START.search(head, seen)) is None or _depth(head[: match.start()]) != 1:
            if match is not None:  # a list of that name inside another property, or in a text
                seen = match.end()
                continue
            seen = max(len(head) - 64, seen)
            more = next(blocks, b"")
            if not more or len(head) > _MOST_WITHOUT_EVENT:
                self._refuse(head[mark:])
            head += more
        return head[: match.end()], head[match.end() :]

    def _refuse_empty(self) -> NoReturn:
        if self._source.cut:
            raise InputError(f"{self.path}: {self._source.cut}")
        raise InputError(f"{self.path}: the file is empty or holds blanks only")

    def _refuse(self, content: bytes) -> NoReturn:
        """Say what a JSON object without a list of events is."""
        if self._source.cut:
            raise InputError(f"{self.path}: {self._source.cut}; no event stands before the cut")
        if len(content) > _MOST_WITHOUT_EVENT:
            raise InputError(f"{self.path}: no traceEvents in the first {text.size(len(content))}")
        try:
            keys = list(json.loads(content))[:6]
        except (ValueError, RecursionError) as error:
            if "Extra data" in str(error) and _is_event(content.split(b"\n", 1)[0]):
                raise InputError(
                    f"{self.path}: one event a line (NDJSON): make it a list, with commas between the lines and "
                    "brackets around them"
                ) from None
            raise InputError(f"{self.path}: not valid JSON, truncated or damaged: {error}") from None
        raise InputError(
            f"{self.path}: JSON, but no trace: it has no traceEvents (keys: {', '.join(map(str, keys)) or 'none'})"
        )

    def _decode_prefix(self, buffer: bytes, at: int) -> tuple[list[Record], int]:
        """(records, bytes used) up to the last border that decodes; ([], 0) where there is none."""
        found = _whole_prefix(buffer)
        if found is not None:
            return found
        mended = mend(buffer, at, self.damage, final=False)
        return mended.records, mended.used

    def _decode_last(self, buffer: bytes, at: int) -> tuple[list[Record], bytes | None]:
        """The records that remain, and the bytes behind the list: None where it does not end."""
        records, used = _whole_prefix(buffer) or ([], 0)
        rest = buffer[used:]
        mended = mend(rest, at + used, self.damage, final=True)
        return records + mended.records, rest[mended.used :] if mended.ended else None

    def _cut(self, at: int) -> None:
        """The list does not end: an error, or a partial trace where the user asked for one."""
        why = self._source.cut or "truncated or damaged: the list of events breaks off"
        why = f"{why}; {text.count(self._count, 'complete event')} before the cut, near byte {at}"
        if self._count and os.environ.get(PARTIAL_VARIABLE, "") not in ("", "0"):
            self.partial = why
            return
        help_ = f"{PARTIAL_VARIABLE}=1 loads them" if self._count else "nothing can be loaded"
        raise InputError(
            f"{self.path}: {why} ({help_}); record it again, or let the program end before copying the file"
        )

    def _cut_behind(self, source: Source, head: bytes, tail: bytes) -> None:
        """Reading failed behind the list: harmless only where the JSON is whole and garbage follows."""
        if source.garbage and (self.legacy or tail.rstrip().endswith(b"}")):
            self.remarks.append("something that is no gzip stands behind the compressed data: ignored")
            return
        self._cut(len(head))

    def _top_level(self, head: bytes, tail: bytes | None) -> dict[str, Any]:
        """Properties beside the events. A trace without them is whole all the same."""
        if tail is None or self.partial:
            tail = b"}"
        content = (head.removeprefix(UTF8_MARK) + b"]" + tail).decode("utf-8", "replace")
        try:
            found = json.loads(content, strict=False)
        except RecursionError:
            found = None
        except ValueError:
            if not content.rstrip().endswith("}") and not self.partial:
                raise InputError(f"{self.path}: truncated or damaged: the file breaks off after its events") from None
            found = self._mended_top(content)
        found = found if isinstance(found, dict) else {}
        found.pop("traceEvents", None)
        return found

    def _mended_top(self, content: str) -> Any:
        try:
            found = loose_json(content, lambda _: None)
        except ValueError as error:
            self.remarks.append(f"the properties beside the events are not JSON and not read: {error}")
            return {}
        self.remarks.append("the properties beside the events were not JSON: mended")
        return found


def _is_event(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "ph" in found


def _whole_prefix(buffer: bytes) -> tuple[list[Record], int] | None:
    """(records, bytes used) up to the last border before which all decodes; None where none of the last few does."""
    low = max(len(buffer) - _BORDER_WINDOW, 0)
    borders = [(m.start() + 1, m.end()) for m in BORDER.finditer(buffer, low)][-_MOST_BORDERS:]
    for end, following in reversed(borders):
        records = decode(b"[" + buffer[:end] + b"]")
        if records is not None:
            return records, following
    return None
