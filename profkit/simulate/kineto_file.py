"""Writes a simulated trace as JSON of the PyTorch profiler, one file a process, marked SIMULATED.

That profiler records no NVTX, no waits of the operating system and no scheduling: stages are there as the annotations
that profkit's instrumenter makes, and the rest is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from profkit.simulate.core import Simulation
from profkit.simulate.host import MARK, Host, Process
from profkit.simulate.memory import D2D, D2H, H2D, P2P
from profkit.simulate.nsys_file import SIMULATED, UTC_NS
from profkit.simulate.ops import Op
from profkit.stages import DOMAIN, PREFIX

_DIRECTIONS = {H2D: "HtoD", D2H: "DtoH", D2D: "DtoD", P2P: "PtoP"}
_MEMORY = ("Pageable", "Pinned", "Device")
_SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


class KinetoFiles:
    """The files while they are written: ``write`` is a sink for a Recorder, ``finish`` adds what describes them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._files: dict[Process, TextIO] = {}

    def _file(self, process: Process) -> TextIO:
        file = self._files.get(process)
        if file is None:
            file = self._files[process] = self._paths[max(process.rank, 0)].open("w", encoding="utf-8")
            file.write(f'{{"schemaVersion":1,"profkit":"{SIMULATED}","baseTimeNanoseconds":{UTC_NS},"traceEvents":[\n')
        return file

    def write(self, kind: str, rows: list[Any]) -> None:
        """Add rows of one table of the recorder; tables that this profiler does not record are skipped."""
        make = getattr(self, f"_{kind}", None)
        if make is None:
            return
        lines: dict[Process, list[str]] = {}
        for process, line in make(rows):
            lines.setdefault(process, []).append(line)
        for process, texts in lines.items():
            self._file(process).write("".join(texts))

    def _kernels(self, rows: list[Op]) -> Iterator[tuple[Process, str]]:
        for op in rows:
            kernel = op.kernel
            assert kernel is not None
            graph = "" if op.graph is None else f',"graph id":{op.graph.graph},"graph node id":{op.node}'
            more = (
                f',"registers per thread":{kernel.registers},"shared memory":{kernel.smem},'
                f'"grid":{json.dumps(kernel.grid)},"block":{json.dumps(kernel.block)}{graph}'
            )
            yield op.host.process, _device_event("kernel", kernel.name, op, more)

    def _copies(self, rows: list[Op]) -> Iterator[tuple[Process, str]]:
        for op in rows:
            copy = op.copy
            assert copy is not None
            name = f"Memcpy {_DIRECTIONS[copy.kind]} ({_MEMORY[copy.source]} -> {_MEMORY[copy.target]})"
            yield op.host.process, _device_event("gpu_memcpy", name, op, f',"bytes":{copy.size}')

    def _memsets(self, rows: list[Op]) -> Iterator[tuple[Process, str]]:
        for op in rows:
            assert op.copy is not None
            name = f"Memset ({_MEMORY[op.copy.target]})"
            yield op.host.process, _device_event("gpu_memset", name, op, f',"bytes":{op.copy.size}')

    def _calls(self, rows: list[Any]) -> Iterator[tuple[Process, str]]:
        for start, end, host, correlation, name in rows:
            if not host.process.lost(correlation):
                category = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
                plain = name.split("_v")[0]
                yield host.process, _host_event(category, plain, host, start, end, f'"correlation":{correlation}')

    def _syncs(self, rows: list[Any]) -> Iterator[tuple[Process, str]]:
        for start, end, host, stream, correlation, kind, event in rows:
            if host.process.lost(correlation):
                continue
            device = host.process.device.ordinal
            number = stream.number if stream is not None else -1
            waits = f',"wait_on_cuda_event_id":{event}' if event >= 0 else ""
            args = f'"cuda_sync_kind":"{_SYNC_KINDS[kind]}","stream":{number},"correlation":{correlation}'
            args += f',"device":{device}'
            yield host.process, _event("cuda_sync", _SYNC_KINDS[kind], device, number, start, end, args + waits)

    def _ranges(self, rows: list[Any]) -> Iterator[tuple[Process, str]]:
        for start, end, host, name, domain, payload, kind, _ in rows:
            if domain == DOMAIN:
                carried = f"#{payload}" if payload >= 0 and kind != MARK else ""
                yield host.process, _host_event("user_annotation", f"{PREFIX}{name}{carried}", host, start, end)
            elif not domain:
                yield host.process, _host_event("user_annotation", name, host, start, end)

    def _overheads(self, rows: list[Any]) -> Iterator[tuple[Process, str]]:
        for start, end, host in rows:
            yield host.process, _host_event("overhead", "Activity Buffer Request", host, start, end)

    def finish(self, simulation: Simulation) -> None:
        """Name processes and threads, describe devices, close the files."""
        processes = list(dict.fromkeys(host.process for host in simulation.hosts))
        properties = [
            {"id": device.ordinal, "name": f"{SIMULATED} GPU", "numSms": 132, "totalGlobalMem": 80 << 30}
            for device in simulation.devices
        ]
        for process in processes:
            file = self._file(process)
            names = [_meta("process_name", process.pid, 0, process.name)]
            names += [
                _meta("thread_name", process.pid, h.tid, h.name) for h in simulation.hosts if h.process is process
            ]
            rank = {"rank": max(process.rank, 0), "world_size": len(processes)}
            top = {"deviceProperties": properties, "distributedInfo": rank, "profkit_version": version("profkit")}
            file.write(",\n".join(names) + "\n]," + json.dumps(top)[1:] + "\n")
        self.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def rank_paths(path: Path, processes: int) -> list[Path]:
    """The files for a name: itself for one process, else one with ``_rankN`` for each."""
    if processes == 1:
        return [path]
    return [path.with_name(f"{path.stem}_rank{rank}{path.suffix}") for rank in range(processes)]


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _event(category: str, name: str, pid: int, tid: int, start: int, end: int, args: str) -> str:
    where = f'"pid":{pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(end - start)}'
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},{where},"args":{{{args}}}}},\n'


def _device_event(category: str, name: str, op: Op, more: str) -> str:
    device, stream = op.stream.device.ordinal, op.stream.number
    args = f'"device":{device},"context":1,"stream":{stream},"correlation":{op.correlation}{more}'
    return _event(category, name, device, stream, op.start, op.end, args)


def _host_event(category: str, name: str, host: Host, start: int, end: int, args: str = "") -> str:
    return _event(category, name, host.process.pid, host.tid, start, end, args)


def _meta(what: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}})
