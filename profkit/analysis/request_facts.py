"""What has to be said with TTFT and TPOT: requests that gave nothing, were cut off, or were the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit import text
from profkit.analysis.intervals import percentile
from profkit.analysis.requests import Requests
from profkit.model import Ints, Mask

WARM_UP_TIMES = 3
"""Times the median TTFT of those behind it: where the first request took so long, it paid for a warm-up."""
FEWEST = 3
"""Requests behind the first ones that this median is of, at least."""


def cancelled(requests: Requests) -> Mask:
    """Requests that were seen to their end and gave no token."""
    mask: Mask = (requests.end >= 0) & ((requests.first_token < 0) | (requests.output_tokens == 0))
    return mask


def request_facts(requests: Requests) -> dict[str, Any] | None:
    """How many requests gave tokens, how many did not and why, and which were a warm-up; None without any.

    ``cut`` were not seen whole. ``warm_up`` are leading requests whose TTFT is WARM_UP_TIMES the median of those behind
    them: they are in all numbers, of which the median is the one to compare.
    """
    if not len(requests):
        return None
    none, cut = cancelled(requests), requests.end < 0
    timed = np.flatnonzero(requests.complete & ~none & (requests.ttft >= 0))
    ttft = requests.ttft[timed]
    cold = _warm_up(ttft)
    return {
        "of": len(requests),
        "cancelled": int(none.sum()),
        "cut": int(cut.sum()),
        "one_token": int((requests.complete & (requests.output_tokens == 1)).sum()),
        "ttft_max_ns": int(ttft.max()) if len(ttft) else None,
        "ttft_n": len(ttft),
        "ttft_p50_ns": percentile(ttft, 50),
        "warm_up": [{"request": int(requests.request[timed[i]]), "ttft_ns": int(ttft[i])} for i in range(cold)],
    }


def _warm_up(ttft: Ints) -> int:
    """How many of the first requests took so much longer than those behind them."""
    cold = 0
    while len(ttft) - cold > FEWEST and ttft[cold] >= WARM_UP_TIMES * (percentile(ttft[cold + 1 :], 50) or 1):
        cold += 1
    return cold


def request_lines(facts: dict[str, Any] | None) -> list[str]:
    """The same for a person, a sentence each; nothing where all is as usual."""
    if facts is None:
        return []
    lines = []
    of = text.count(facts["of"], "request")
    if facts["cancelled"]:
        lines.append(f"{facts['cancelled']:,} of {of} ended without a token: cancelled, in no time")
    if facts["cut"]:
        lines.append(f"{facts['cut']:,} of {of} cut off: not seen to their end")
    if facts["one_token"]:
        lines.append(f"{facts['one_token']:,} of {of} of one token: no TPOT")
    if facts["warm_up"]:
        longest = max(item["ttft_ns"] for item in facts["warm_up"])
        first = len(facts["warm_up"])
        who = "the first request took" if first == 1 else f"the first {first} requests took up to"
        lines.append(
            f"warm-up: {who} {text.ns(longest)} to the first token, "
            f"{longest / max(facts['ttft_p50_ns'], 1):.1f} times the median: compare medians"
        )
    return lines
