"""A folder with the trace files of a job, one a rank: PyTorch profiler JSON, or Nsight Systems SQLite exports.

Read: every file in the folder that is a trace by its content, joined into one trace with a process a rank. The rank is
what a file says itself, else what its name says; a file ``ranks.json`` in the folder, ``{"file name": rank}``, decides
over both. Two files of one rank are two captures where their times do not overlap. Clocks of the ranks are aligned by
the ends of their collectives, which a note says; where they cannot be, a warning does. Ignored: sub-folders, hidden
files, and files that are no trace, which are named in a note; files that cannot be read are named in a warning.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import InputError
from profkit.folders import is_written_by_profkit
from profkit.ingest import HEAD_BYTES, Reader, open_trace
from profkit.model import Trace
from profkit.text import count

if TYPE_CHECKING:
    from profkit.merge import Part

MAPPING = "ranks.json"
_MOST_FILES = 4096
_HEAD = 64 << 10
_SQLITE = b"SQLite format 3\x00"
_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"')
_SAID = ("mapping", "content")


@dataclass(frozen=True)
class _File:
    """One trace file: ``rank`` -1 is not known, or several processes have ranks of their own."""

    path: Path
    trace: Trace
    rank: int
    rank_from: str

    @property
    def begin(self) -> int:
        meta = self.trace.meta
        return meta.utc_ns if meta.utc_ns >= 0 else meta.origin_ns

    @property
    def end(self) -> int:
        return self.begin + max((window.end_ns for window in self.trace.windows), default=0)

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(self.trace.array("processes", "pid").tolist())


def sniff(path: Path, head: bytes) -> bool:
    """A folder, not one of profkit's own, with at least one trace file."""
    return path.is_dir() and not is_written_by_profkit(path) and any(is_trace_file(file) for file in _files(path))


def is_trace_file(path: Path) -> bool:
    """Whether the first bytes, unpacked, look like a PyTorch trace or an SQLite file."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if head.startswith(_SQLITE):
                return True
            head += file.read(_HEAD)
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, 16 * _HEAD)
    except (OSError, zlib.error):
        return False
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return head[:1] in (b"{", b"[") and any(mark in head for mark in _MARKS)


def read(path: Path) -> Trace:
    """Read all trace files of a folder. Raises InputError where none can be read, or ranks contradict each other."""
    from profkit.merge import merge_traces

    mapping = _mapping(path)
    files: list[_File] = []
    unread: list[str] = []
    others: list[str] = []
    for file in _files(path):
        if not is_trace_file(file):
            others.append(file.name)
            continue
        try:
            files.append(_file(file, open_trace(file), mapping))
        except InputError as error:
            unread.append(error.message.replace(f"{file}: ", f"{file.name}: ", 1))
    if not files:
        raise InputError(f"{path}: no trace in this folder can be read: {'; '.join(unread[:3])}")
    parts = _parts(path, files)
    sources = {file.trace.meta.source for file in files}
    trace = merge_traces(parts, sources.pop() if len(sources) == 1 else "rank-folder", path.name)
    warnings = [f"not read: {message}" for message in unread]
    warnings += _absent_ranks(trace)
    notes = [f"no trace, not read: {', '.join(others[:5])}{', ...' if len(others) > 5 else ''}"] if others else []
    notes += _misnamed(files)
    meta = replace(
        trace.meta, warnings=(*trace.meta.warnings, *warnings), notes=(*trace.meta.notes, *notes),
        partial=trace.meta.partial or bool(unread),
    )  # fmt: skip
    return replace(trace, meta=meta)


def _files(path: Path) -> list[Path]:
    """Visible files, but for the mapping, by name. Raises InputError for a folder that holds too many."""
    try:
        found = sorted(f for f in path.iterdir() if not f.name.startswith(".") and f.name != MAPPING and f.is_file())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(found) > _MOST_FILES:
        raise InputError(f"{path}: {len(found)} files are no folder of ranks (at most {_MOST_FILES})")
    return found


def _mapping(path: Path) -> dict[str, int]:
    """Ranks by file name from ``ranks.json``, empty without one."""
    file = path / MAPPING
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON: {error}") from None
    if not isinstance(found, dict) or not all(type(rank) is int and 0 <= rank < 1 << 31 for rank in found.values()):
        raise InputError(f'{file}: an object of file names and ranks is needed, such as {{"a.json": 0, "b.json": 1}}')
    unknown = [name for name in found if not (path / name).is_file()]
    if unknown:
        raise InputError(f"{file}: no such file in this folder: {', '.join(unknown[:3])}")
    return found


def _file(path: Path, trace: Trace, mapping: dict[str, int]) -> _File:
    from profkit.ingest.kineto.ranks import CONTENT, NAME, NOWHERE, rank_in_name

    ranks = set(trace.array("processes", "rank").tolist()) - {-1}
    source = trace.meta.extra.get("rank_from", "")
    if path.name in mapping:
        return _File(path, _ranked(trace, mapping[path.name]), mapping[path.name], "mapping")
    if len(ranks) > 1:
        return _File(path, trace, -1, CONTENT)
    if len(ranks) == 1:
        return _File(path, _quiet(trace), ranks.pop(), source or CONTENT)
    named = rank_in_name(path.name)
    if named >= 0:
        return _File(path, _ranked(trace, named), named, NAME)
    return _File(path, trace, -1 if trace.rows("processes") > 1 else 0, NOWHERE)


def _quiet(trace: Trace) -> Trace:
    """Without the note on its rank: of a folder it is said once."""
    note = trace.meta.extra.get("rank_note", "")
    return replace(trace, meta=replace(trace.meta, notes=tuple(n for n in trace.meta.notes if n != note)))


def _ranked(trace: Trace, rank: int) -> Trace:
    """The trace with a rank for all its processes."""
    import pyarrow as pa

    trace = _quiet(trace)
    table = trace.tables["processes"]
    place = table.column_names.index("rank")
    ranks = pa.array([rank] * table.num_rows, table.schema.field("rank").type)
    processes = table.set_column(place, table.schema.field("rank"), ranks)
    return replace(trace, tables={**trace.tables, "processes": processes})


def _parts(path: Path, files: list[_File]) -> list[Part]:
    """Traces by rank and time; the later captures of a rank continue its first."""
    from profkit.merge import Part

    parts: list[Part] = []
    by_rank: dict[int, list[_File]] = {}
    for file in files:
        by_rank.setdefault(file.rank, []).append(file)
    for rank in sorted(by_rank):
        found = sorted(by_rank[rank], key=lambda file: (file.begin, file.path.name))
        first = len(parts)
        if len(found) > 1 and rank >= 0:
            _check_same_rank(path, rank, found)
        for place, file in enumerate(found):
            parts.append(Part(file.path, file.trace, first if place and rank >= 0 else -1, rank))
    return parts


def _check_same_rank(path: Path, rank: int, files: list[_File]) -> None:
    """Several files of one rank, in order of time, must be captures one after the other."""
    names = [file.path.name for file in files]
    if not all(file.rank_from in _SAID for file in files) and len({file.pids for file in files}) > 1:
        example = json.dumps({name: place for place, name in enumerate(names[:2])})
        raise InputError(
            f"{path}: {len(files)} files claim rank {rank} and the traces do not say it themselves: "
            f"{', '.join(names)}; say which rank each one is in {path / MAPPING}: {example[:-1]}, ...}}"
        )
    for before, after in pairwise(files):
        if after.begin < before.end:
            raise InputError(
                f"{path}: two files of rank {rank} overlap in time: {before.path} and {after.path}; take one of them "
                f"away, or say in {path / MAPPING} which rank each one is"
            )


def _absent_ranks(trace: Trace) -> list[str]:
    world = max(trace.array("processes", "world_size").tolist(), default=-1)
    found = set(trace.array("processes", "rank").tolist()) - {-1}
    absent = sorted(set(range(min(world, 1 << 20))) - found)
    if not found or not absent:
        return []
    listed = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
    return [f"{count(len(absent), 'rank')} of {world} not in this folder: {listed}"]


def _misnamed(files: list[_File]) -> list[str]:
    from profkit.ingest.kineto.ranks import rank_in_name

    wrong = [file for file in files if file.rank_from in _SAID and rank_in_name(file.path.name) not in (-1, file.rank)]
    if not wrong:
        return []
    return [f"{count(len(wrong), 'file name')} say another rank than the trace itself: the traces are right"]


READER = Reader(name="rank-folder", sniff=sniff, read=read, what="folders of rank files")
