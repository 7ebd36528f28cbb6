"""Lanes as SVG: shares as bars or opacity by pixel column, wide slices one by one with their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from markupsafe import Markup, escape

from profkit import text
from profkit.analysis.intervals import Intervals, clip
from profkit.model import Array, Ints, Window
from profkit.reports.markup import TITLE_WIDTH
from profkit.timeline.pack import Lane, Slices, column_edges, covered_shares, density, dominant, runs, ticks

LABEL_WIDTH = 210
PLOT_WIDTH = 1000
_MARGIN = 12
_FONT_WIDTH = 6.1
"""Of a character at the size of slice labels; a little too wide rather than too narrow."""
_LABEL_CHARS = 34
_OPACITIES = 4

Describe = Callable[[Lane, int], tuple[str, str]]
"""(label, hover text) of one interval of a lane."""


class Figure:
    """One drawing that grows downwards, lane by lane. ``categories`` collects what its legend must explain."""

    def __init__(self, window: Window, columns: int) -> None:
        self.window = window
        self.columns = len(column_edges(window, columns)) - 1
        self.categories: list[str] = []
        self._y = 0
        self._back: list[str] = []
        self._front: list[str] = []

    @property
    def y(self) -> int:
        """Where the next lane starts."""
        return self._y

    def svg(self, label: str) -> Markup:
        """The drawing; ``label`` says to a screen reader what it shows."""
        width, height = LABEL_WIDTH + PLOT_WIDTH + _MARGIN, self._y + 4
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>\n').format(
            width, height, label, Markup("\n".join((*self._back, *self._front)))
        )

    def axis(self, word: Callable[[int], str], zero_ns: int = 0) -> None:
        """Times on top that are round when counted from ``zero_ns``, with lines down the whole figure."""
        shifted = Window(self.window.start_ns - zero_ns, self.window.end_ns - zero_ns)
        times = [time + zero_ns for time in ticks(shifted)]
        lines = "".join(f"M{self._x(t)} 16V9999" for t in times)
        self._back.append(f'<path class="grid" d="{lines}"/>')
        for time in times:
            anchor = "end" if self._at(time) > LABEL_WIDTH + PLOT_WIDTH - 40 else "middle"
            self._front.append(
                f'<text class="tick" text-anchor="{anchor}" x="{self._x(time)}" y="11">{word(time)}</text>'
            )
        self._y += 20

    def heading(self, words: str) -> None:
        """A line above the lanes that belong together."""
        self._front.append(f'<text class="group" x="0" y="{self._y + 15}">{escape(text.clip(words, 110))}</text>')
        self._y += 21

    def bars(self, lane: Lane, height: int = 24) -> None:
        """A lane as stacked bars: the height of a column is the share of its time in which anything ran."""
        shares = density(lane, self.window, self.columns)
        self._label(lane.label, height)
        cumulated = np.cumsum(shares, axis=0)
        levels = np.where(cumulated > 1e-9, np.maximum(np.rint(cumulated * height), 1), 0).astype(np.int64)
        paths = []
        for code in range(len(lane.categories) - 1, -1, -1):
            if shares[code].any():
                self.categories.append(lane.categories[code])
                paths.append(f'<path class="c-{lane.categories[code]}" d="{_silhouette(levels[code], height)}"/>')
        self._baseline(height)
        self._columns(paths)
        self._y += height + 3

    def share_bars(self, intervals: Intervals, label: str, colour: str, height: int = 12) -> None:
        """One more lane of bars, of intervals without categories."""
        levels = _levels(covered_shares(intervals, self.window, self.columns), height)
        self._label(label, height)
        self._baseline(height)
        self._columns([f'<path class="{colour}" d="{_silhouette(levels, height)}"/>'])
        self._y += height + 3

    def slices(self, lane: Lane, packed: Slices, describe: Describe, height: int = 16) -> None:
        """A lane in rows: wide slices one by one; columns of the rest by opacity, which is the share covered."""
        self._label(lane.label, height)
        for row in range(packed.rows):
            self._shares(lane, packed.shares[row], row * height, height - 1)
        self._slices(packed.drawn, describe, height)
        self._y += packed.rows * height + 3

    def highlight(self, intervals: Intervals, top: int, bottom: int) -> None:
        """Bands behind the lanes between two heights; narrow ones are as wide as can be seen."""
        seen = clip(intervals, self.window.start_ns, self.window.end_ns)
        levels = covered_shares(seen, self.window, min(PLOT_WIDTH, self.columns * 2)) > 0
        scale = PLOT_WIDTH / len(levels)
        d = "".join(
            f"M{_digits(LABEL_WIDTH + first * scale)} {top}h{_digits((last - first) * scale)}"
            f"v{bottom - top}h-{_digits((last - first) * scale)}z"
            for first, last, value in runs(levels.astype(np.int8))
            if value
        )
        self._back.append(f'<path class="hot" d="{d}"/>')

    def _shares(self, lane: Lane, shares: Array, top: int, height: int) -> None:
        code, total = dominant(shares)
        level = np.where(total > 1e-9, np.clip(np.ceil(total * _OPACITIES), 1, _OPACITIES), 0).astype(np.int64)
        by_look: dict[int, list[str]] = defaultdict(list)
        for first, last, look in runs(np.where(level > 0, code * (_OPACITIES + 1) + level, -1)):
            if look >= 0:
                by_look[look].append(f"M{first} {top}h{last - first}v{height}h-{last - first}z")
        paths = []
        for look, parts in by_look.items():
            category = lane.categories[look // (_OPACITIES + 1)]
            self.categories.append(category)
            paths.append(f'<path class="c-{category} o{look % (_OPACITIES + 1)}" d="{"".join(parts)}"/>')
        self._columns(paths)

    def _slices(self, drawn: Lane, describe: Describe, height: int) -> None:
        left = self._at(np.maximum(drawn.start, self.window.start_ns))
        right = self._at(np.minimum(drawn.end, self.window.end_ns))
        width = np.maximum(right - left, 0.6)
        thin: dict[int, list[str]] = defaultdict(list)
        for i in range(len(drawn)):
            code, top = int(drawn.category[i]), self._y + int(drawn.row[i]) * height
            if width[i] < 2.5:
                size = _digits(width[i])
                thin[code].append(f"M{_digits(left[i])} {top}h{size}v{height - 1}h-{size}z")
                continue
            self.categories.append(drawn.categories[code])
            self._front.append(_box(drawn, i, describe, float(left[i]), float(width[i]), top, height))
        for code, parts in thin.items():
            self.categories.append(drawn.categories[code])
            self._front.append(f'<path class="c-{drawn.categories[code]}" d="{"".join(parts)}"/>')

    def _label(self, words: str, height: int) -> None:
        shown = text.clip(words, _LABEL_CHARS)
        hover = f"<title>{escape(text.clip(words, TITLE_WIDTH))}</title>" if shown != words else ""
        self._front.append(
            f'<text class="lane" text-anchor="end" x="{LABEL_WIDTH - 8}" y="{self._y + min(height, 24) // 2 + 4}">'
            f"{escape(shown)}{hover}</text>"
        )

    def _baseline(self, height: int) -> None:
        self._back.append(f'<path class="base" d="M{LABEL_WIDTH} {self._y + height}h{PLOT_WIDTH}"/>')

    def _columns(self, paths: list[str]) -> None:
        """Paths in units of columns, moved and stretched to their place."""
        if paths:
            stretch = _digits(PLOT_WIDTH / self.columns, 5)
            place = f"translate({LABEL_WIDTH} {self._y}) scale({stretch} 1)"
            self._front.append(f'<g transform="{place}">{"".join(paths)}</g>')

    def _at(self, time: Array | int) -> Array:
        scale = PLOT_WIDTH / max(self.window.dur_ns, 1)
        position: Array = LABEL_WIDTH + (np.asarray(time) - self.window.start_ns) * scale
        return position

    def _x(self, time: int) -> str:
        return _digits(float(self._at(time)))


def _box(drawn: Lane, i: int, describe: Describe, left: float, width: float, top: int, height: int) -> str:
    label, hover = describe(drawn, i)
    room = int((width - 5) / _FONT_WIDTH)
    written = ""
    if room >= 3:
        written = (
            f'<text class="in" x="{_digits(left + 3)}" y="{top + height - 5}">{escape(text.clip(label, room))}</text>'
        )
    return (
        f"<g><title>{escape(text.clip(hover, TITLE_WIDTH))}</title>"
        f'<rect class="c-{drawn.categories[int(drawn.category[i])]}" x="{_digits(left)}" y="{top}" '
        f'width="{_digits(max(width - 0.4, 0.6))}" height="{height - 1}"/>{written}</g>'
    )


def _levels(shares: Array, height: int) -> Array:
    """Heights in pixels; what is there at all has at least one."""
    levels: Array = np.where(shares > 1e-9, np.maximum(np.rint(shares * height), 1), 0).astype(np.int64)
    return levels


def _silhouette(levels: Array, height: int) -> str:
    """A path over columns of these heights, along the bottom line back to the start."""
    return f"M0 {height}" + "".join(f"V{height - v}h{last - first}" for first, last, v in runs(levels)) + f"V{height}z"


def _digits(value: float, digits: int = 1) -> str:
    """A coordinate, as short as it can be written."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"


def step_chart(window: Window, end: Ints, period: Ints, categories: list[str]) -> tuple[Markup, list[str]]:
    """Bars of step periods over time, the longest in each pixel column; returns the drawing and its categories."""
    height, columns = 70, PLOT_WIDTH // 2
    top = int(period.max())
    column = np.minimum((end - window.start_ns) / window.dur_ns * columns, columns - 1).astype(np.int64)
    order = np.lexsort((period, column))
    last = np.concatenate((column[order][1:] != column[order][:-1], [True]))
    paths: dict[str, list[str]] = defaultdict(list)
    for i in order[last].tolist():
        tall = max(round(int(period[i]) / top * height), 1) if top else 1
        paths[categories[i]].append(f"M{LABEL_WIDTH + int(column[i]) * 2} {height + 6}v-{tall}h1.6v{tall}z")
    bars = "".join(f'<path class="c-{category}" d="{"".join(parts)}"/>' for category, parts in paths.items())
    bottom = height + 6
    label = f'<text class="lane" text-anchor="end" x="{LABEL_WIDTH - 8}"'
    svg = (
        f'<svg viewBox="0 0 {LABEL_WIDTH + PLOT_WIDTH + _MARGIN} {height + 10}" role="img" '
        f'aria-label="Step periods over time">{label} y="14">longest {text.ns(top)}</text>{label} y="{bottom}">0</text>'
        f'<path class="base" d="M{LABEL_WIDTH} {bottom}h{PLOT_WIDTH}M{LABEL_WIDTH} 6h{PLOT_WIDTH}"/>{bars}</svg>\n'
    )
    return Markup(svg), list(paths)
