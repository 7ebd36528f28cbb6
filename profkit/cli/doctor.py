"""``profkit doctor``: what works on this machine."""

from __future__ import annotations

import typer

from profkit.cli import Command


def doctor(as_json: bool = typer.Option(False, "--json", help="Strict JSON instead of a table.")) -> None:
    """Say what works on this machine.

    And what is missing, what that costs, and what to do about it.
    """
    from importlib.metadata import version

    import msgspec

    from profkit.capture.doctor import diagnose

    diagnosis = diagnose()
    if as_json:
        head = {"schema": "profkit.doctor/1", "profkit_version": version("profkit")}
        print(msgspec.json.encode({**head, **diagnosis.facts, "checks": diagnosis.checks}).decode())
        return
    width = max(len(check.name) for check in diagnosis.checks)
    for check in diagnosis.checks:
        advice = f"  ->  {check.advice}" if check.advice else ""
        print(f"{check.state:<7}  {check.name:<{width}}  {check.found}{advice}")


COMMAND = Command(name="doctor", run=doctor, example="profkit doctor --json")
