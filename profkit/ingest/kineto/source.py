"""The bytes of a trace file, unpacked where it is gzip, read ahead in a thread so that unpacking costs no time."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from profkit import text
from profkit.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LIMIT_VARIABLE = "PROFKIT_UNPACK_LIMIT_GIB"
# Traces pack 10 to 30 times, a bomb 1,000 times; small files may be as regular as they like.
_MOST_BYTES = 64 << 30
_MOST_RATIO = 250
_RATIO_FROM_BYTES = 256 << 20
_PIECE_BYTES = 1 << 20


class Source:
    """Blocks of a file's content. ``cut`` says, once they are read, why they ended before the file did; "" if not."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path = path
        self.cut = ""
        self.damaged = False
        self.garbage = False
        """Something that is no gzip stands behind the compressed data."""
        self._block_bytes = block_bytes
        self._unpacked = 0
        with path.open("rb") as file:
            self.zipped = file.read(2) == GZIP_MAGIC

    def blocks(self) -> Iterator[bytes]:
        """Blocks of at least the block size, but for the last. Raises InputError where it unpacks to too much."""
        with self._opened() as file, ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._block, file)
            while block := ahead.result():
                ahead = pool.submit(self._block, file)
                yield block

    def _opened(self) -> Any:
        return gzip.open(self.path, "rb") if self.zipped else self.path.open("rb")

    def _block(self, file: Any) -> bytes:
        """What can be read, up to where reading fails: then ``cut`` says why, and the next block is empty."""
        pieces: list[bytes] = []
        size = 0
        while size < self._block_bytes and not self.cut:
            try:
                piece = file.read1(min(_PIECE_BYTES, self._block_bytes))
            except EOFError:
                self.cut = "the compressed file ends early: it was cut while being written or copied"
                break
            except gzip.BadGzipFile as error:
                self.garbage = "Not a gzipped file" in str(error)
                self.cut, self.damaged = f"damaged: {error}", not self.garbage
                break
            except (OSError, zlib.error) as error:
                self.cut, self.damaged = f"damaged: {error}", True
                break
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        self._unpacked += size
        if self.zipped:
            self._refuse_bomb()
        return b"".join(pieces)

    def _refuse_bomb(self) -> None:
        own = _own_limit(self.path)
        packed = max(self.path.stat().st_size, 1)
        too_dense = own is None and self._unpacked > max(_RATIO_FROM_BYTES, _MOST_RATIO * packed)
        if self._unpacked > (own or _MOST_BYTES) or too_dense:
            raise InputError(
                f"{self.path}: {text.size(packed)} unpack to more than {text.size(self._unpacked)}: not read, a trace "
                f"does not pack so well; {LIMIT_VARIABLE}=N allows N GiB"
            )


def _own_limit(path: Path) -> int | None:
    """Bytes that the user allows, None where nothing was said."""
    said = os.environ.get(LIMIT_VARIABLE, "")
    if not said:
        return None
    try:
        limit = int(float(said) * (1 << 30))
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(f"{path}: {LIMIT_VARIABLE}={said}: a number of GiB above 0 is needed")
    return limit


def line_of(path: Path, offset: int) -> int:
    """Number of the line, from 1, that holds a byte of the unpacked content."""
    lines, left = 1, offset
    for block in Source(path, 16 << 20).blocks():
        lines += block.count(b"\n", 0, left)
        left -= len(block)
        if left <= 0:
            break
    return lines
