"""What a run consists of: a scenario, the faults planted in it, and the world that both build in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from profkit.simulate.chance import Chance
from profkit.simulate.core import Simulation
from profkit.simulate.hardware import Hardware
from profkit.simulate.host import Host, Instruction, Process
from profkit.simulate.ops import Meeting

if TYPE_CHECKING:
    from profkit.simulate.engine import Engine

PLANTED, FREE, FIXED = "planted", "free", "fixed"
"""How a fault takes part in a run: as it is; with what it does taking no time; with the fix applied."""

JITTER_ENTRIES = 1024
_FIRST_NS = 1_000_000
"""Programs begin here: a session is older than its first call."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault: one file in ``faults`` with one FAULT.

    ``needs`` are points and properties that a scenario must have. ``at`` runs at points of a step, except while the
    fault is free (but see ``partly``). ``instead`` takes the place of a part of the step, in every mode. ``setup``
    changes the world that the fault lives in, in every mode. What a fault takes is multiplied by ``planted.scale``.
    """

    name: str
    code: str
    what: str
    needs: frozenset[str]
    at: Mapping[str, Callable[[Planted, Engine, int], Iterator[Instruction]]] = field(default_factory=dict)
    instead: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    setup: Callable[[Planted, dict[str, Any]], None] | None = None
    scales: bool = True
    """Whether ``scale`` changes what it costs."""
    partly: bool = False
    """Part of what ``at`` does is there without the fault: it runs while the fault is free, too."""
    alone: bool = False
    """Not drawn together with others: what they cost would depend on it by chance."""


@dataclass
class Planted:
    """A fault in one run."""

    fault: Fault
    mode: str
    scale: float
    chance: Chance
    state: dict[Any, Any] = field(default_factory=dict)
    """What it remembers from step to step."""

    @cached_property
    def place(self) -> int:
        """Where its calls begin in the random factors of a thread, so that others have theirs without it."""
        return self.chance.integer("place", 0, JITTER_ENTRIES)

    @property
    def planted(self) -> bool:
        return self.mode == PLANTED

    @property
    def fixed(self) -> bool:
        return self.mode == FIXED

    @property
    def free(self) -> bool:
        return self.mode == FREE


@dataclass(frozen=True)
class Scenario:
    """A program to simulate: one file in ``scenarios`` with one SCENARIO.

    ``offers`` are the points of its steps and the properties that faults may need; ``build`` makes processes, threads
    and their programs.
    """

    name: str
    what: str
    offers: frozenset[str]
    build: Callable[[World], None]
    steps: int = 40
    processes: int = 1
    whole_graphs: bool = False
    """Launches of graphs are recorded as one piece, their kernels not at all."""


@dataclass
class World:
    """What one run is built of. All random numbers come from ``chance``, by name."""

    simulation: Simulation
    chance: Chance
    steps: int
    planted: Sequence[Planted]
    settings: dict[str, Any] = field(default_factory=dict)
    main: Host | None = None
    """The thread whose steps are counted."""
    decisions: list[bool] = field(default_factory=list)
    """What the program decided by the time that it was, in order."""
    follow: Sequence[bool] | None = None
    """Decisions of another run that are to be made here as well: so that both do the same work."""
    meetings: dict[Any, Meeting] = field(default_factory=dict)
    """Collectives that not all ranks have launched yet."""

    def __post_init__(self) -> None:
        for each in self.planted:
            if each.fault.setup is not None:
                each.fault.setup(each, self.settings)
        self._at = {
            point: [
                (each, each.fault.at[point])
                for each in self.planted
                if point in each.fault.at and (each.mode != FREE or each.fault.partly)
            ]
            for point in {point for each in self.planted for point in each.fault.at}
        }
        self._instead = {part: (each, change) for each in self.planted for part, change in each.fault.instead.items()}

    @property
    def hardware(self) -> Hardware:
        return self.simulation.hardware

    def has(self, point: str) -> bool:
        """Whether anything is to be done at a point."""
        return bool(self._at.get(point))

    def point(self, name: str, engine: Engine, step: int) -> Iterator[Instruction]:
        """What the planted faults do at a point of a step."""
        host = engine.host
        for planted, run in self._at.get(name, ()):
            place, host.place = host.place, step * 131 + planted.place
            yield from run(planted, engine, step)
            host.place = place  # what comes behind takes as long as it does without the fault

    def instead(self, part: str) -> tuple[Planted, Callable[..., Any]] | None:
        """The fault that takes the place of a part of the step, and how."""
        return self._instead.get(part)

    def meeting(self, key: Any, ranks: int, size: int) -> Meeting:
        """The collective of this key, made by the first rank that asks; ``size`` in bytes."""
        made = self.meetings.get(key)
        if made is None:
            hardware = self.hardware
            transfer = hardware.collective_ns + size * 1000 // hardware.collective_bytes_per_us
            made = self.meetings[key] = Meeting(ranks, transfer)
        made.asked += 1
        if made.asked == ranks:
            del self.meetings[key]
        return made

    def process(self, device: int = 0, rank: int = -1) -> Process:
        """A process on a device, which is made if it is the first one there."""
        simulation = self.simulation
        while len(simulation.devices) <= device:
            simulation.device()
        pids = {host.process.pid for host in simulation.hosts}
        pid = 4000 + 17 * len(pids)
        process = Process(simulation, simulation.devices[device], pid, "python3", rank)
        process.lost_until = self.settings.get("lost_calls", 0)
        return process

    def host(self, process: Process, name: str, main: bool = False) -> Host:
        """A thread. ``main``: its steps are counted."""
        number = len(self.simulation.hosts)
        jitter = self.chance.factors(f"jitter/{name}/{process.pid}", JITTER_ENTRIES, 0.08)
        host = Host(process, process.pid + number, name, jitter)
        host.now = _FIRST_NS + self.chance.integer(f"first/{name}/{process.pid}", 0, 200_000)
        host.overhead_ns = self.settings.get("overhead_ns", 0)
        host.flush_every = self.settings.get("flush_every", 0)
        if main:
            self.main = host
        return host
