"""docs/rules.md lists every rule, and each page says what it must.

The table is made from the docstrings of the modules: PROFKIT_WRITE_DOCS=1 pytest tests/rules writes it.
"""

import inspect
import os
import re
from pathlib import Path

import pytest

from profkit.rules import HEADINGS, Rule, all_rules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rules.md"
RULES = all_rules()
_BLOCK = re.compile(r"(<!-- rules:[^>]*-->\n).*?(<!-- /rules -->)", re.DOTALL)


def page_of(rule: Rule) -> str:
    return inspect.getdoc(inspect.getmodule(rule.check)) or ""


def part(rule: Rule, heading: str) -> str:
    """One part of a rule's page, as one line."""
    after = page_of(rule).split(f"\n{heading}\n", 1)[1]
    lines = []
    for line in after.splitlines():
        if line.strip() in HEADINGS:
            break
        lines.append(line.strip())
    return " ".join(" ".join(lines).split())


def table() -> str:
    """A line for each rule: code, title, what it finds, and when it is wrong."""
    lines = ["| rule | title | what it finds | when it is wrong |", "|---|---|---|---|"]
    for rule in RULES.values():
        cells = [part(rule, "What it finds"), part(rule, "When it is wrong")]
        found, wrong = (cell.replace("``", "`").replace("|", "\\|") for cell in cells)
        lines.append(f"| {rule.code} | {rule.title} | {found} | {wrong} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_rules_is_that_of_their_modules() -> None:
    page = PAGE.read_text("utf-8")
    wanted = _BLOCK.sub(lambda found: found[1] + table() + found[2], page)
    if os.environ.get("PROFKIT_WRITE_DOCS"):
        PAGE.write_text(wanted, "utf-8")
    assert len(_BLOCK.findall(page)) == 1
    assert PAGE.read_text("utf-8") == wanted


@pytest.mark.parametrize("code", RULES)
def test_a_page_has_every_part(code: str) -> None:
    rule = RULES[code]
    page = page_of(rule)
    assert page.splitlines()[0].lower() == f"{code} {rule.title}.".lower()
    assert re.findall(rf"^({'|'.join(HEADINGS)})$", page, re.MULTILINE) == list(HEADINGS)
    assert all(len(part(rule, heading)) > 40 or heading == "How the cost is computed" for heading in HEADINGS)
    assert re.fullmatch(r"PK[1-7]\d\d", code)
    assert not rule.advice.startswith(" ")
    assert rule.advice.endswith(".")


def test_no_two_rules_say_the_same() -> None:
    for heading in ("What it finds", "What to do"):
        texts = [part(rule, heading) for rule in RULES.values()]
        assert len(set(texts)) == len(texts)
    assert len({rule.title for rule in RULES.values()}) == len(RULES)
