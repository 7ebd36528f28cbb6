"""The three drawings of the timeline: the whole window, one typical step, and a close look inside of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from markupsafe import Markup

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import Intervals, clip
from profkit.model import Window
from profkit.report import ReportInput
from profkit.reports import words
from profkit.reports.drawing import PLOT_WIDTH, Figure
from profkit.reports.lead import Hot
from profkit.schema import STAGES, STEP_KINDS
from profkit.timeline.lanes import call_lanes, idle_lanes, merged, range_lanes, request_lanes, stream_lanes
from profkit.timeline.pack import Lane, slices

MOST_STREAM_LANES = 16
MOST_DEVICES = 8
MOST_HOST_LANES = 8
_FLAME_ROWS = 6
_OUTLINE_ROWS = 3
_REQUEST_ROWS = 6
_STREAM_ROWS = 3


@dataclass(frozen=True)
class View:
    """A window to look at and what to call it."""

    window: Window
    caption: str


@dataclass(frozen=True)
class Drawn:
    """A drawing, what its colours are, and what is not in it."""

    svg: Markup
    categories: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """Lanes that fit on a page, and in words which do not."""

    lanes: list[Lane]
    left_out: str = ""


def draw_overview(report: ReportInput, window: Window) -> Drawn:
    """The whole window: bars whose height is the share of busy time, stages and requests as a flame."""
    analysis = report.analysis
    figure = Figure(window, round(500 * report.detail))
    figure.axis(lambda time: _clock(time, window))
    host_lanes = [*request_lanes(analysis.trace), *range_lanes(analysis.trace), *call_lanes(analysis)]
    hosts = choose_hosts(_seen(host_lanes, window))
    notes = [hosts.left_out]
    for group, lanes in _by_group(hosts.lanes):
        figure.heading(group)
        for lane in lanes:
            if lane.kind == "calls":
                figure.bars(lane, 18)
            else:
                # Ranges without a meaning known here: their outlines are enough for an overview.
                depth = _FLAME_ROWS if (lane.category < len(STAGES)).any() else _OUTLINE_ROWS
                notes += _flame(figure, report, lane, most=120, narrowest=4, depth=depth)
    streams = choose_streams(stream_lanes(analysis))
    notes.append(streams.left_out)
    hot = hot_within(report, window)
    for group, lanes in _by_group(streams.lanes):
        figure.heading(group)
        for lane in lanes:
            figure.bars(lane)
        if hot and hot.device in (-1, lanes[0].device):
            figure.share_bars(hot.intervals, hot.what, "hotfill")
    return Drawn(figure.svg("Timeline of the whole window"), tuple(figure.categories), _kept(notes))


def draw_zoom(report: ReportInput, view: View, *, operators: bool = False) -> Drawn:
    """A short window: slices one by one, named where there is room; idle gaps by cause, the lead finding's in red."""
    analysis, window = report.analysis, view.window
    figure = Figure(window, round(PLOT_WIDTH * min(report.detail, 1.0)))
    figure.axis(lambda time: f"+{text.ns(time - window.start_ns)}" if time > window.start_ns else "0", window.start_ns)
    host_lanes = [
        *request_lanes(analysis.trace),
        *range_lanes(analysis.trace, operators=operators),
        *call_lanes(analysis),
    ]
    hosts = choose_hosts(_seen(host_lanes, window))
    streams = choose_streams(_seen(stream_lanes(analysis), window))
    notes = [hosts.left_out, streams.left_out]
    most = max(round(900 * report.detail) // max(len(hosts.lanes) + len(streams.lanes), 1), 40)
    for group, lanes in _by_group(hosts.lanes):
        figure.heading(group)
        for lane in lanes:
            notes += _flame(figure, report, lane, most=most, narrowest=0.7)
    hot = hot_within(report, window)
    idle = {lane.device: lane for lane in _seen(idle_lanes(analysis), window)}
    for group, lanes in _by_group(streams.lanes):
        figure.heading(group)
        top = figure.y
        for lane in lanes:
            notes += _flame(figure, report, lane, most=most, narrowest=0.4)
        device = lanes[0].device
        if device in idle:
            notes += _flame(figure, report, idle[device], most=most, narrowest=0.7)
        if hot and hot.device in (-1, device):
            figure.highlight(hot.intervals, top, figure.y - 3)
    return Drawn(figure.svg(view.caption), tuple(figure.categories), _kept(notes))


def hot_within(report: ReportInput, window: Window) -> Hot | None:
    """Where the lead finding shows, if it does inside of a window."""
    hot = report.hot
    return hot if hot and len(clip(hot.intervals, window.start_ns, window.end_ns)) else None


def typical_step(analysis: Analysis) -> View | None:
    """The counted step of median period of the main kind (without periods, of median host time), inside the window."""
    steps = analysis.steps
    if not len(steps):
        return None
    kind = steps.main_kind()
    length = steps.period if kind is not None else steps.host_end - steps.host_start
    start = np.where(steps.period >= 0, steps.gpu_end - steps.period, steps.host_start)
    end = np.where(steps.period >= 0, steps.gpu_end, steps.host_end)
    keep = steps.counted & (length > 0)
    if kind is None:
        kind = int(np.argmax(np.bincount(steps.kind[keep]))) if keep.any() else 0
    keep &= steps.kind == kind
    if analysis.selected is not None:
        keep &= (start >= analysis.selected.start_ns) & (end <= analysis.selected.end_ns)
    rows = np.flatnonzero(keep)
    if not len(rows):
        return None
    step = int(rows[np.argsort(length[rows], kind="stable")][(len(rows) - 1) // 2])
    begins = min(int(start[step]), max(int(steps.host_start[step]), int(start[step] - length[step] // 2)))
    window = _padded(Window(begins, int(end[step])), 50)
    what = f"{STEP_KINDS[kind]} step" if kind < len(STEP_KINDS) - 1 else "step"
    measure = "period" if steps.period[step] >= 0 else "host time"
    which = f"the median of {len(rows):,} by {measure}" if len(rows) > 1 else f"the only one that counts, by {measure}"
    return View(window, f"A typical step: {what} {int(steps.index[step])}, {which} ({text.ns(int(length[step]))})")


def around_gap(report: ReportInput, inside: Window | None) -> View | None:
    """The longest gap of the lead finding (else the longest idle gap), with as much around it; inside a window if any.

    A gap that fills most of a step shows nothing new: then there is no view.
    """
    analysis = report.analysis
    gaps = report.hot.intervals if report.hot else None
    if gaps is None and len(analysis.idle):
        gaps = Intervals(analysis.idle.start, analysis.idle.end)
    if gaps is None:
        return None
    start, end = gaps.start, gaps.end
    within = inside or analysis.window
    if within is not None:
        keep = (start >= within.start_ns) & (end <= within.end_ns)
        start, end = start[keep], end[keep]
    if not len(start):
        return None
    at = int(np.argmax(end - start))
    gap = Window(int(start[at]), int(end[at]))
    name = report.hot.what.replace("idle gaps", "idle gap") if report.hot else "idle gap"
    where = "of this step" if inside else "of the window"
    return View(_padded(gap, 100), f"Around the longest {name} {where} ({text.ns(gap.dur_ns)})")


def close_look(report: ReportInput, inside: Window) -> View | None:
    """A twentieth of a step around its longest gap, so that kernels are wide enough for names."""
    view = around_gap(report, inside)
    if view is None or view.window.dur_ns > inside.dur_ns // 2:
        return None
    wanted = max(inside.dur_ns // 20, view.window.dur_ns)
    middle = (view.window.start_ns + view.window.end_ns) // 2
    return View(Window(middle - wanted // 2, middle - wanted // 2 + wanted), view.caption)


def choose_streams(lanes: Sequence[Lane]) -> Chosen:
    """Streams by device: each device keeps its busiest, the others become one lane, so that no work is hidden.

    Devices beyond MOST_DEVICES are left out, and said.
    """
    devices = list(dict.fromkeys(lane.device for lane in lanes))
    shown = devices[:MOST_DEVICES]
    each = max(MOST_STREAM_LANES // max(len(shown), 1), 1)
    out: list[Lane] = []
    for device in shown:
        mine = [lane for lane in lanes if lane.device == device]
        if len(mine) > each:
            rest = mine[each - 1 :]
            label = f"{text.count(len(rest), 'other stream')} in one" if each > 1 else f"all {len(rest)} streams in one"
            mine = [*mine[: each - 1], merged(rest, label)]
        out += mine
    gone = len(devices) - len(shown)
    streams = sum(lane.device not in shown for lane in lanes)
    left_out = f"{text.count(gone, 'further GPU')} with {text.count(streams, 'stream')} not drawn" if gone else ""
    return Chosen(out, left_out)


def choose_hosts(lanes: Sequence[Lane]) -> Chosen:
    """Host lanes of the processes with most time in them: MOST_HOST_LANES, of each process two of a kind at most."""
    weight: dict[str, int] = defaultdict(int)
    for lane in lanes:
        weight[lane.group] += int((lane.end - lane.start)[lane.row == 0].sum())
    taken: Counter[tuple[str, str]] = Counter()
    out: list[Lane] = []
    for lane in sorted(lanes, key=lambda lane: -weight[lane.group]):
        if len(out) < MOST_HOST_LANES and taken[lane.group, lane.kind] < 2:
            taken[lane.group, lane.kind] += 1
            out.append(lane)
    gone = len(lanes) - len(out)
    return Chosen(out, f"{text.count(gone, 'further host lane')} not drawn" if gone else "")


def _flame(
    figure: Figure, report: ReportInput, lane: Lane, *, most: int, narrowest: float, depth: int = _FLAME_ROWS
) -> list[str]:
    """Draw a lane slice by slice, ranges down to ``depth``; returns what of it could not be drawn."""
    rows = {"stream": _STREAM_ROWS, "requests": _REQUEST_ROWS, "ranges": depth}.get(lane.kind, 1)
    most = max(round(most * report.detail), 20)
    packed = slices(lane, figure.window, figure.columns, narrowest=narrowest, most=most, rows=rows)
    analysis = report.analysis
    figure.slices(lane, packed, lambda shown, i: _describe(analysis, shown, i))
    notes = []
    if packed.crowded:
        notes.append(f"{lane.label}: {packed.crowded:,} of them overlap more than {rows} deep and are drawn as shades")
    deeper = int((lane.within(figure.window).row >= rows).sum()) if lane.kind == "ranges" else 0
    if deeper:
        notes.append(f"{lane.label}: {text.count(deeper, 'range')} nested deeper than {rows} are drawn as shades")
    return notes


def _describe(analysis: Analysis, lane: Lane, i: int) -> tuple[str, str]:
    """(label, hover text) of a slice, with its own start and length also where the window cuts it."""
    length = text.ns(int(lane.end[i] - lane.start[i]))
    at = text.moment(int(lane.start[i]))
    kind = words.category(lane.categories[int(lane.category[i])])
    if lane.kind == "idle":
        parts = sorted(
            ((value, key) for key, value in analysis.idle.where(lane.name[i : i + 1]).by_cause().items()), reverse=True
        )
        causes = ", ".join(f"{words.cause(key)} {text.ns(value)}" for value, key in parts[:4] if value)
        return kind.removeprefix("idle: "), f"GPU idle for {length} at {at}: {causes}"
    row = int(lane.name[i])
    if row < 0:
        return kind, f"{kind}, {length} at {at}"
    full = analysis.trace.name(row)
    short = analysis.trace.name(row, "short") or full
    short = text.short_kernel(short) if lane.kind == "stream" else short.removeprefix("profkit::")
    if len(lane.still_open) and lane.still_open[i]:
        return f"{text.clip(short, 113)} (open)", f"{text.clip(full, 140)}\n{kind}, never closed: {length} at {at}"
    return text.clip(short, 120), f"{text.clip(full, 170)}\n{kind}, {length} at {at}"


def _seen(lanes: Sequence[Lane], window: Window) -> list[Lane]:
    """Lanes that show anything in a window, cut to it."""
    cut = (lane.within(window) for lane in lanes)
    return [lane for lane in cut if len(lane)]


def _by_group(lanes: Sequence[Lane]) -> list[tuple[str, list[Lane]]]:
    ordered = sorted(lanes, key=lambda lane: (lane.device, lane.group))
    return [(group, list(mine)) for group, mine in groupby(ordered, key=lambda lane: lane.group)]


def _padded(window: Window, per_mille: int) -> Window:
    pad = max(window.dur_ns * per_mille // 1000, 1)
    start = window.start_ns - pad
    return Window(max(start, 0) if window.start_ns >= 0 else start, window.end_ns + pad)


def _clock(time: int, window: Window) -> str:
    """A round time with the digits that the window needs."""
    digits = max(11 - len(str(window.dur_ns)), 0)
    return f"{time / 1_000_000_000:.{digits}f} s"


def _kept(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for note in notes if note))
