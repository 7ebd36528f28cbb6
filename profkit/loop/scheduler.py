"""Which sequences run next: first come first served, a slot of the cache for each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from profkit.capture.stage import Request
from profkit.loop.tokenizer import TextStream


@dataclass
class Sequence:
    """One request on its way through the engine. Times are perf_counter ns, -1 until known."""

    request: Request
    prompt: list[int]
    max_new: int
    arrival_ns: int
    slot: int = -1
    first_token_ns: int = -1
    end_ns: int = -1
    output: list[int] = field(default_factory=list)
    text: str = ""
    stream: TextStream = field(default_factory=TextStream)

    @property
    def done(self) -> bool:
        return len(self.output) >= self.max_new


class Scheduler:
    """A queue and ``slots`` places. A free place is filled before the running sequences go on: TTFT before TPOT."""

    def __init__(self, slots: int) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}
        self._free = list(range(slots - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def admit(self) -> Sequence | None:
        """The next sequence to prefill, in its slot; None when nobody waits or no slot is free."""
        if not self.waiting or not self._free:
            return None
        sequence = self.waiting.popleft()
        sequence.slot = self._free.pop()
        self.running[sequence.slot] = sequence
        return sequence

    def release(self, sequence: Sequence) -> None:
        """Give the slot of a running sequence to others."""
        del self.running[sequence.slot]
        self._free.append(sequence.slot)
        sequence.slot = -1
