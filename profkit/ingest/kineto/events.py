"""Cuts the JSON into chunks at event borders and decodes them, so that a file of any size needs little memory.

A border is a closing brace, a comma and an opening brace with a key of an event behind it. A border inside a text or a
nested value gives a chunk that does not decode; then an earlier border, or more bytes, are tried. So a wrong cut can
cost time, never an event.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from profkit.errors import InputError

CHUNK_BYTES = 16 << 20
GZIP_MAGIC = b"\x1f\x8b"
_BORDER_WINDOW = 1 << 18
_MOST_BORDERS = 16

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s)"\s*:)')
# What C++ streams write for numbers that are none; JSON has no word for them.
_NOT_FINITE = re.compile(rb"(?<=[:\[,])(\s*)-?(?:inf(?:inity)?|nan)\b", re.IGNORECASE)


class Args(msgspec.Struct, gc=False, rename={"smem": "shared memory", "registers": "registers per thread"}):
    """The properties of an event that profkit reads; others are skipped without being built."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    context: Any = None
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = None
    smem: Any = None
    graph_id: Any = msgspec.field(default=None, name="graph id")
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    sync_kind: Any = msgspec.field(default=None, name="cuda_sync_kind")
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One event; times stay as they are written, for their digits."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


# A surrogate without its other half: Python writes such escapes, JSON's text cannot hold them.
_SURROGATE = re.compile(rb"(?i)\\u(d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|d[89a-f][0-9a-f]{2})")

_DECODER = msgspec.json.Decoder(list[Event])


def read_events(path: Path) -> Iterator[dict[str, Any] | list[Event]]:
    """Chunks of events, and last, a dictionary of the other properties at the top level.

    The dictionary has ``"legacy": True`` where the root is a list. Raises InputError for what is no trace, is cut
    short or cannot be decoded.
    """
    with _open(path) as file:
        head, rest, legacy = _find_array(path, file)
        buffer, done = rest, len(head)
        while True:
            more = _read(path, file)
            buffer += more
            if more and len(buffer) < CHUNK_BYTES:
                continue
            cut, events = _decode_prefix(buffer)
            if events:
                yield events
                buffer, done = buffer[cut:], done + cut
            if not more:
                break
        events, tail = _decode_last(path, buffer, done)
        if events:
            yield events
    yield {"legacy": True} if legacy else _top_level(path, head, tail)


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def _read(path: Path, file: BinaryIO) -> bytes:
    try:
        return file.read(CHUNK_BYTES)
    except EOFError:
        raise InputError(f"{path}: the compressed file ends early: it was cut while being written or copied") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: damaged: {error}") from None


def _find_array(path: Path, file: BinaryIO) -> tuple[bytes, bytes, bool]:
    """(bytes before the events, bytes from the first event on, whether the root is a list)."""
    head = _read(path, file).removeprefix(b"\xef\xbb\xbf")
    stripped = head.lstrip()
    if stripped.startswith(b"["):
        return b"", stripped[1:], True
    if not stripped.startswith(b"{"):
        raise InputError(f"{path}: not a trace: JSON with an object or a list was expected")
    while (match := _START.search(head)) is None:
        more = _read(path, file)
        if not more:
            _refuse(path, head)
        head += more
    return head[: match.end() - 1], head[match.end() :], False


def _refuse(path: Path, text: bytes) -> None:
    try:
        keys = list(json.loads(text))[:6]
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON, truncated or damaged: {error}") from None
    raise InputError(f"{path}: JSON, but no trace: it has no traceEvents (keys: {', '.join(map(str, keys)) or 'none'})")


def _decode_prefix(buffer: bytes) -> tuple[int, list[Event]]:
    """(end of the decoded part, its events) up to the last border that decodes; (0, []) where none does."""
    low = max(len(buffer) - _BORDER_WINDOW, 0)
    borders = [(m.start() + 1, m.end()) for m in _BORDER.finditer(buffer, low)][-_MOST_BORDERS:]
    for end, following in reversed(borders):
        events = _decode(b"[" + buffer[:end] + b"]")
        if events is not None:
            return following, events
    return 0, []


def _decode(text: bytes) -> list[Event] | None:
    """Events of a JSON list, None where it is none; what is no JSON but common is mended first."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = _NOT_FINITE.sub(rb"\1null", text.decode("utf-8", "replace").encode())
    try:
        return _DECODER.decode(_SURROGATE.sub(lambda m: m[0] if len(m[1]) > 4 else rb"\ufffd", text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _decode_last(path: Path, buffer: bytes, done: int) -> tuple[list[Event], bytes]:
    """The events that remain and the bytes behind the closing bracket of the list."""
    text = (b"[" + buffer.lstrip().removeprefix(b",")).decode("utf-8", "replace")
    text = re.sub(r",\s*\]", "]", text) if re.search(r"\}\s*,\s*\]", text) else text
    text = _NOT_FINITE.sub(rb"\1null", text.encode()).decode()
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError as error:
        at = done + getattr(error, "pos", 0)
        raise InputError(
            f"{path}: truncated or damaged: the list of events breaks off or is not JSON near byte {at} "
            f"({getattr(error, 'msg', error)}); record it again, or let the program end before copying the file"
        ) from None
    events = _decode(text[:end].encode())
    if events is None:
        raise InputError(f"{path}: events near byte {done} are not in the trace event format")
    return events, text[end:].encode()


def _top_level(path: Path, head: bytes, tail: bytes) -> dict[str, Any]:
    """Properties beside the events. A trace without them is whole all the same."""
    text = (head + b"[]" + tail).decode("utf-8", "replace")
    try:
        found = json.loads(text, strict=False)
    except ValueError:
        raise InputError(f"{path}: truncated or damaged: the file breaks off after its events") from None
    found.pop("traceEvents", None)
    return found if isinstance(found, dict) else {}
