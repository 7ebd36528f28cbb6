"""The folder exports of Nsight Systems (``nsys export --type parquetdir`` or ``arrowdir``): one file a table.

Read as the SQLite export is, table by table; see docs/formats.md. Format:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html (exporter schema).
"""

from __future__ import annotations

from pathlib import Path

from profkit.errors import InputError
from profkit.ingest import Reader
from profkit.model import Trace

_SUFFIXES = (".parquet", ".arrow", ".arrows")
_TABLES = ("StringIds", "META_DATA_EXPORT", "META_DATA_CAPTURE", "NVTX_EVENTS", "OSRT_API", "PROCESSES")
_PREFIXES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_")


def sniff(path: Path, head: bytes) -> bool:
    """A folder with a file that is named like a table of nsys."""
    if not path.is_dir():
        return False
    try:
        names = [file.stem for file in path.iterdir() if file.suffix in _SUFFIXES]
    except OSError:
        return False
    return any(name in _TABLES or name.startswith(_PREFIXES) for name in names)


def read(path: Path) -> Trace:
    """Read an export folder. Raises InputError for a table that is needed and damaged, or lacks a needed column."""
    from profkit.ingest.nsys.arrow_folder import ArrowFolder
    from profkit.ingest.nsys.reading import read_source

    try:
        return read_source(ArrowFolder(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


READER = Reader(name="nsys-parquet", sniff=sniff, read=read, what="Nsight Systems Parquet and Arrow folders")
