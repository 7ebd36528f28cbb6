"""Everything that is derived from one trace, computed when first asked for and kept: what rules and reports read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from profkit.analysis.busy import DeviceTime, Runs, device_times, runs_of
from profkit.analysis.calls import GRAPH_LAUNCH, LAUNCH, call_kinds
from profkit.analysis.devices import device_numbers
from profkit.analysis.idle import find_idle
from profkit.analysis.idle_pieces import Idle
from profkit.analysis.intervals import percentile
from profkit.analysis.launch_pace import launch_paced, most_python
from profkit.analysis.requests import Requests, find_requests
from profkit.analysis.spans import Ranges, owners, stage_ranges
from profkit.analysis.stages import Launched, StageTime, stage_times
from profkit.analysis.steps import Steps, find_steps, main_of
from profkit.analysis.steps_kernels import KernelSequence, find_sequences
from profkit.analysis.steps_steady import Steady, find_steady
from profkit.analysis.work import Work, clip_work, device_work
from profkit.arrays import distinct, pack
from profkit.model import Array, Ints, Mask, Trace, Window
from profkit.schema import STEP_KINDS

if TYPE_CHECKING:
    from profkit.analysis.fixes import Found
    from profkit.analysis.llm import Llm
    from profkit.analysis.replay.price import Replayed

T = TypeVar("T")


@dataclass(frozen=True)
class CountedSteps:
    """Steps of the main kind, whole and warm, with a period: ``mask`` over all steps; times in ns."""

    mask: Mask
    kind: str
    count: int
    median_ns: int
    total_ns: int


@dataclass(frozen=True)
class Analysis:
    """One trace and, if ``selected``, the part of it that is looked at.

    Device rows are cut at the edges of the selection; ranges, calls and requests count where they begin inside, steps
    where their GPU work is inside (without GPU work, their range).
    """

    trace: Trace
    selected: Window | None = None
    llm: Llm | None = None
    """The model that the traced program ran, where it is known."""

    @cached_property
    def whole_work(self) -> Work:
        """All device rows, whatever is selected."""
        return device_work(self.trace)

    @cached_property
    def clipped(self) -> tuple[Work, Ints | None]:
        """(device rows cut at the edges of what is selected, their positions in ``whole_work``; None for all)."""
        if self.selected is None:
            return self.whole_work, None
        return clip_work(self.whole_work, self.selected)

    @property
    def work(self) -> Work:
        """Device rows, cut at the edges of what is selected."""
        return self.clipped[0]

    def whole_row(self, row: Array) -> Array:
        """Position in ``whole_work`` of rows of ``work``."""
        kept = self.clipped[1]
        return row if kept is None else kept[row]

    @property
    def has_gpu_rows(self) -> bool:
        return len(self.work) > 0

    @cached_property
    def window(self) -> Window | None:
        """What was selected, else first to last GPU row over all devices; None where there is neither."""
        return self.selected or self.work.window

    def begins_inside(self, table: str) -> Mask:
        """Rows of an event table that begin inside what is selected."""
        return self._inside(self.trace.array(table, "start_ns"))

    def _inside(self, time: Ints) -> Mask:
        if self.selected is None:
            return np.ones(len(time), bool)
        mask: Mask = (time >= self.selected.start_ns) & (time < self.selected.end_ns)
        return mask

    @cached_property
    def ranges(self) -> Ranges:
        """All stage ranges that nest."""
        return stage_ranges(self.trace)

    @cached_property
    def whole_owner(self) -> Array:
        """Innermost stage range of each row of ``whole_work``, -1 for none."""
        return owners(self.trace, self.ranges, self.whole_work)

    @property
    def owner(self) -> Array:
        """Innermost stage range of each row of ``work``, -1 for none."""
        kept = self.clipped[1]
        return self.whole_owner if kept is None else self.whole_owner[kept]

    @cached_property
    def runs(self) -> list[Runs]:
        """When each device with work worked without a pause."""
        return runs_of(self.work, self.work.device)

    @cached_property
    def process_runs(self) -> dict[int, Runs]:
        """When the devices of each process with work worked for it without a pause, by row of processes."""
        work = self.work
        if len(self.runs) == 1 and work.process.min() == work.process.max():
            return {int(work.process[0]): self.runs[0]}
        return {run.owner: run for run in runs_of(work, work.process)}

    @cached_property
    def whole_process_runs(self) -> dict[int, Runs]:
        """The same for all device rows, whatever is selected."""
        if self.selected is None:
            return self.process_runs
        return {run.owner: run for run in runs_of(self.whole_work, self.whole_work.process)}

    def processes_of(self, device: int) -> Ints:
        """Rows of processes that work on a device, in order; without those that the trace does not say."""
        return self._processes_of.get(device, np.zeros(0, np.int64))

    @cached_property
    def _processes_of(self) -> dict[int, Ints]:
        work, count = self.work, max(self.trace.rows("processes"), 1)
        owned = np.where(work.process >= 0, work.device.astype(np.int32) * count + work.process, -1)
        pairs = distinct(np.where(work.device >= 0, owned, -1))
        return {int(device): pairs[pairs // count == device] % count for device in np.unique(pairs // count)}

    @cached_property
    def devices(self) -> list[DeviceTime]:
        return device_times(self.work, self.runs, self.window) if self.window is not None else []

    @cached_property
    def stages(self) -> list[StageTime]:
        return stage_times(
            self.trace,
            self.ranges,
            Launched(self.whole_work, self.whole_owner),
            Launched(self.work, self.owner),
            self.begins_inside("spans"),
        )

    @cached_property
    def steps(self) -> Steps:
        steps = find_steps(self.trace, self.ranges, self.whole_work)
        kept = self.clipped[1]
        return steps if self.selected is None or kept is None else steps.inside(self.selected, kept)

    @cached_property
    def steady(self) -> Steady | None:
        """From which step on periods stay about the same; None with too few of them to tell."""
        return find_steady(self.steps)

    @cached_property
    def kernel_sequences(self) -> list[KernelSequence]:
        """Sequences of kernels that repeat, of what is selected: one a process at most."""
        return find_sequences(self.trace, self.work)

    def steps_of_device(self, device: int) -> Steps:
        """Steps of the processes that work on a device."""
        return self.steps.of_processes(self.processes_of(device))

    def counted_steps(self, device: int | None = None) -> CountedSteps:
        """What a price per step is divided by: of all processes, or of those that work on a device."""
        steps = self.steps
        mine = steps.lead
        if device is not None:
            mine = np.isin(steps.process, self.processes_of(device))
        mine = mine & steps.counted & (steps.period >= 0)
        totals = {code: int(steps.period[mine & (steps.kind == code)].sum()) for code in range(len(STEP_KINDS))}
        main = main_of(totals) or 0
        mask = mine & (steps.kind == main)
        return CountedSteps(
            mask, steps.word(main), int(mask.sum()), percentile(steps.period[mask], 50) or 0, totals[main]
        )

    @cached_property
    def requests(self) -> Requests:
        requests = find_requests(self.trace)
        return requests if self.selected is None else requests.where(self._inside(requests.arrival))

    @cached_property
    def idle(self) -> Idle:
        return find_idle(self.trace, self.work, self.runs, self.ranges, self.window or Window(0, 0))

    @cached_property
    def launch_paced(self) -> Mask:
        """Gaps of ``idle`` in which the device waited for launches and nothing else."""
        calls = np.flatnonzero(self.launch_calls)
        start, track = self.trace.array("calls", "start_ns")[calls], self.trace.array("calls", "track")[calls]
        return launch_paced(self.idle, self.work, self.launch_calls, most_python(start, self.call_end[calls], track))

    @cached_property
    def replayed(self) -> Replayed:
        """The model that prices are replayed on, of the whole trace or of a sample of its steps."""
        from profkit.analysis.replay.price import start  # a replay is built on this class

        return start(self)

    def found(self, fix: str) -> Found | None:
        """What a fix, as ``whatif --fix`` takes it, finds in what is replayed; looked for once."""
        from profkit.analysis.fixes import parse_fix  # a fix is built on this class

        known, argument = parse_fix(fix)
        return self.once(("fix", fix), lambda: known.find(self, self.replayed.model, argument))

    def once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What ``make`` returns, made when it is first asked for: for what several rules need."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], Any]:
        return {}

    @cached_property
    def call_kind(self) -> Array:
        return call_kinds(self.trace)

    @cached_property
    def launch_calls(self) -> Mask:
        """Calls that launch kernels or graphs, inside what is selected or not."""
        mask: Mask = (self.call_kind == LAUNCH) | (self.call_kind == GRAPH_LAUNCH)
        return mask

    @cached_property
    def call_end(self) -> Ints:
        return self.trace.array("calls", "start_ns") + self.trace.array("calls", "dur_ns")

    @cached_property
    def step_count(self) -> int:
        """Counted steps of the main kind: what a cost per step is divided by; 0 without steps."""
        kind = self.steps.main_kind()
        if kind is None:
            return 0
        return int((self.steps.counted & self.steps.lead & (self.steps.kind == kind)).sum())

    def device_name(self, device: int) -> str:
        """GPU name and number: ``NVIDIA H100 80GB HBM3 (GPU 0)``."""
        if device < 0:
            return f"GPU {device}"
        name = self.trace.tables["devices"].column("name")[device].as_py()
        number = int(self.device_number[device])
        return f"{name} (GPU {number})" if name else f"GPU {number}"

    @cached_property
    def device_number(self) -> Ints:
        """Number of each row of devices, as ``check --device`` takes it."""
        return device_numbers(self.trace)

    def step_of_time(self, time: Ints, process: Array) -> Ints:
        """Step of the process whose host range holds each time, by the latest start; -1 for none."""
        steps = self.steps
        if not len(steps) or not len(time):
            return np.full(len(time), -1, np.int64)
        step_key, key = pack([[steps.process, process], [steps.host_start, time]])
        order = np.argsort(step_key, kind="stable")
        at = np.searchsorted(step_key[order], key, side="right") - 1
        found = order[np.maximum(at, 0)]
        inside = (at >= 0) & (steps.process[found] == process) & (time < steps.host_end[found])
        return np.where(inside, found, -1)
