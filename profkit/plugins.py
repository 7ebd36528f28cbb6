"""The only plug-in mechanism: a file in the right folder, with one typed constant, is found."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar

from profkit.errors import ProfkitError

T = TypeVar("T")


def discover(package: str, constant: str, kind: type[T], key: str = "name") -> dict[str, T]:
    """Import each module of ``package`` and collect its ``constant``, keyed by the constant's attribute ``key``.

    Modules whose name starts with ``_`` and sub-packages are not plug-ins. Raises ProfkitError for a module without the
    constant, for a constant of another type, and for two of the same key.
    """
    found: dict[str, T] = {}
    owner: dict[str, str] = {}
    root = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda info: info.name):
        if info.name.startswith("_") or info.ispkg:
            continue
        module = f"{package}.{info.name}"
        value = getattr(importlib.import_module(module), constant, None)
        if not isinstance(value, kind):
            raise ProfkitError(f"{module} has no {constant} of type {kind.__name__}")
        name = str(getattr(value, key))
        if name in found:
            raise ProfkitError(f"{module} and {owner[name]} both define {constant} {name!r}")
        found[name], owner[name] = value, module
    return found
