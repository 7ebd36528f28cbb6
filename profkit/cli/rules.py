"""``profkit rules``: what profkit looks for, and the page of one rule."""

from __future__ import annotations

import typer

from profkit.cli import Command
from profkit.errors import UsageError


def run(
    code: str = typer.Argument("", help="Show the page of this rule."),
    as_json: bool = typer.Option(False, "--json", help="Print strict JSON (schema profkit.rules/1)."),
) -> None:
    """List the rules, or show one rule's page.

    A page says what the rule finds, why that costs time, how the price is computed, and when it is wrong.
    """
    import inspect

    from profkit.rules import FAMILIES, all_rules
    from profkit.show import document, to_json

    rules = all_rules()
    if code and code.upper() not in rules:
        raise UsageError(f"no rule {code}: there are {', '.join(rules)}")
    chosen = [rules[code.upper()]] if code else list(rules.values())
    pages = {rule.code: inspect.getdoc(inspect.getmodule(rule.check)) or "" for rule in chosen}
    if as_json:
        rows = [{"code": r.code, "title": r.title, "advice": r.advice, "page": pages[r.code]} for r in chosen]
        print(to_json(document("rules", {"rules": rows})))
    elif code:
        print(pages[chosen[0].code])
    else:
        for family, about in FAMILIES.items():
            print(f"{family}xx  {about}")
            print("\n".join(f"  {rule.code}  {rule.title}" for rule in chosen if rule.code.startswith(family)))


COMMAND = Command(name="rules", run=run, example="profkit rules PK201")
