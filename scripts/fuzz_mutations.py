"""Damage, drawn from a random generator: the same seed gives the same damage."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.fuzz_sources import KERNEL, MEMCPY, RUNTIME, Seed

SQL_VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 2**31, 2**32 - 1, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63), "x", "", "12", b"\xff\x00", 1.5,
    1e300, float("inf"), "</script><script>", "a\nb", "\ufffe",
)  # fmt: skip
JSON_VALUES: tuple[Any, ...] = (
    None, -1, 0, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 1e300, 1e18, 0.1, -5.5, "x", "", "1.5", "stream 7", [], {},
    [1, 2, 3], {"a": 1}, True, "NaN", '}],{"ph":"X"', "</script>", "a\nb", "\ud800", "\x00",
)  # fmt: skip
RAW_JSON = (b"NaN", b"Infinity", b"-inf", b'"\\q"', b'"a\nb"', b'"\xff\xfe"', b"1e999", b"00", b"", b"}", b"]", b'"')
# Two tables of an export that are one of a trace: where one has rows, the other may rightly not exist.
_OF_ONE_KIND = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_TIMES = ("start", "end")
_TIMED = (KERNEL, MEMCPY, RUNTIME)


@dataclass(frozen=True)
class Mutant:
    """A damaged trace. ``loud``: no reader can miss this damage, so it must end in an error or in a new remark."""

    path: Path
    what: str
    loud: bool = False


def mutate(seed: Seed, folder: Path, rng: random.Random) -> Mutant:
    """A damaged copy of ``seed`` in ``folder``."""
    if seed.kind == "folder":
        return _damage_folder(seed.path, folder / "trace", rng)
    target = folder / ("t" + "".join(seed.path.suffixes[-2:] if seed.path.suffix == ".gz" else seed.path.suffixes[-1:]))
    shutil.copyfile(seed.path, target)
    if rng.random() < 0.35:
        return Mutant(target, *_damage_bytes(target, rng))
    if seed.kind == "sqlite":
        return Mutant(target, *_damage_tables(target, rng))
    return Mutant(target, *_damage_events(target, rng))


def _damage_bytes(path: Path, rng: random.Random) -> tuple[str, bool]:
    """Flipped, zeroed or missing bytes. A SQLite file that was cut is noticed by its header, JSON by its end."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(("flip", "flip", "zero", "cut", "append", "swap"))
    at = rng.randrange(len(data))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 3, 30))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "zero":
        size = rng.choice((1, 16, 512, 4096))
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "cut":
        del data[at:]
    elif kind == "append":
        data += rng.randbytes(rng.choice((1, 100, 5000)))
    else:
        page, other = (rng.randrange(len(data) // 512 + 1) * 512 for _ in range(2))
        data[page : page + 512], data[other : other + 512] = data[other : other + 512], data[page : page + 512]
    path.write_bytes(data)
    return f"bytes: {kind} at {at}", kind == "cut"


def _damage_tables(path: Path, rng: random.Random) -> tuple[str, bool]:
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        found = [row[0].decode() for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        # Names of enumerations and statistics hold nothing that is read.
        tables = [name for name in found if not name.startswith(("ENUM_", "sqlite_", "ANALYSIS_"))]
        alone = rng.random() < 0.5
        made = [damage_table(db, rng.choice(tables), rng) for _ in range(1 if alone else rng.randint(2, 5))]
        db.commit()
    return "; ".join(what for what, _ in made), alone and made[0][1]


def damage_table(db: sqlite3.Connection, table: str, rng: random.Random) -> tuple[str, bool]:
    """One change to one table, and whether it cannot be missed."""
    columns = [row[1].decode() for row in db.execute(f'PRAGMA table_info("{table}")')]
    if not columns:
        return f"{table} is gone", False
    column, every = rng.choice(columns), rng.choice((1, 2, 7))
    rows = db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    kind = rng.choice(("value",) * 6 + ("drop", "drop column", "delete", "double", "rename", "swap", "view"))
    other, value = rng.choice(columns), rng.choice(SQL_VALUES)
    changes = {
        "value": f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % {every} = 0',
        "drop": f'DROP TABLE "{table}"',
        "drop column": f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
        "delete": f'DELETE FROM "{table}" WHERE rowid % {every} = 0',
        "double": f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid % {every} = 0',
        "rename": f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}2"',
        "swap": f'UPDATE "{table}" SET "{column}" = "{other}", "{other}" = "{column}"',
        "view": f'ALTER TABLE "{table}" RENAME TO "{table}_V2"',
    }
    try:
        changed = db.execute(changes[kind], (value,) if kind == "value" else ()).rowcount
    except sqlite3.Error as error:
        return f"{kind} {table}.{column}: {error}", False
    timed = table in _TIMED and rows > 0
    loud = timed and (
        (kind == "drop" and table not in _OF_ONE_KIND)
        or (kind in ("value", "drop column", "rename") and column in _TIMES)
    )
    if kind == "value":
        # A time that is another sound number cannot be told from the truth; 0 and 1 could be times.
        sound = isinstance(value, int) and 0 <= value < 2**40
        loud = loud and changed > 0 and not sound and value not in ("12",)
    return f"{kind} {table}.{column}" + (f" = {value!r} every {every}" if kind == "value" else ""), loud


def _damage_events(path: Path, rng: random.Random) -> tuple[str, bool]:
    raw = path.read_bytes()
    zipped = raw.startswith(b"\x1f\x8b")
    text = gzip.decompress(raw) if zipped else raw
    if rng.random() < 0.3:
        what, loud = "", False
        for _ in range(rng.choice((1, 3))):
            text, what = _damage_text(text, rng)
    else:
        document = json.loads(text)
        alone = rng.random() < 0.5
        made = [_damage_value(document, rng) for _ in range(1 if alone else rng.randint(2, 8))]
        what, loud = "; ".join(w for w, _ in made), alone and made[0][1]
        text = json.dumps(document, indent=rng.choice((None, 1))).encode()
    path.write_bytes(gzip.compress(text, 1, mtime=0) if zipped else text)
    return what, loud


def _damage_text(text: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A value, a quote or a bracket of the text replaced by what is no JSON."""
    at = text.find(b":", rng.randrange(len(text)))
    at = len(text) // 2 if at < 0 else at + 1
    end = min((i for i in (text.find(mark, at) for mark in (b",", b"}", b"\n")) if i >= 0), default=at)
    new = rng.choice(RAW_JSON)
    return text[:at] + new + text[end:], f"text at {at}: {text[at:end]!r} -> {new!r}"


def _damage_value(document: Any, rng: random.Random) -> tuple[str, bool]:
    """One change to one event or to a property beside the events."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    value = rng.choice(JSON_VALUES)
    if not isinstance(events, list) or not events or (isinstance(document, dict) and rng.random() < 0.15):
        if not isinstance(document, dict) or not document:
            return "nothing", False
        key = rng.choice(list(document))
        if rng.random() < 0.3:
            del document[key]
            return f"delete {key}", False
        document[key] = value
        return f"{key} = {value!r}", False
    event = rng.choice(events)
    if not isinstance(event, dict) or not event:
        return "nothing", False
    kind = rng.random()
    if kind < 0.08:
        events.append(dict(event))
        return "double an event", False
    if kind < 0.12:
        events[rng.randrange(len(events))] = value
        return f"event = {value!r}", False
    holder, key = event, rng.choice(list(event))
    if isinstance(event[key], dict) and event[key] and rng.random() < 0.7:
        holder = event[key]
        key = rng.choice(list(holder))
    timed = holder is event and event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "cuda_runtime")
    if rng.random() < 0.2:
        del holder[key]
        return f"delete {key} of {event.get('cat')}", timed and key == "ts"
    holder[key] = value
    no_number = not isinstance(value, int | float) and value not in ("1.5",)
    return f"{key} of {event.get('cat')} = {value!r}", timed and key == "ts" and no_number


def _damage_folder(source: Path, target: Path, rng: random.Random) -> Mutant:
    """One file of a folder cut, flipped, emptied, taken away or put in another's place."""
    shutil.copytree(source, target)
    files = sorted(file for file in target.rglob("*") if file.is_file())
    made = []
    for _ in range(rng.choice((1, 1, 2))):
        file, kind = rng.choice(files), rng.choice(("bytes", "bytes", "empty", "remove", "exchange"))
        if not file.exists() or not file.stat().st_size:
            continue
        if kind == "bytes":
            kind = _damage_bytes(file, rng)[0]
        elif kind == "empty":
            file.write_bytes(b"")
        elif kind == "remove":
            file.unlink()
        else:
            other = rng.choice(files)
            if other.exists():
                shutil.copyfile(other, file) if other != file else None
        made.append(f"{file.name}: {kind}")
    return Mutant(target, "; ".join(made))
