"""Whole runs: the truth agrees with what is read of the trace, faults have a price, equal seeds give equal files."""

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.analysis.context import Analysis
from profkit.api import check_analysis
from profkit.errors import UsageError
from profkit.ingest import open_trace
from profkit.simulate.chance import Chance
from profkit.simulate.hardware import constants, draw_hardware
from profkit.simulate.output import write_run
from profkit.simulate.run import FIXED, Plan, build, faults, make_plan, prices, run, scenarios, simulate

STEPS = 10
SCENARIOS = sorted(scenarios())
FAULTS = sorted(faults())
CAUSES = {
    "python", "launch_call", "copy_call", "sync", "allocator", "stage_schedule", "stage_tokenize", "stage_sample",
    "stage_detokenize", "os_wait", "off_cpu", "gil", "module_load", "profiler", "event_wait", "launch_latency",
    "graph_startup", "unknown", "startup", "tail",
}  # fmt: skip


def written(plan: Plan, folder: Path, kineto: bool = False) -> tuple[Path, dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    trace, truth = folder / "s.sqlite", folder / "s.json"
    write_run(plan, trace, truth, folder / "k.json" if kineto else None)
    return trace, json.loads(truth.read_text("utf-8"))


def small(scenario: str, fault: str = "none", seed: int = 5) -> Plan:
    """A plan of a few steps; a fault has the size that it has for a whole run."""
    return make_plan(seed, scenario, fault, STEPS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_truth_has_all_idle_time_that_is_read_of_the_trace(scenario: str, tmp_path: Path) -> None:
    trace, truth = written(small(scenario), tmp_path)
    opened = open_trace(trace)
    summary = check_analysis(Analysis(opened)).summary
    assert opened.meta.simulated
    assert opened.meta.warnings == ()
    assert summary["window_ns"] == truth["window_ns"]
    idle: Counter[int] = Counter()
    last: dict[int, int] = {}
    for piece in truth["idle"]:
        assert piece["cause"] in CAUSES
        assert last.get(piece["device"], 0) <= piece["start_ns"] < piece["end_ns"]
        last[piece["device"]] = piece["end_ns"]
        idle[piece["device"]] += piece["end_ns"] - piece["start_ns"]
    assert [device["idle_ns"] for device in summary["devices"]] == [idle[key] for key in sorted(idle)]
    assert truth["simulated"] is True
    assert (truth["seed"], truth["scenario"], truth["faults"]) == (5, scenario, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_costs_and_no_fix_saves_more_than_the_fault_costs(fault: str) -> None:
    plan = make_plan(7, "random", fault, 14)
    ((kind, scale),) = plan.faults
    world = build(plan, {})
    planted = run(world)
    (price,) = prices(plan, planted, world.decisions)
    cost, saving = price["cost_ns"], price["saving_ns"]
    assert kind.name == fault
    assert scale > 0
    assert cost > 0
    assert saving > 0
    assert cost >= saving - 0.01 * plan.steps * planted.step_ns


# Their fix keeps work that a run without them does not have, or they change the world that they live in.
WITH_WORK = {
    "copy_not_overlapped", "pageable_upload", "pin_per_call", "polling", "small_copies", "sync_copy", "sync_memset",
}  # fmt: skip


@pytest.mark.parametrize("fault", [f.name for f in faults().values() if f.setup is None and f.name not in WITH_WORK])
def test_a_run_with_the_fault_fixed_is_that_of_a_run_without_it(fault: str) -> None:
    plan = make_plan(7, "random", fault, STEPS)
    assert simulate(plan, {fault: FIXED}) == simulate(replace(plan, faults=()))


def test_equal_seeds_give_equal_files_and_others_do_not(tmp_path: Path) -> None:
    contents = []
    for name, seed in (("a", 21), ("b", 21), ("c", 22)):
        trace, truth = written(small("copy_heavy", seed=seed), tmp_path / name)
        with sqlite3.connect(trace) as db:
            contents.append(("\n".join(db.iterdump()), truth))
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_a_random_plan_draws_no_more_than_three_faults_that_fit() -> None:
    plans = [make_plan(seed, "random", "random", STEPS) for seed in range(300, 308)]
    assert len({plan.scenario.name for plan in plans}) > 3
    assert {len(plan.faults) for plan in plans} >= {0, 1}
    for plan in plans:
        assert len(plan.faults) <= 3
        for fault, _ in plan.faults:
            assert fault.needs <= plan.scenario.offers


def test_prices_of_several_faults_stand_beside_each_other(tmp_path: Path) -> None:
    kinds = faults()
    plan = replace(small("eager_decode"), faults=((kinds["implicit_sync"], 1.0), (kinds["pageable_upload"], 1.0)))
    _, truth = written(plan, tmp_path)
    assert [(entry["fault"], entry["code"]) for entry in truth["faults"]] == [
        ("implicit_sync", "PK304"),
        ("pageable_upload", "PK301"),
    ]
    for entry in truth["faults"]:
        assert entry["cost_ns"] >= entry["saving_ns"] > 0
        assert entry["cost_ns_per_step"] >= entry["saving_ns_per_step"] > 0


def test_faults_have_the_codes_of_their_rules() -> None:
    assert len(FAULTS) >= 18
    assert {fault.code for fault in faults().values()} == {
        "PK102", "PK201", "PK203", "PK204", "PK206", "PK208", "PK209", "PK210", "PK211", "PK212", "PK301", "PK302",
        "PK303", "PK304", "PK305", "PK306", "PK307", "PK309", "PK406", "PK602",
    }  # fmt: skip


def test_every_fault_fits_a_scenario_and_every_scenario_has_some() -> None:
    for fault in faults().values():
        assert any(fault.needs <= scenario.offers for scenario in scenarios().values()), fault.name
    for scenario in scenarios().values():
        assert any(fault.needs <= scenario.offers for fault in faults().values()), scenario.name


def test_the_profilers_json_of_a_run_says_the_same_as_its_export(tmp_path: Path) -> None:
    trace, _ = written(small("continuous_batching"), tmp_path, kineto=True)
    opened = [open_trace(path) for path in (trace, tmp_path / "k.json")]
    assert all(one.meta.simulated for one in opened)
    assert opened[1].meta.warnings == ()
    for table in ("kernels", "copies", "calls", "syncs"):
        assert opened[0].tables[table].num_rows == opened[1].tables[table].num_rows > 0, table
    first, second = (check_analysis(Analysis(one)).summary for one in opened)
    assert first["window_ns"] == second["window_ns"]
    assert first["counts"]["launch_calls"] == second["counts"]["launch_calls"]
    assert [d["idle_ns"] for d in first["devices"]] == [d["idle_ns"] for d in second["devices"]]


def test_each_rank_has_a_file_of_the_profilers_json(tmp_path: Path) -> None:
    written(small("tensor_parallel"), tmp_path, kineto=True)
    ranks = [json.loads((tmp_path / f"k_rank{rank}.json").read_text("utf-8")) for rank in (0, 1)]
    assert [rank["distributedInfo"] for rank in ranks] == [{"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2}]
    for number, rank in enumerate(ranks):
        kernels = [event for event in rank["traceEvents"] if event.get("cat") == "kernel"]
        assert {event["args"]["device"] for event in kernels} == {number}


def test_a_graph_as_one_piece_has_no_json_of_the_profiler(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not record graphs as one piece"):
        write_run(small("graph_decode_whole"), tmp_path / "s.sqlite", kineto=tmp_path / "k.json")
    assert list(tmp_path.iterdir()) == []


def test_constants_have_bounds_and_a_source_and_are_drawn_between_them() -> None:
    table = constants()
    drawn = draw_hardware(Chance(1))
    for name, entry in table.items():
        assert set(entry) == {"low", "high", "source"}, name
        assert 0 < entry["low"] <= entry["high"], name
        if name != "node_gap_share":
            assert entry["low"] <= getattr(drawn, name) <= entry["high"], name
    assert drawn != draw_hardware(Chance(2))
    assert drawn == draw_hardware(Chance(1))


def test_numbers_of_one_name_do_not_depend_on_other_names() -> None:
    one, other = Chance(4), Chance(4)
    other.integer("first", 0, 10)
    assert one.factors("second", 5, 0.1) == other.factors("second", 5, 0.1)
    assert one.child("a").integer("n", 0, 1 << 30) != one.child("b").integer("n", 0, 1 << 30)
