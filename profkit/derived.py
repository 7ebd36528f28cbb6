"""The derived tables of a trace, each computed when it is asked for: what ``export`` writes and ``sql`` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from profkit.analysis.context import Analysis
from profkit.analysis.idle_table import idle_table
from profkit.analysis.work import launches_table
from profkit.errors import ProfkitError
from profkit.judge import run_rules
from profkit.schema import TABLES


def _findings(analysis: Analysis) -> pa.Table:
    """The derived table ``findings``: what the rules found, by saving."""
    names = TABLES["findings"].schema.names
    return pa.Table.from_pylist(
        [{name: getattr(finding, name) for name in names} for finding in run_rules(analysis).every],
        schema=TABLES["findings"].schema,
    )


MAKERS: Mapping[str, Callable[[Analysis], pa.Table]] = {
    "launches": lambda analysis: launches_table(analysis.trace, analysis.whole_work),
    "steps": lambda analysis: analysis.steps.table(),
    "requests": lambda analysis: analysis.requests.table(),
    "idle": idle_table,
    "findings": _findings,
}
"""Table -> how it is made. ``launches`` has every device row, whatever is selected, so that other tables can name its
rows; the others are of what is selected."""


class Derived:
    """Derived tables by name, each made once: taken from ``kept`` where it is there, else computed."""

    def __init__(self, analysis: Analysis, kept: Mapping[str, pa.Table] | None = None) -> None:
        self._analysis = analysis
        self._tables = dict(kept or {})

    def __call__(self, name: str) -> pa.Table:
        """Raises ProfkitError for a table that profkit does not derive yet."""
        if name not in self._tables:
            if name not in MAKERS:
                raise ProfkitError(f"the table {name} is not derived by this version of profkit")
            self._tables[name] = MAKERS[name](self._analysis)
        return self._tables[name]

    def all(self) -> dict[str, pa.Table]:
        """All that this version derives."""
        return {name: self(name) for name in MAKERS}
