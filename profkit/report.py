"""``profkit report``: one HTML file that says what bounds a step, whether to trust it, and shows where it is.

Sections are found in ``profkit.reports.sections``; each returns a fragment of HTML or None. The page has no script and
no reference to anything outside of it. Whatever the trace, it is at most MAX_BYTES long: figures lose detail until it
fits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import jinja2
from markupsafe import Markup

from profkit import text
from profkit.analysis.context import Analysis
from profkit.errors import ProfkitError
from profkit.model import CheckResult, Finding
from profkit.plugins import discover
from profkit.reports.lead import Hot, find_hot, lead_finding

MAX_BYTES = 500_000
DETAILS = (1.0, 0.6, 0.35, 0.2, 0.1)
"""How much of the figures is drawn, tried in this order until the page fits."""

_SUFFIXES = re.compile(r"(\.pt\.trace)?(\.json|\.sqlite|\.nsys-rep)?(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True)
class ReportInput:
    """What a section may use; ``detail`` (0..1] scales columns and slices of figures."""

    analysis: Analysis
    result: CheckResult
    detail: float = 1.0

    @cached_property
    def lead(self) -> Finding | None:
        """The finding that the headline is about, if it is about one."""
        return lead_finding(self.analysis, self.result)

    @cached_property
    def hot(self) -> Hot | None:
        """Where the lead finding shows on the timeline."""
        return find_hot(self.analysis, self.lead) if self.lead else None


@dataclass(frozen=True)
class Section:
    """One part of the report: ``render`` returns None where there is nothing to say; lower ``order`` comes first."""

    title: str
    order: int
    render: Callable[[ReportInput], Markup | None]

    @property
    def anchor(self) -> str:
        """Where links to the section go."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def all_sections() -> list[Section]:
    """Every section in the order of the page."""
    return sorted(discover("profkit.reports.sections", "SECTION", Section, key="title").values(), key=lambda s: s.order)


def render_report(analysis: Analysis, result: CheckResult) -> str:
    """The page: at most MAX_BYTES of UTF-8, without control characters. Raises ProfkitError if no detail fits."""
    for detail in DETAILS:
        page = _page(ReportInput(analysis, result, detail))
        if len(page.encode("utf-8")) <= MAX_BYTES:
            return page
    raise ProfkitError(f"the report would be larger than {text.size(MAX_BYTES)}: choose a part of it with --window")


def _page(report: ReportInput) -> str:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("profkit.reports", "."), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = env.get_template("base.html").render(
        title=page_title(report),
        simulated=report.analysis.trace.meta.simulated,
        sections=list(_fragments(report)),
        version=version("profkit"),
    )
    # The one place that every name passes: what a page cannot hold is taken out here.
    return text.printable(page)


def _fragments(report: ReportInput) -> Iterator[tuple[Section, Markup]]:
    for section in all_sections():
        fragment = section.render(report)
        if fragment is not None:
            yield section, fragment


def page_title(report: ReportInput) -> str:
    """Name of the capture without its folder: paths of the machine are nobody's business."""
    return text.clip(Path(report.analysis.trace.meta.path).name or report.analysis.trace.meta.source, 80)


def default_name(trace: Path) -> str:
    """Name of the report of a trace: ``run.sqlite`` and ``run.json.gz`` give ``run.html``."""
    name = trace.resolve().name
    return (_SUFFIXES.sub("", name) or name) + ".html"


def check_target(trace: Path, target: Path, *, force: bool) -> None:
    """Refuse a target before work is done. Raises ProfkitError for one that exists, is the trace, or has no folder."""
    if target.is_dir():
        raise ProfkitError(f"{target} is a folder: name a file with -o FILE.html")
    if target.exists() and not target.is_file():
        # The page is put in place by a rename, which would take a device's or a pipe's place.
        raise ProfkitError(f"{target} is no regular file: name another one with -o FILE.html")
    if target.exists() and trace.exists() and target.samefile(trace):
        raise ProfkitError(f"{target} is the trace itself: name another file with -o FILE.html")
    if target.exists() and not force:
        raise ProfkitError(f"{target} exists: choose another name with -o FILE.html, or overwrite it with --force")
    if not target.absolute().parent.is_dir():
        raise ProfkitError(f"there is no folder {target.parent} to write to")


def write_page(page: str, target: Path) -> None:
    """Write a page in one move: a reader sees the old file or the whole new one. Raises ProfkitError if it cannot."""
    target = target.resolve()  # through a link to the file that it names
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, "utf-8", newline="\n")
        temporary.replace(target)
    except OSError as error:
        raise ProfkitError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
