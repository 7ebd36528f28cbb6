"""``profkit simulate``: a trace of a simulated GPU, and the truth about it."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from profkit.cli import Command
from profkit.errors import ProfkitError, UsageError


def run(
    output: Path = typer.Option(None, "-o", "--output", help="The trace to write: an nsys-shaped SQLite export."),
    scenario: str = typer.Option("random", help="What to simulate: a name of --list, or random."),
    fault: str = typer.Option("random", help="What to plant: a name of --list, none, or random (none to three)."),
    seed: int = typer.Option(0, help="Of all that is drawn: the same seed gives the same trace."),
    steps: int = typer.Option(0, min=0, help="Steps of the engine; 0: as many as the scenario has."),
    truth: Path = typer.Option(None, help="Also write the truth: the cause of all idle time, the price of each fault."),
    kineto: Path = typer.Option(None, help="Also write the trace as JSON of the PyTorch profiler."),
    force: bool = typer.Option(False, "--force", help="Overwrite files that exist."),
    list_all: bool = typer.Option(False, "--list", help="List scenarios and faults, and exit."),
) -> None:
    """Simulate a program on a GPU, and know the truth.

    A causal model of CUDA writes a trace whose idle time is explained and whose faults are priced: each by running
    again with what the fault does taking no time (cost), and with its fix applied (saving). All that profkit makes of
    such a trace says SIMULATED.
    """
    from profkit.cli._open import working
    from profkit.simulate.output import listing, targets, write_run
    from profkit.simulate.run import make_plan

    if list_all:
        print(listing())
        return
    if output is None:
        raise UsageError("-o FILE is missing: where to write the trace")
    with working(f"sizing faults of seed {seed}"):
        plan = make_plan(seed, scenario, fault, steps)
    paths = targets(plan, output, truth, kineto)
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("the files to write must differ")
    for path in paths:
        if path.exists() and not force:
            raise ProfkitError(f"{path} exists: give another name, or --force to overwrite it")
    with working(f"simulating {plan.scenario.name}"):
        remarks = write_run(plan, output, truth, kineto)
    print("\n".join(remarks), file=sys.stderr)


COMMAND = Command(
    name="simulate",
    run=run,
    example="profkit simulate --scenario eager_decode --fault step_sync --seed 1 -o s.sqlite --truth s.json",
)
