"""Rows of processes, devices and tracks for the ids that events carry, and what the file says about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from profkit.builder import Builder
from profkit.ingest.kineto.mend import number
from profkit.ingest.kineto.records import Meta
from profkit.model import Ints
from profkit.schema import TRACK_KINDS

_COUNTER, _STREAM, _THREAD = (TRACK_KINDS.index(kind) for kind in ("counter", "stream", "thread"))
_RANK_IN_LABEL = re.compile(r"\brank[\s_:#-]*(\d{1,6})\b", re.IGNORECASE)
_DEVICE_IN_LABEL = re.compile(r"\b(?:gpu|device|cuda)[\s_:#-]*(\d{1,6})\b", re.IGNORECASE)


class Lanes:
    """Rows of processes, devices and tracks; made when first asked for."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._host = builder.dimension("hosts", "host", clock="unknown")
        self._process_names: dict[int | str, str] = {}
        self._thread_names: dict[tuple[int | str, int | str], str] = {}
        self._labels: dict[int | str, str] = {}
        self.threads = _Rows(lambda key: self._thread(*key))
        """Track by (pid, tid)."""
        self.processes = _Rows(self._process)
        """Row of processes by pid."""
        self.streams = _Rows(lambda key: self._stream(*key))
        """Track by (device or pid, context, stream or tid)."""

    def learn(self, events: list[Meta]) -> None:
        """Names and labels of processes and threads from metadata events, wherever they stand in the file."""
        for event in events:
            text = event.args.name
            if isinstance(text, str) and event.name == "process_name":
                self._process_names.setdefault(event.pid, text)
            elif isinstance(text, str) and event.name == "thread_name":
                self._thread_names.setdefault((event.pid, event.tid), text)
            elif isinstance(event.args.labels, str) and event.name == "process_labels":
                self._labels.setdefault(event.pid, event.args.labels)

    def finish(self, properties: Any, ranks: dict[str, int]) -> None:
        """Fill in names, ranks and device properties: they may stand behind the events."""
        for row in range(self._builder.count("processes")):
            self._builder.set_dimension("processes", row, **ranks)
        for facts in properties if isinstance(properties, list) else []:
            row = self._builder.row_of("devices", number(facts.get("id"))) if isinstance(facts, dict) else -1
            if row >= 0:
                self._builder.set_dimension(
                    "devices",
                    row,
                    name=str(facts.get("name") or ""),
                    sm_count=number(facts.get("numSms")),
                    memory_bytes=number(facts.get("totalGlobalMem")),
                )
        for pid, rank in self._ranks_in_labels().items():
            self._builder.set_dimension("processes", self._builder.row_of("processes", ("pid", pid)), rank=rank)
        for pid, name in self._process_names.items():
            row = self._builder.row_of("processes", ("pid", pid))
            if row >= 0:
                self._builder.set_dimension("processes", row, name=name)
        for (pid, tid), name in self._thread_names.items():
            row = self._builder.row_of("tracks", ("thread", pid, tid))
            if row >= 0:
                self._builder.set_dimension("tracks", row, label=name.strip())

    def owners(self) -> dict[int, int]:
        """Row of processes by track, where labels tie the process of a rank to its device: traces of ranks in one file.

        A process labelled ``rank 1`` (or ``GPU 1``) owns the device whose own label says the same, or has no label and
        that ordinal. Two processes with one number own nothing.
        """
        numbers: dict[int, list[int]] = {}
        for pid in (*self._labels, *self._process_names):
            row = self._builder.row_of("processes", ("pid", pid))
            found = self._number_of(pid)
            if row >= 0 and found >= 0 and row not in numbers.get(found, []):
                numbers.setdefault(found, []).append(row)
        if sum(map(len, numbers.values())) < 2:
            return {}
        out: dict[int, int] = {}
        for key, track in self.streams.items():
            device = self._number_of(key[0])
            processes = numbers.get(device if device >= 0 else number(key[0]), [])
            if len(processes) == 1:
                out[track] = processes[0]
        return out

    def _number_of(self, pid: Any) -> int:
        """The rank, else the device, that the labels or the name of a process say; -1 for none."""
        for pattern in (_RANK_IN_LABEL, _DEVICE_IN_LABEL):
            for text in (self._labels.get(pid, ""), self._process_names.get(pid, "")):
                if match := pattern.search(text):
                    return int(match[1])
        return -1

    def _ranks_in_labels(self) -> dict[int | str, int]:
        """Ranks of processes where two or more are labelled with one."""
        found = {
            pid: int(match[1])
            for pid in {**self._labels, **self._process_names}
            if self._builder.row_of("processes", ("pid", pid)) >= 0
            and (match := _RANK_IN_LABEL.search(f"{self._labels.get(pid, '')} {self._process_names.get(pid, '')}"))
        }
        return found if len(found) > 1 else {}

    def _process(self, pid: int | str) -> int:
        if pid == -1:  # the profiler's own overhead belongs to none
            return -1
        return self._builder.dimension("processes", ("pid", pid), host=self._host, pid=number(pid))

    def known_device(self, ordinal: int) -> int:
        """Row of a device that ran something, -1 for any other; the first one that is named where none did."""
        row = self._builder.row_of("devices", ordinal)
        return row if row >= 0 or self._builder.count("devices") else self.device(ordinal)

    def device(self, ordinal: int) -> int:
        return self._builder.dimension("devices", ordinal, host=self._host)

    def counter_track(self, device: int) -> int:
        """Row of tracks for the counters of a row of devices."""
        return self._builder.dimension(
            "tracks", ("counter", device), kind=_COUNTER, host=self._host, device=device, label="device memory"
        )

    def _thread(self, pid: int | str, tid: int | str) -> int:
        found = number(tid)
        return self._builder.dimension(
            "tracks",
            ("thread", pid, tid),
            kind=_THREAD,
            host=self._host,
            process=self.processes[pid],
            tid=found,
            label=f"thread {found}" if found >= 0 else str(tid),
        )

    def _stream(self, device: int | str, context: int, stream: int | str) -> int:
        ordinal, found = number(device), number(stream)
        return self._builder.dimension(
            "tracks",
            ("stream", ordinal, found),
            kind=_STREAM,
            host=self._host,
            device=self.device(ordinal),
            ordinal=ordinal,
            context=context,
            stream=found,
            label=f"stream {found}",
        )


class _Rows(dict[Any, int]):
    """Rows by key, made at first sight: a look-up without a call for keys that were seen."""

    def __init__(self, make: Callable[[Any], int]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> int:
        row = self[key] = self._make(key)
        return row


def mapped(keys: list[Any], function: Callable[[Any], int]) -> Ints:
    """``function`` of each key, called once for each distinct one."""
    return np.fromiter(map(_Rows(function).__getitem__, keys), np.int64, len(keys))
