"""Makes a trace the same whatever the order of rows in its file: dimensions are numbered by what they stand for.

Rows of one instant are ordered by their track: were tracks numbered by which came first, the order of rows in a file
could change a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from profkit.model import RunMeta
from profkit.schema import CAPTURE_TABLES, TABLES

_TRACK_KEY = ("kind", "process", "device", "context", "green_context", "stream", "tid", "label")

Dimensions = dict[str, list[dict[str, Any]]]
Columns = Mapping[str, dict[str, Any]]


def begin_at_zero(meta: RunMeta, columns: Columns) -> tuple[RunMeta, str]:
    """(meta, a note or ""): exports that were shifted can begin before 0, where -1 stands for an absent time."""
    starts = [columns[name]["start_ns"] for name in CAPTURE_TABLES if len(columns[name]["start_ns"])]
    low = min((int(start.min()) for start in starts), default=0)
    if low >= 0:
        return meta, ""
    for part in columns.values():
        for key in ("start_ns", "time_ns"):
            if key in part:
                part[key] = part[key] - low
    utc = meta.utc_ns if meta.utc_ns < 0 else meta.utc_ns + low
    note = f"times of the source begin at {low:,} ns; here they begin at 0"
    return replace(meta, origin_ns=meta.origin_ns + low, utc_ns=utc), note


def renumber(dimensions: Dimensions, columns: Columns, missing: dict[str, dict[int, str]]) -> None:
    """Number processes by rank and pid, devices by ordinal and bus, tracks by all that they are; in place."""
    ordinals: dict[int, int] = {}
    for track in dimensions["tracks"]:
        ordinals[track["device"]] = min(ordinals.get(track["device"], track["ordinal"]), track["ordinal"])
    processes = [(p["host"], p["rank"], p["pid"], p["name"]) for p in dimensions["processes"]]
    devices = [(d["host"], ordinals.get(row, -1), d["bus"], d["uuid"]) for row, d in enumerate(dimensions["devices"])]
    place = _move("processes", processes, dimensions, columns)
    for table, reasons in missing.items():
        missing[table] = {int(place[row]) if row >= 0 else row: reason for row, reason in reasons.items()}
    _move("devices", devices, dimensions, columns)
    tracks = [tuple(track[name] for name in _TRACK_KEY) for track in dimensions["tracks"]]
    _move("tracks", tracks, dimensions, columns)


def _move(table: str, keys: list[tuple[Any, ...]], dimensions: Dimensions, columns: Columns) -> Any:
    """Put the rows of a dimension in the order of their keys, and every reference to them; the new place of each."""
    order = sorted(range(len(keys)), key=lambda row: (keys[row], row))
    place = np.full(len(order) + 1, -1, np.int32)  # the last one serves -1
    place[order] = np.arange(len(order))
    if order == list(range(len(keys))):
        return place
    dimensions[table] = [dimensions[table][row] for row in order]
    unit = f"row of {table}"
    for name, part in columns.items():
        for column in TABLES[name].columns:
            if column.unit == unit and column.name in part:
                part[column.name] = place[part[column.name]]
    for name, rows in dimensions.items():
        for column in TABLES[name].columns:
            if column.unit == unit:
                for row in rows:
                    row[column.name] = int(place[row[column.name]])
    return place
