"""docs/whatif.md names every fix, every constraint and every number of the model.

The table of fixes is made from the docstrings of their modules: PROFKIT_WRITE_DOCS=1 pytest tests/whatif writes it.
"""

import inspect
import os
import re
from pathlib import Path

import pytest

from profkit.analysis.fixes import _find, all_fixes
from profkit.analysis.replay import device, edits, launch_queue, price, trust, waits
from profkit.analysis.replay.model import EDGE_KINDS
from profkit.rules import all_rules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "whatif.md"
TESTS = ROOT / "tests" / "analysis"
_BLOCK = re.compile(r"(<!-- fixes:[^>]*-->\n).*?(<!-- /fixes -->)", re.DOTALL)


def table() -> str:
    """A line for each fix, by name: what stands behind ``--fix``, its rule, and the first paragraph of its module."""
    lines = ["| fix | rule | what |", "|---|---|---|"]
    for fix in all_fixes().values():
        module = inspect.getmodule(fix.find)
        assert module is not None
        words = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
        name = f"{fix.name}:{fix.argument}" if fix.argument else fix.name
        lines.append(f"| `{name}` | {fix.code} | {words} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_fixes_is_that_of_their_modules() -> None:
    page = PAGE.read_text("utf-8")
    wanted = _BLOCK.sub(lambda found: found[1] + table() + found[2], page)
    if os.environ.get("PROFKIT_WRITE_DOCS"):
        PAGE.write_text(wanted, "utf-8")
    assert len(_BLOCK.findall(page)) == 1
    assert PAGE.read_text("utf-8") == wanted


def test_every_constraint_is_explained() -> None:
    rows = re.findall(r"^\| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(EDGE_KINDS) <= set(rows)


def _us(ns: int) -> str:
    return f"{ns // 1_000} µs"


@pytest.mark.parametrize(
    "words",
    [
        f"within {_us(device.NEAR_NS)} behind it",
        f"{_us(device.USUAL_LAUNCH_NS)} from a call to its work",
        f"{_us(device.USUAL_GAP_NS)} between two operations of a stream",
        f"{_us(waits.WAKE_NS)} from the end of work to the return of a wait",
        f"{_us(waits.SUBMIT_NS)} for a call that waits for nothing",
        f"give or take {_us(waits.SKEW_NS)} between two clocks",
        f"one of more than {waits.STAGED_BYTES // 1024} KiB is staged",
        f"{launch_queue.LENGTH:,} submissions before",
        f"lag over {_us(trust.PLAUSIBLE_NS)} and over ten usual ones",
        f"over {100 * trust.LARGEST_ERROR:g} % of the recorded window",
        f"dispatch of up to {_us(edits.DISPATCH_NS)}",
        f"More than {price.MOST_OPS:,} device operations",
        f"With {5 * price.SETTLING} such steps or more the first {price.SETTLING} are left out",
    ],
)
def test_the_numbers_of_the_page_are_those_of_the_model(words: str) -> None:
    assert words in " ".join(PAGE.read_text("utf-8").split())


def test_every_fix_has_a_price_that_was_computed_by_hand() -> None:
    tests = "".join(path.read_text("utf-8") for path in sorted(TESTS.glob("test_fixes_*.py")))
    missing = [name for name in all_fixes() if f'"{name}"' not in tests and f'"{name}:' not in tests]
    assert missing == []


def test_codes_are_those_of_rules() -> None:
    """A fix names the rule that reports its fault."""
    for fix in all_fixes().values():
        assert re.fullmatch(r"PK\d{3}", fix.code), fix.name
        assert fix.title
        assert fix.title[0].isupper()
    assert {fix.code for fix in all_fixes().values()} <= set(all_rules())
    assert _find.LARGE_BYTES <= waits.STAGED_BYTES
