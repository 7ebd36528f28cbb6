"""A Trace as a folder that opens at once: ``meta.json`` and one Arrow IPC file a table, memory-mapped and uncompressed.

Opening maps the files and checks what can be checked without reading them whole: names, sizes, schemas, texts, and that
codes and row numbers point at something. Columns stay where they are until an analysis reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profkit.errors import InputError
from profkit.folders import META, check_folder_target, is_written_by_profkit, new_folder
from profkit.model import RunMeta, Trace, Window
from profkit.schema import TABLES, Column, Table

FORMAT = "profkit.store"
SCHEMA = 1
"""Raised when an older profkit could not read what a newer one writes. A column that tables gain does not raise it."""

_SAFE_INTEGER = 1 << 53
_BASE = tuple(name for name, table in TABLES.items() if table.kind != "derived")


@dataclass(frozen=True)
class Stored:
    """What ``meta.json`` says: the capture, and which files there are with how many bytes and rows each."""

    folder: Path
    profkit_version: str
    content: Mapping[str, Any]

    def files(self, group: str) -> dict[str, tuple[int, int]]:
        """table -> (bytes, rows) of a group: tables or derived."""
        return {str(name): (int(f["bytes"]), int(f["rows"])) for name, f in self.content[group].items()}


def is_store(path: Path) -> bool:
    """Whether a folder was written by :func:`save`, whole or not."""
    return is_written_by_profkit(path, FORMAT + "/")


def save(
    trace: Trace, folder: str | Path, derived: Mapping[str, pa.Table] | None = None, *, force: bool = False
) -> None:
    """Write a trace, and tables that were derived from it, as a new folder in one move.

    ``force`` replaces a store that is there, never any other folder. Raises ProfkitError where something is in the way
    or nothing can be written.
    """
    folder = Path(folder)
    check_folder_target(folder, force=force)
    with new_folder(folder) as made:
        content: dict[str, Any] = {
            "schema": f"{FORMAT}/{SCHEMA}",
            "profkit_version": version("profkit"),
            **describe_capture(trace),
            "tables": {name: _write(made, name, trace.tables[name]) for name in _BASE},
            "derived": {name: _write(made, name, table) for name, table in (derived or {}).items()},
        }
        (made / META).write_text(json.dumps(content, indent=1, allow_nan=False), "utf-8", newline="\n")


def describe_capture(trace: Trace) -> dict[str, Any]:
    """What is known about a capture besides its events, as JSON: meta, missing, windows. No path, no big integer."""
    return {
        "meta": _meta_to_json(trace.meta),
        "missing": {table: {str(row): why for row, why in whys.items()} for table, whys in trace.missing.items()},
        "windows": [[_number(w.start_ns), _number(w.end_ns)] for w in trace.windows],
    }


def load(folder: str | Path) -> Trace:
    """The trace of a folder that :func:`save` wrote; its tables are views of the mapped files.

    Raises InputError, in one line, for what is no store, is newer, cut short, or damaged where that can be seen.
    """
    stored = read_meta(Path(folder))
    content = stored.content
    files = stored.files("tables")
    unknown = sorted(set(files) - set(_BASE))
    if unknown:
        raise InputError(f"{folder}: written by a newer profkit ({stored.profkit_version}): it has tables {unknown}")
    # A table that this profkit has gained since holds nothing in older stores.
    tables = {
        name: _read(stored, name, files[name]) if name in files else TABLES[name].schema.empty_table() for name in _BASE
    }
    for name, table in tables.items():
        _check_codes(stored, TABLES[name], table, tables)
    try:
        missing = {str(t): {int(row): str(why) for row, why in m.items()} for t, m in content["missing"].items()}
        windows = tuple(Window(int(start), int(end)) for start, end in content["windows"])
        return Trace(_meta_from_json(content["meta"]), tables, missing, windows)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{Path(folder) / META}: damaged: {type(error).__name__}: {error}") from None


def kept_derived(folder: str | Path) -> dict[str, pa.Table]:
    """Derived tables of a store, where this very version of profkit derived them; else, and for other paths, none."""
    if not is_store(Path(folder)):
        return {}
    stored = read_meta(Path(folder))
    if stored.profkit_version != version("profkit"):
        return {}
    return {name: _read(stored, name, file) for name, file in stored.files("derived").items() if name in TABLES}


def read_meta(folder: Path) -> Stored:
    """``meta.json``, with its schema checked."""
    path = folder / META
    try:
        content = json.loads(path.read_bytes())
        name, _, number = str(content["schema"]).partition("/")
        if name != FORMAT:
            raise InputError(f"{folder}: a folder, but no profkit store")
        if int(number) > SCHEMA:
            raise InputError(
                f"{folder}: written by a newer profkit ({content['profkit_version']}, store schema {number}; "
                f"this one reads up to {SCHEMA}): update profkit, or export the trace again"
            )
        stored = Stored(folder, str(content["profkit_version"]), content)
        stored.files("tables"), stored.files("derived")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: truncated or damaged: {type(error).__name__}: {error}") from None
    return stored


def _write(folder: Path, name: str, table: pa.Table) -> dict[str, int]:
    path = folder / f"{name}.arrow"
    # One batch, so that a column is one piece of the file and needs no copy to become an array.
    whole = table.combine_chunks()
    with pa.ipc.new_file(str(path), whole.schema) as writer:
        writer.write_table(whole)
    return {"rows": whole.num_rows, "bytes": path.stat().st_size}


def _read(stored: Stored, name: str, expected: tuple[int, int]) -> pa.Table:
    """One table, mapped, with exactly the columns of its schema."""
    path = stored.folder / f"{name}.arrow"
    size, rows = expected
    try:
        found = path.stat().st_size
        if found != size:
            raise InputError(f"{path}: truncated or damaged: {found} bytes, {META} says {size}")
        table = pa.ipc.open_file(pa.memory_map(str(path), "r")).read_all()
        _check_texts(table)
    except FileNotFoundError:
        raise InputError(f"{stored.folder}: incomplete: {name}.arrow is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except pa.ArrowException as error:
        raise InputError(f"{path}: damaged: {error}") from None
    if table.num_rows != rows:
        raise InputError(f"{path}: damaged: {table.num_rows} rows, {META} says {rows}")
    return _fitted(stored, TABLES[name], table)


def _check_texts(table: pa.Table) -> None:
    """Offsets that point out of their buffer would be read as memory of this process: only texts have any."""
    table.validate()
    for column in table.columns:
        if pa.types.is_string(column.type):
            column.validate(full=True)
        if column.null_count:
            raise pa.ArrowInvalid("a column holds nulls")


def _fitted(stored: Stored, schema: Table, table: pa.Table) -> pa.Table:
    """Columns in the order of the schema; one that it has gained since is absent in older stores."""
    known = {column.name for column in schema.columns}
    unknown = sorted(set(table.column_names) - known)
    if unknown:
        raise InputError(
            f"{stored.folder}: written by a newer profkit ({stored.profkit_version}): {schema.name} has {unknown}"
        )
    columns = []
    for column in schema.columns:
        if column.name not in table.column_names:
            columns.append(pa.chunked_array([_absent(column, table.num_rows)]))
            continue
        values = table.column(column.name)
        if values.type != column.type:
            raise InputError(f"{stored.folder}: damaged: {schema.name}.{column.name} is {values.type}")
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema.schema)


def _absent(column: Column, rows: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pa.repeat(pa.scalar("", column.type), rows)
    absent = False if pa.types.is_boolean(column.type) else -1
    return pa.repeat(pa.scalar(absent, column.type), rows)


def _check_codes(stored: Stored, schema: Table, table: pa.Table, tables: Mapping[str, pa.Table]) -> None:
    """Codes and row numbers that point at nothing would end an analysis, or show another row's name."""
    for column in schema.columns:
        if column.labels:
            limit = len(column.labels)
        elif column.unit.startswith("row of "):
            limit = tables[column.unit.removeprefix("row of ")].num_rows
        else:
            continue
        edges = pc.min_max(table.column(column.name)).as_py() if table.num_rows else {"min": 0, "max": -1}
        if edges["min"] < -1 or edges["max"] >= limit:
            raise InputError(f"{stored.folder / schema.name}.arrow: damaged: {column.name} points at nothing")


def _number(value: int) -> int | str:
    """A number that every JSON reader keeps: text from 2^53 on."""
    return value if abs(value) < _SAFE_INTEGER else str(value)


def _meta_to_json(meta: RunMeta) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in fields(meta):
        value = getattr(meta, item.name)
        if isinstance(value, Mapping):
            out[item.name] = {str(key): str(text) for key, text in value.items()}
        elif isinstance(value, tuple):
            out[item.name] = list(value)
        else:
            out[item.name] = _number(value) if isinstance(value, int) and not isinstance(value, bool) else value
    # The name of the file says which capture it was; the folders around it are nobody's business.
    out["path"] = Path(meta.path).name
    return out


def _meta_from_json(content: Mapping[str, Any]) -> RunMeta:
    """Fields that this profkit does not know are left out; those that it gained since have their defaults."""
    values: dict[str, Any] = {}
    for item in fields(RunMeta):
        if item.name not in content:
            if item.default is MISSING and item.default_factory is MISSING:
                raise KeyError(item.name)
            continue
        value = content[item.name]
        if item.type == "int":
            value = int(value)
        elif isinstance(value, list):
            value = tuple(str(text) for text in value)
        values[item.name] = value
    return RunMeta(**values)
