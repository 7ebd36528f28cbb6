"""Random numbers by name: what one part of a program draws never depends on how much another part drew.

So a program with one change draws the same numbers everywhere else, and two runs differ by the change alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """The source of one run. Equal (seed, name) always gives equal numbers."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        self.seed = seed
        self._prefix = prefix

    def child(self, name: str) -> Chance:
        """A source whose names are apart from those of all other children."""
        return Chance(self.seed, f"{self._prefix}{name}/")

    def stream(self, name: str) -> random.Random:
        """A sequence of its own."""
        digest = blake2b(f"{self.seed}|{self._prefix}{name}".encode(), digest_size=8).digest()
        return random.Random(int.from_bytes(digest, "little"))

    def uniform(self, name: str, low: float, high: float) -> float:
        return self.stream(name).uniform(low, high)

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.stream(name).randint(low, high)

    def choice(self, name: str, items: Sequence[T]) -> T:
        return self.stream(name).choice(items)

    def happens(self, name: str, probability: float) -> bool:
        return self.stream(name).random() < probability

    def factors(self, name: str, count: int, sigma: float) -> list[float]:
        """``count`` log-normal factors around 1."""
        draw = self.stream(name).lognormvariate
        return [draw(0.0, sigma) for _ in range(count)]
