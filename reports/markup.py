"""Small pieces of HTML. Everything that is not Markup already is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from profkit import text
from profkit.reports import words

TITLE_WIDTH = 300
"""Longest hover text, in characters."""


def join(parts: Iterable[Markup | str]) -> Markup:
    """Pieces one after the other; text among them is escaped."""
    return Markup("").join(parts)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], *, left: int = 1, foot: object = "") -> Markup:
    """A table: the first ``left`` columns to the left, numbers to the right; ``foot`` is a remark below it."""
    head_cells = join(_cell("th", value, i < left) for i, value in enumerate(head))
    body = join(
        Markup("<tr>{}</tr>\n").format(join(_cell("td", value, i < left) for i, value in enumerate(row)))
        for row in rows
    )
    note = remark(foot) if foot else ""
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead>\n<tbody>{}</tbody></table></div>\n{}').format(
        head_cells, body, note
    )


def _cell(tag: str, value: object, is_left: bool) -> Markup:
    return Markup(f"<{tag}>{{}}</{tag}>" if is_left else f'<{tag} class="n">{{}}</{tag}>').format(value)


def remark(content: object) -> Markup:
    """A line in small print."""
    return Markup('<p class="remark">{}</p>\n').format(content)


def name(full: str, width: int = 72, shown: str = "") -> Markup:
    """A name in one line: short, or clipped, with as much of the full one as a hover text may hold."""
    line = text.clip(shown or full, width)
    if line == full:
        return Markup("<code>{}</code>").format(line)
    return Markup('<code title="{}">{}</code>').format(text.clip(full, TITLE_WIDTH), line)


def pairs(items: Iterable[tuple[object, object]]) -> Markup:
    """A list of labels and values."""
    return Markup("<dl>{}</dl>\n").format(
        join(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(key, value) for key, value in items)
    )


def bullets(items: Iterable[object]) -> Markup:
    """A list of lines."""
    return Markup("<ul>{}</ul>\n").format(join(Markup("<li>{}</li>").format(item) for item in items))


def details(summary: object, content: Markup) -> Markup:
    """Something that opens on a click; printed open."""
    return Markup("<details><summary>{}</summary>{}</details>\n").format(summary, content)


def stacked_bar(parts: Sequence[tuple[str, str, int]], total: int) -> Markup:
    """A horizontal bar of (colour class, label, value); a part is labelled where its share of ``total`` leaves room."""
    cells = []
    for colour, label, value in parts:
        share = value / total if total else 0.0
        inside = f"{label} {text.percent(share)}" if share >= 0.12 else text.percent(share) if share >= 0.05 else ""
        cells.append(
            Markup('<span class="c-{}" style="width:{:.2f}%" title="{}">{}</span>').format(
                colour, share * 100, f"{label}: {text.percent(share)}", inside
            )
        )
    return Markup('<div class="bar">{}</div>\n').format(join(cells))


def legend(categories: Iterable[str]) -> Markup:
    """What the colours mean, each once."""
    items = (
        Markup('<li><span class="swatch c-{}"></span>{}</li>').format(category, words.category(category))
        for category in dict.fromkeys(categories)
    )
    return Markup('<ul class="legend">{}</ul>\n').format(join(items))


def percentiles(values: Mapping[str, object], prefix: str) -> list[str]:
    """p50, p90 and p99 of a mapping's ``<prefix>_p50_ns`` ... in words."""
    out = []
    for percent in (50, 90, 99):
        value = values[f"{prefix}_p{percent}_ns"]
        out.append(text.ns(value if isinstance(value, int) else None))
    return out
