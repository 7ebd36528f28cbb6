"""The whole page: one file that loads nothing, escapes everything, stays small, and says what it does not know."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.api import check_analysis
from profkit.builder import Builder
from profkit.model import RunMeta, Trace
from profkit.report import MAX_BYTES, all_sections, render_report
from profkit.reports.markup import TITLE_WIDTH
from profkit.rules import all_rules
from profkit.samples import launch_bound_decode
from profkit.schema import TRACK_KINDS
from profkit.testing import build_trace, graph, kernel, launch, span

SCRIPT = "</script><script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
NASTY = "a&b\"c'\x00\x1b[31m\x85\u202e\ufffe`${{x}}` \u6838\u51fd\u6570"
HTML_TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer", "h1", "h2", "h3",
    "p", "a", "span", "b", "small", "strong", "code", "div", "dl", "dt", "dd", "ul", "li", "table", "thead", "tbody",
    "tr", "th", "td", "article", "details", "summary", "figure", "figcaption", "svg", "g", "path", "rect", "text",
}  # fmt: skip


class Page(HTMLParser):
    """Tags, attributes, and the words that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.words = ""
        self._inside: list[str] = []
        self.feed(page)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "path", "rect"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "style" not in self._inside:
            self.words += " " + data


def page_of(trace: Trace) -> str:
    analysis = Analysis(trace)
    return render_report(analysis, check_analysis(analysis))


def crowd(devices: int, streams: int, kernels: int, names: int, width: int) -> Trace:
    """Many kernels on many lanes, with many long names, in random order."""
    rng = np.random.default_rng(0)
    builder = Builder()
    host = builder.dimension("hosts", "host", clock="session")
    process = builder.dimension("processes", 1, host=host, pid=1, rank=-1)
    tracks = []
    for device in range(devices):
        row = builder.dimension("devices", device, host=host)
        tracks += [
            builder.dimension(
                "tracks", (device, stream), kind=TRACK_KINDS.index("stream"), host=host, process=process, device=row,
                ordinal=device, context=1, stream=stream, label=f"stream {stream}",
            )
            for stream in range(streams)
        ]  # fmt: skip
    rows = np.asarray([builder.names.kernel(f"kernel_{i}_" + "x" * width) for i in range(names)])
    builder.add(
        "kernels",
        start_ns=rng.integers(0, 1_000_000_000, kernels),
        dur_ns=rng.integers(0, 2_000_000, kernels),
        track=np.asarray(tracks)[rng.integers(0, len(tracks), kernels)],
        name=rows[rng.integers(0, names, kernels)],
        process=process,
    )
    return builder.finish(RunMeta(source="built"))


def assert_self_contained(page: str) -> None:
    """No script, no handler, and no reference to anything outside of the page."""
    parsed = Page(page)
    assert parsed.tags <= HTML_TAGS
    for _, name, value in parsed.attributes:
        assert not name.startswith("on")
        assert name != "src"
        if name in ("href", "xlink:href"):
            assert value.startswith("#")
        if name in ("style", "fill", "d"):
            assert "url" not in value
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "http" not in style[1]
    assert "default-src 'none'; style-src 'unsafe-inline'" in page


def hostile(name: str) -> Trace:
    """A trace in which everything that has a name has this one."""
    return build_trace(
        span("decode", 0, 9_000_000),
        span(name, 1_000, 8_000_000, domain=name, category=name),
        span(name, 1_000, 900_000, kind="op"),
        launch(name, at=2_000, start=10_000, dur=500_000, api=name),
        launch(name + "2", at=1_000_000, start=2_000_000, dur=4_000_000),
        warnings=(name, name + "\ud800"),
        missing={"os_calls": name},
    )


@pytest.mark.parametrize("name", [SCRIPT, IMAGE, NASTY, "x" * 40_000, "<" * 20_000, "", " \n\t "])
def test_a_name_is_text_wherever_it_stands(name: str) -> None:
    page = page_of(hostile(name))
    assert_self_contained(page)
    assert len(page.encode("utf-8")) <= MAX_BYTES
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800\ufffe]", page)


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    words = Page(page_of(hostile(SCRIPT))).words
    assert SCRIPT in words
    assert IMAGE in Page(page_of(hostile(IMAGE))).words


def test_long_names_are_clipped_told_apart_and_whole_once() -> None:
    first, second = "gemm<" + "T, " * 13_000 + "0>(A)", "gemm<" + "T, " * 13_000 + "0>(B)"
    rows = [launch((first, second)[i % 2], at=i * 20_000, start=i * 20_000 + 9_000, dur=5_000) for i in range(1_000)]
    page = page_of(build_trace(*rows))
    assert len(page.encode("utf-8")) <= MAX_BYTES
    assert page.count("T, " * 12_000) == 2
    words = Page(page).words
    assert "…A)" in words
    assert "…B)" in words
    titles = [value for _, name, value in Page(page).attributes if name == "title"]
    titles += re.findall(r"<title>([^<]*)</title>", page)
    assert max(map(len, titles)) <= TITLE_WIDTH + 100  # escapes are longer than what they stand for


@pytest.mark.parametrize(
    "shape", [(8, 40, 60_000, 50, 200), (64, 2, 30_000, 2_000, 20), (1, 1, 60_000, 3, 40_000)], ids=str
)
def test_the_page_is_small_whatever_the_trace(shape: tuple[int, int, int, int, int]) -> None:
    page = page_of(crowd(*shape))
    assert len(page.encode("utf-8")) <= MAX_BYTES
    assert_self_contained(page)


def test_lanes_that_are_not_drawn_are_counted() -> None:
    words = Page(page_of(crowd(20, 6, 6_000, 5, 5))).words
    assert "12 further GPUs with 72 streams not drawn" in words
    assert "5 other streams in one" in words


@pytest.mark.parametrize("code", sorted(all_rules()))
@pytest.mark.parametrize("kind", ["fires", "quiet"])
def test_every_rule_s_examples_make_a_page(code: str, kind: str) -> None:
    rule: Any = all_rules()[code]
    page = page_of(getattr(rule, kind)())
    assert_self_contained(page)
    assert rule.code in Page(page).words


def test_an_empty_trace_makes_a_page() -> None:
    words = Page(page_of(build_trace())).words
    assert "No GPU kernels in this capture" in words
    assert "Timeline" not in words


def test_the_headline_comes_first_with_its_price_and_its_remedy() -> None:
    trace = launch_bound_decode()
    result = check_analysis(Analysis(trace))
    words = Page(page_of(trace)).words
    lead = result.findings[0]
    order = [words.index(part) for part in (lead.title, "A fix saves", lead.advice, result.headline, "Findings")]
    order.append(words.index("Can this capture be trusted?", order[3]))
    assert order[:4] == sorted(order[:4])


def test_simulated_is_said_before_anything_else() -> None:
    page = page_of(launch_bound_decode())
    body = Page(page[page.index("<body>") :]).words
    assert body.startswith("SIMULATED")
    assert "SIMULATED" not in page_of(build_trace(kernel(0, 10)))


def test_without_gpu_rows_gpu_numbers_are_not_known_and_the_rest_is_there() -> None:
    trace = build_trace(
        span("request#1", 0, 40_000_000),
        span("prefill", 1_000_000, 9_000_000, payload=8),
        span("sample", 10_000_000, 1_000_000, payload=1),
        *(span("decode", 11_000_000 + i * 5_000_000, 4_000_000, payload=1) for i in range(5)),
        span("aten::mm", 12_000_000, 500_000, kind="op"),
        missing={"kernels": "it ran on the CPU"},
    )
    words = Page(page_of(trace)).words
    assert "GPU busy n/a" in words
    assert "it ran on the CPU" in words
    assert "TTFT 11.0 ms" in words
    assert "aten::mm 1 500 µs" in words
    assert "decode 5" in words
    assert "0.0 %" not in words
    assert "not evaluated" in words


def test_kernels_hidden_in_graphs_are_named_as_such() -> None:
    words = Page(page_of(build_trace(*(graph(i * 1_000_000, 900_000) for i in range(5))))).words
    assert "5 CUDA graph launches recorded as one piece each, 4.50 ms busy: the kernels inside are not visible" in words
    assert "With care" in words


def test_rows_without_a_call_are_counted() -> None:
    words = Page(page_of(build_trace(kernel(0, 100), kernel(200, 100), launch("k", at=300, start=320, dur=9)))).words
    assert "no call was recorded for 2 of 3 GPU rows (66.7 %)" in words


def test_a_rule_that_did_not_run_is_never_among_those_that_found_nothing() -> None:
    trace = build_trace(kernel(0, 100))
    result = check_analysis(Analysis(trace))
    words = Page(page_of(trace)).words
    section = words[words.rindex("Other rules") :]
    for item in result.not_run:
        assert f"{item.code} {item.title} {item.reason}" in section
        assert f"{item.code} {item.title} ran, found nothing" not in section
    for code in result.clean:
        assert re.search(rf"{code} [^.]*? ran, found nothing", section)


def test_sections_have_anchors_of_their_own_and_an_order() -> None:
    sections = all_sections()
    assert len({section.anchor for section in sections}) == len(sections)
    assert len({section.order for section in sections}) == len(sections)
    assert sections[0].title == "Headline"
    page = page_of(launch_bound_decode())
    for target in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{target}"' in page
