"""GPU profiling and diagnostics for LLM inference.

The public names, loaded when first used: ``import profkit`` costs no more than its ranges do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.api import check, open  # noqa: A004 - the public name
    from profkit.capture.stage import Stage, request, stage
    from profkit.errors import ProfkitError
    from profkit.model import CheckResult, Evidence, Finding, Trace, Window

__all__ = [
    "CheckResult",
    "Evidence",
    "Finding",
    "ProfkitError",
    "Stage",
    "Trace",
    "Window",
    "check",
    "open",
    "request",
    "stage",
]

_HOME = {
    "Stage": "profkit.capture.stage",
    "request": "profkit.capture.stage",
    "stage": "profkit.capture.stage",
    "ProfkitError": "profkit.errors",
    "check": "profkit.api",
    "open": "profkit.api",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'profkit' has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "profkit.model")), name)
    globals()[name] = value
    return value
