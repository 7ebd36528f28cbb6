"""The one place where numbers become words: times, bytes, rates, shares, short kernel names."""

from __future__ import annotations

import re
from functools import lru_cache

CALL_SUFFIX = r"(_ptsz|_ptds)?(_v\d+)?(_ptsz|_ptds)?$"
"""Suffix that the CUDA runtime's exports put behind a call: cudaMemcpyAsync_v3020, ..._ptsz_v7000."""

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_BRACKET = re.compile(r"[<>()\[\]{}]")
_LONGEST_FAMILY = 2_000
"""Characters of a name that its family is told by: the rest of a longer one are template arguments."""
_IDENTIFIER = re.compile(r"[A-Za-z_~]")
_HEAD = re.compile(r"^(?:(?:void|static|inline|__global__)\s+)+")


def ns(value: int | None) -> str:
    """A length of time in the unit that keeps it readable: 917 ns, 12.3 µs, 4.82 ms, 1.30 s."""
    if value is None or value < 0:
        return "n/a"
    if value < 1_000:
        return f"{value} ns"
    for limit, size, unit in ((1_000_000, 1_000, "µs"), (1_000_000_000, 1_000_000, "ms")):
        if value < limit:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1_000_000_000)} s"


def moment(value: int) -> str:
    """A point in time with every digit, in seconds as profilers' timelines show it: 5.620114000 s."""
    sign = "-" if value < 0 else ""
    return f"{sign}{abs(value) // 1_000_000_000}.{abs(value) % 1_000_000_000:09d} s"


def size(value: int | None) -> str:
    """Bytes in decimal units: 64 B, 1.57 MB."""
    if value is None or value < 0:
        return "n/a"
    if value < 1_000:
        return f"{value} B"
    for limit, unit_size, unit in ((10**6, 10**3, "kB"), (10**9, 10**6, "MB"), (10**12, 10**9, "GB")):
        if value < limit:
            return f"{_three(value / unit_size)} {unit}"
    return f"{_three(value / 10**12)} TB"


def rate(num_bytes: int | None, dur_ns: int) -> str:
    """Bytes over a time, decimal units: 11.3 GB/s, 3.33 MB/s; n/a where the time is 0."""
    if dur_ns <= 0 or num_bytes is None or num_bytes < 0:
        return "n/a"
    return f"{size(round(num_bytes * 1_000_000_000 / dur_ns))}/s"


def percent(share: float | None) -> str:
    """A share of 0..1 as percent with one decimal: 29.4 %."""
    return "n/a" if share is None else f"{share * 100:.1f} %"


def ratio(value: int, by: int) -> str:
    """A ratio with two decimals, rounded half up: 3.25."""
    hundredths = (200 * value + by) // (2 * by)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}"


def count(value: int, noun: str, plural: str = "") -> str:
    """A number with its noun: 1 kernel, 12,345 kernels."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def clip(text: str, width: int = 120) -> str:
    """One line of at most ``width`` characters, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def printable(text: str) -> str:
    """Text without what a page or a terminal would obey or cannot encode; each such character becomes U+FFFD.

    These are control characters (but tab and newline), bidirectional overrides, lone surrogates and noncharacters.
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def _three(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


@lru_cache(maxsize=65_536)
def short_kernel(name: str) -> str:
    """A demangled kernel name without its template arguments, parameters and namespaces.

    ``void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)`` becomes ``vectorized_elementwise_kernel``.
    A name without C++ syntax stays as it is.
    """
    text = _HEAD.sub("", _ANONYMOUS.sub("anon", name).strip())
    if not _IDENTIFIER.match(text) or not any(mark in name for mark in ("(", "<", "::")):
        return name
    depth, begin = 0, 0
    out: list[str] = []
    for bracket in _BRACKET.finditer(text):
        if depth == 0:
            out.append(text[begin : bracket.start()])
            if bracket[0] == "(" and any(out):
                begin = len(text)
                break
        depth = depth + 1 if bracket[0] in "<([{" else max(depth - 1, 0)
        begin = bracket.end()
    if depth == 0:
        out.append(text[begin:])
    head = "".join(out).strip()
    # A templated return type stands before the name: take what follows the last blank.
    head = head.rsplit(" ", 1)[-1]
    return head.rsplit("::", 1)[-1] or name


_FAMILIES = (
    ("collective", r"nccl|all_?reduce|all_?gather|reduce_?scatter|cross_device|rccl"),
    ("attention", r"flash|fmha|attention|attn|paged|mha|mla|splitkv"),
    ("moe", r"moe|expert|topk_?gating|grouped_gemm"),
    ("gemm", r"gemm|gemv|nvjet|cutlass|cublas|matmul|\bmm\b|wgmma|xmma|s\d+gemm|splitk|dot_kernel|Cijk"),
    ("norm", r"norm"),
    ("rope", r"rotary|rope"),
    ("quant", r"quant|fp8|int8|scaled"),
    ("sampling", r"softmax|argmax|sample|top_?k|top_?p|multinomial|cumsum|radixSort|sort"),
    ("kv_cache", r"reshape_and_cache|kv_?cache|cache_kernel"),
    ("copy", r"copy|memcpy|memset|gather|scatter|index|cat(?:Array|_)|transpose|permute"),
    ("elementwise", r"elementwise|act_and_mul|silu|gelu|add|mul|fill|triton_poi|unrolled"),
)
_FAMILY_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _FAMILIES)


@lru_cache(maxsize=65_536)
def kernel_family(name: str) -> str:
    """The family of a kernel by its name: gemm, attention, norm, ...; ``other`` where no pattern fits."""
    return next((family for family, pattern in _FAMILY_PATTERNS if pattern.search(name, 0, _LONGEST_FAMILY)), "other")
