"""Fixes: what a change of the program would do to the model of a trace. One file a fix.

A fix finds what it concerns (calls, operations, host work) and gives two models: one in which that takes no time (the
cost of the fault), one in which it is done as the fix says (what the fix saves).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.replay.model import Model
from profkit.errors import UsageError
from profkit.model import Ints
from profkit.plugins import discover

Change = Callable[[Model], Model]


@dataclass(frozen=True)
class Found:
    """What a fix concerns in one trace: ``count`` calls, operations or pieces of host work.

    ``free`` takes their time away, ``fixed`` applies the fix; both may be applied after other fixes. ``assumed`` are
    the assumptions in words, ``facts`` constants and counts with their units in the keys. ``calls`` and ``ops`` are
    positions in the model of what it concerns; ``host_ns`` how much of the host's work before each of the calls, where
    it is that work and not the calls.
    """

    count: int
    free: Change
    fixed: Change
    assumed: tuple[str, ...] = ()
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    calls: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    ops: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    host_ns: Ints | None = None


@dataclass(frozen=True)
class Fix:
    """``find(analysis, model, argument)`` returns None where a trace has nothing of the kind.

    ``code`` is the rule that reports the fault; ``argument`` says in words what stands behind the name and a colon
    (``kernel:NAME=0.7x``), empty where nothing may; ``check`` raises UsageError for one that ``find`` cannot use.
    """

    name: str
    code: str
    title: str
    find: Callable[[Analysis, Model, str], Found | None]
    argument: str = ""
    check: Callable[[str], object] = str


@cache
def all_fixes() -> dict[str, Fix]:
    """Every fix by its name."""
    return discover("profkit.analysis.fixes", "FIX", Fix)


def parse_fix(text: str) -> tuple[Fix, str]:
    """(fix, argument) of a text such as ``pinned-copies`` or ``kernel:gemm=0.7x``.

    Raises UsageError for an unknown name, and for a missing, an unwanted and a wrong argument.
    """
    name, _, argument = text.partition(":")
    fix = all_fixes().get(name)
    if fix is None:
        raise UsageError(f"no fix is called {name!r}; there are: {', '.join(sorted(all_fixes()))}")
    if fix.argument and not argument:
        raise UsageError(f"{name} needs an argument: {name}:{fix.argument}")
    if argument and not fix.argument:
        raise UsageError(f"{name} takes no argument")
    fix.check(argument)
    return fix, argument
