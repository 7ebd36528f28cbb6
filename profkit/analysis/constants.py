"""Published figures that prices use where a trace holds no measurement of its own, each with its source."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def constants() -> dict[str, Any]:
    """The figures of constants.toml."""
    return tomllib.loads(files("profkit.analysis").joinpath("constants.toml").read_text("utf-8"))
