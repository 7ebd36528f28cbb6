"""The benchmark of findings judges what is said of a trace by the truth: on truths and findings made by hand."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.model import CheckResult, Finding

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import findings as bench  # noqa: E402
from bench._measure import Measured  # noqa: E402

MIB = 1 << 20
STEP_NS, STEPS = 1_000_000, 10


def truth(**faults: tuple[str, float] | tuple[str, float, float]) -> dict[str, Any]:
    """A truth of ten steps of 1 ms: fault -> (code, part of a step that it saves[, part of the window])."""
    rows = [
        {
            "fault": fault,
            "code": code,
            "saving_ns": round((window[0] if window else share) * STEP_NS * STEPS),
            "saving_ns_per_step": round(share * STEP_NS),
        }
        for fault, (code, share, *window) in faults.items()
    ]
    return {"scenario": "by_hand", "window_ns": STEP_NS * STEPS, "step_ns": STEP_NS, "faults": rows}


def without_steps(whole: dict[str, Any]) -> dict[str, Any]:
    return whole | {"step_ns": None, "faults": [fault | {"saving_ns_per_step": None} for fault in whole["faults"]]}


def said(code: str, share: float, severity: str = "warning", window: float = -1.0) -> Finding:
    """A finding that saves a part of a step, and the same part of the window unless it is given."""
    return Finding(
        code=code,
        title="A title",
        message="",
        cause="",
        advice="",
        key=f"{code}:all:kind:name",
        severity=severity,
        saving_ns=round((window if window >= 0 else share) * STEP_NS * STEPS),
        saving_ns_per_step=round(share * STEP_NS),
    )


def verdict(whole: dict[str, Any], *findings: Finding) -> tuple[bool, bool]:
    score = bench.judge("7", whole, findings)
    assert score.left_out == ""
    return score.named, score.saving_right


def result(findings: tuple[Finding, ...] = (), others: tuple[Finding, ...] = ()) -> CheckResult:
    return CheckResult("", findings, others, (), (), {}, {})


# --- one trace -------------------------------------------------------------------------------------------------------


def test_the_first_finding_is_the_largest_fault_whatever_comes_after() -> None:
    whole = truth(small=("PK301", 0.05), large=("PK302", 0.20))
    assert verdict(whole, said("PK302", 0.20), said("PK301", 0.05)) == (True, True)
    assert verdict(whole, said("PK301", 0.05), said("PK302", 0.20)) == (False, False)
    assert verdict(whole, said("PK999", 0.20), said("PK302", 0.20)) == (False, False)
    assert verdict(whole) == (False, False)


def test_a_fault_within_a_tenth_of_the_largest_may_come_first() -> None:
    assert verdict(truth(a=("PK301", 0.20), b=("PK302", 0.181)), said("PK302", 0.181)) == (True, True)
    assert verdict(truth(a=("PK301", 0.20), b=("PK302", 0.179)), said("PK302", 0.179)) == (False, False)


def test_the_largest_fault_is_that_of_a_step_where_steps_are_known() -> None:
    whole = truth(a=("PK301", 0.30, 0.05), b=("PK302", 0.10, 0.20))
    assert verdict(whole, said("PK301", 0.30))[0]
    assert not verdict(whole, said("PK302", 0.10))[0]
    assert verdict(without_steps(whole), said("PK302", 0.10))[0]
    assert not verdict(without_steps(whole), said("PK301", 0.30))[0]


@pytest.mark.parametrize(
    ("true", "given", "right"),
    [
        (0.30, 0.329, True),  # within 10 % of the truth
        (0.30, 0.271, True),
        (0.30, 0.331, False),
        (0.30, 0.269, False),
        (0.03, 0.0399, True),  # within 1 % of a step
        (0.03, 0.0201, True),
        (0.03, 0.0411, False),
        (0.03, 0.0189, False),
    ],
)
def test_a_saving_is_right_within_a_tenth_or_one_percent_of_a_step(true: float, given: float, right: bool) -> None:
    assert verdict(truth(a=("PK301", true)), said("PK301", given)) == (True, right)
    assert verdict(without_steps(truth(a=("PK301", true))), said("PK301", 0.0, window=given)) == (True, right)


def test_savings_are_compared_per_step_where_both_are_known() -> None:
    whole = truth(a=("PK301", 0.30, 0.10))
    assert verdict(whole, said("PK301", 0.30, window=0.90)) == (True, True)
    other_steps = bench.judge("7", whole, [said("PK301", 0.90, window=0.10)])
    assert (other_steps.named, other_steps.saving_right, other_steps.right_in_all) == (True, False, True)
    assert bench.line_of_miss(other_steps).startswith("saving of a step wrong, right in all: 7 by_hand")
    assert not bench.judge("7", whole, [said("PK301", 0.30, window=0.90)]).right_in_all
    only_window = replace(said("PK301", 0.0, window=0.10), saving_ns_per_step=-1)
    assert verdict(whole, only_window) == (True, True)
    assert verdict(whole, replace(only_window, saving_ns=3 * STEP_NS)) == (True, False)


def test_a_finding_without_a_saving_has_no_right_one() -> None:
    """Not even where the truth is next to nothing."""
    unknown = replace(said("PK301", 0.0), saving_ns=-1, saving_ns_per_step=-1)
    whole = truth(a=("PK301", 0.02, 0.001))
    assert verdict(whole, unknown) == (True, False)


def test_of_two_faults_with_one_code_each_may_be_meant_if_they_tie() -> None:
    tied = truth(a=("PK303", 0.050), b=("PK303", 0.046))
    assert verdict(tied, said("PK303", 0.037)) == (True, True)
    apart = truth(a=("PK303", 0.30), b=("PK303", 0.10))
    assert verdict(apart, said("PK303", 0.10)) == (True, False)


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (truth(), "no fault"),
        (truth(a=("PK301", 0.0199)), "saves under 2%"),
        (truth(a=("PK301", 0.02)), ""),
        (truth(a=("PK301", 0.40)), ""),
        (truth(a=("PK301", 0.4001)), "saves over 40%"),
        (truth(a=("PK301", 0.01), b=("PK302", 0.41)), "saves over 40%"),
        (truth(a=("PK301", 0.01), b=("PK302", 0.03)), ""),
        (truth(a=("PK301", 0.50, 0.10)), "saves over 40%"),  # of a step, though not of the window
        (without_steps(truth(a=("PK301", 0.50, 0.10))), ""),
    ],
)
def test_a_trace_is_judged_if_its_largest_fault_saves_2_to_40_percent(whole: dict[str, Any], why: str) -> None:
    assert bench.why_left_out(whole) == why
    assert bench.judge("7", whole, ()).left_out == why


def test_what_is_left_out_counts_neither_way() -> None:
    right = bench.judge("1", truth(a=("PK301", 0.1)), [said("PK301", 0.1)])
    huge = bench.judge("2", truth(a=("PK301", 0.9)), [said("PK301", 0.9)])
    none = bench.judge("3", truth(), [said("PK301", 0.9)])
    found = bench.summary([right, huge, none, none], [])
    assert (found["traces"], found["judged"], found["first_right_share"]) == (4, 1, 1.0)
    assert found["left_out"] == {"saves over 40%": 1, "no fault": 2}


# --- all traces ------------------------------------------------------------------------------------------------------


def scores(named: int, right: int, of: int) -> list[bench.Score]:
    whole = truth(a=("PK301", 0.1))
    return [
        bench.judge(str(i), whole, [said("PK301" if i < named else "PK999", 0.1 if i < right else 0.2)])
        for i in range(of)
    ]


@pytest.mark.parametrize(
    ("named", "right", "met"), [(95, 90, (True, True)), (94, 90, (False, True)), (100, 89, (True, False))]
)
def test_targets_are_of_all_traces_that_were_judged(named: int, right: int, met: tuple[bool, bool]) -> None:
    found = bench.summary(scores(named, right, 100), [])
    assert (found["first_right_share"], found["saving_right_share"]) == (named / 100, right / 100)
    assert found["saving_right_share_of_first_right"] == right / named
    assert (found["met"]["first_right_share"], found["met"]["saving_right_share"]) == met


def healths(warnings: int, of: int = 100) -> list[bench.Health]:
    return [bench.judge_healthy(str(i), truth(), [said("PK201", 0.03)] * (warnings if not i else 0)) for i in range(of)]


@pytest.mark.parametrize(("warnings", "of", "met"), [(5, 100, True), (6, 100, False), (2, 10, False), (0, 10, True)])
def test_warnings_on_healthy_traces_are_counted_one_by_one(warnings: int, of: int, met: bool) -> None:
    found = bench.summary([], healths(warnings, of))
    assert (found["healthy"], found["healthy_warnings"]) == (of, warnings)
    assert found["healthy_codes"] == ({"PK201": warnings} if warnings else {})
    assert found["met"]["warnings_a_healthy_trace"] is met


def test_nothing_judged_meets_no_target() -> None:
    found = bench.summary([], [])
    assert found["first_right_share"] is None
    assert set(found["met"].values()) == {False}


def test_a_note_is_no_warning_and_a_faulty_trace_is_not_healthy() -> None:
    findings = [said("PK101", 0.01, "info"), said("PK201", 0.1, "critical"), said("PK301", 0.03)]
    assert bench.judge_healthy("7", truth(), findings).codes == ("PK201", "PK301")
    faulty = bench.judge_healthy("8", truth(a=("PK301", 0.1)), findings)
    found = bench.summary([], [faulty])
    assert (found["healthy"], found["healthy_left_out"], found["healthy_warnings"]) == (0, 1, 0)
    assert not found["met"]["warnings_a_healthy_trace"]


def test_findings_below_the_six_that_are_shown_count_on_a_healthy_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        bench,
        "check",
        lambda path: (result((said("PK201", 0.3),), (said("PK101", 0.03), said("PK301", 0, "info"))), ""),
    )
    _, [health] = bench.judge_all(iter(()), iter([("7", Path("x"), truth())]))
    assert health.codes == ("PK201", "PK101")
    assert capsys.readouterr().out == "healthy 7 by_hand: PK201, PK101\n"


def test_a_trace_that_cannot_be_checked_is_a_miss_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(path: Path) -> CheckResult:
        if path.name == "bad":
            raise ValueError("no such column")
        return result((said("PK301", 0.1),))

    monkeypatch.setattr(bench.profkit, "check", check)
    whole = truth(a=("PK301", 0.1))
    cases = [("1", Path("bad"), whole), ("2", Path("good"), whole)]
    found = bench.summary(*bench.judge_all(iter(cases), iter([("3", Path("bad"), truth())])))
    assert (found["judged"], found["first_right_share"], found["failed"]) == (2, 0.5, ["1", "3"])
    assert not found["met"]["warnings_a_healthy_trace"]
    assert "said: ValueError: no such column" in capsys.readouterr().out


def test_the_default_run_plants_faults_in_one_half_and_none_in_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is missed by its name, one by its saving; both are printed."""
    asked: list[tuple[range, tuple[str, ...]]] = []

    def simulated(seeds: range, folder: Path, *words: str) -> Iterator[bench.Case]:
        asked.append((seeds, words))
        faults = {} if words else {"a": ("PK301", 0.1)}
        yield from ((str(seed), Path(str(seed)), truth(**faults)) for seed in seeds)

    findings = {"1": said("PK301", 0.1), "2": said("PK301", 0.3), "3": said("PK302", 0.1), "9": said("PK201", 0.1)}
    monkeypatch.setattr(bench, "simulated", simulated)
    monkeypatch.setattr(bench, "check", lambda path: (result((findings[path.name],)), ""))
    options = argparse.Namespace(pairs=None, healthy_pairs=None, seeds=range(1, 4), healthy=range(9, 10))
    found = bench.accuracy(options)
    assert asked == [(range(1, 4), ()), (range(9, 10), ("--fault", "none"))]
    assert (found["first_right_share"], found["saving_right_share"]) == (2 / 3, 1 / 3)
    assert found["healthy_codes"] == {"PK201": 1}
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("wrong first", "saving wrong", "healthy"))] == [
        "saving wrong: 2 by_hand",
        "wrong first: 3 by_hand",
        "healthy 9 by_hand: PK201",
    ]


# --- what is printed -------------------------------------------------------------------------------------------------


def test_a_miss_says_what_is_true_and_the_first_three_that_were_said() -> None:
    whole = truth(readback_sync=("PK303", 0.068), pin_per_call=("PK307", 0.3))
    findings = [
        said("PK301", 0.25),
        replace(said("PK101", 0.0), saving_ns=-1, saving_ns_per_step=-1),
        replace(said("PK102", 0.02), saving_ns_per_step=-1),
        said("PK201", 0.01),
    ]
    assert bench.line_of_miss(bench.judge("20023", whole, findings)).splitlines() == [
        "wrong first: 20023 by_hand",
        "    true: PK307 pin_per_call 30.0%, PK303 readback_sync 6.8%",
        "    said: PK301 A title 25.0%, PK101 A title not priced, PK102 A title 2.0% of the window",
    ]
    off = bench.line_of_miss(bench.judge("20024", whole, [said("PK307", 0.1)]))
    assert off.startswith("saving wrong: 20024")
    assert bench.line_of_miss(bench.judge("20025", whole, [])).endswith("said: nothing")


def test_tables_show_what_came_first_instead_and_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*scores(2, 1, 3), bench.judge("40", truth(), ())]
    bench.print_tables(rows, healths(1, 40))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["PK301", "a", "3", "2", "1", "PK999", "1"] in lines
    assert ["by_hand", "3", "2", "1", "PK999", "1"] in lines
    assert ["no", "fault:", "1", "(40)"] in lines
    assert ["PK201:", "1", "(0)"] in lines
    assert ["first", "finding", "right,", "of", "3", "traces", "66.7%", "95%", "no"] in lines
    assert ["and", "its", "saving", "33.3%", "90%", "no"] in lines
    assert ["warnings", "on", "40", "healthy", "traces", "1", "2", "yes"] in lines


def run(*words: object) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-m", "bench.findings", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


def test_stored_traces_are_judged_by_the_truths_beside_them(tmp_path: Path) -> None:
    """A real trace with its truth, the same with the truth of another fault, and one without a truth."""
    faulty, healthy = tmp_path / "faulty", tmp_path / "healthy"
    words = ["simulate", "--scenario", "eager_decode", "--seed", "4", "--steps", "12"]
    for folder, fault in ((faulty, "step_sync"), (healthy, "none")):
        folder.mkdir()
        paths = ["-o", folder / "right.sqlite", "--truth", folder / "right.json"]
        subprocess.run([sys.executable, "-m", "profkit", *words, "--fault", fault, *paths], check=True, cwd=ROOT)
    real = json.loads((faulty / "right.json").read_text())
    other = real | {"faults": [fault | {"code": "PK999"} for fault in real["faults"]]}
    for name in ("wrong", "no_truth"):
        (faulty / f"{name}.sqlite").write_bytes((faulty / "right.sqlite").read_bytes())
    (faulty / "wrong.json").write_text(json.dumps(other))

    record, out = run("--pairs", faulty, "--healthy-pairs", healthy)
    assert (record["bench"], record["traces"], record["judged"]) == ("findings", 2, 2)
    assert (record["first_right_share"], record["saving_right_share"]) == (0.5, 0.5)
    assert (record["healthy"], record["failed"]) == (1, [])
    assert "wrong first: wrong eager_decode" in out
    assert "right eager_decode" not in out


def test_seeds_are_simulated_with_faults_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def simulate(command: list[Any], **_: Any) -> None:
        asked.append([str(word) for word in command[3:]])
        Path(command[-1]).write_text(json.dumps(truth()))

    monkeypatch.setattr(bench.subprocess, "run", simulate)
    cases = [name for name, _, _ in bench.simulated(bench.seeds_of("8-9"), tmp_path)]
    cases += [name for name, _, _ in bench.simulated(bench.seeds_of("3"), tmp_path, "--fault", "none")]
    assert cases == ["8", "9", "3"]
    assert [words[:5] for words in asked[:2]] == [["simulate", "--seed", seed, "--force", "-o"] for seed in ("8", "9")]
    assert asked[2][:6] == ["simulate", "--seed", "3", "--force", "--fault", "none"]


# --- speed -----------------------------------------------------------------------------------------------------------


def test_check_is_measured_beside_the_peer_with_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New processes of two commands on each trace, and how many times as long the other takes."""
    peer = tmp_path / "nsysai/bin/nsys-ai"
    peer.parent.mkdir(parents=True)
    peer.touch()
    seconds = {"check": 4.0, "diagnose": 10.0}
    asked: list[tuple[str, ...]] = []

    def measured(command: tuple[str, ...], *_: Any) -> Measured:
        asked.append(command)
        if "hard" in command[-1] and "diagnose" in command:
            return Measured((), 0, "exit 1: no")
        return Measured((seconds[command[-2]],), 700 * MIB, "", (3.0,))

    monkeypatch.setattr(bench, "make_file", lambda tools, data, kind, size: tmp_path / f"{kind}_{size}")
    monkeypatch.setattr(bench, "measure", measured)
    for kind in ("easy", "hard"):
        (tmp_path / f"{kind}_1m").write_bytes(b"x")
    options = argparse.Namespace(
        sizes=["1m"], kinds=["easy", "hard"], tools=tmp_path, data=tmp_path, peers=tmp_path, runs=1, timeout=1.0
    )
    records = list(bench.measure_all(options))
    assert [(r["trace"], r["reader"], r["wall_s"], r["times_as_long"]) for r in records] == [
        ("easy 1m", "profkit check", 4.0, None),
        ("easy 1m", "nsys-ai diagnose", 10.0, 2.5),
        ("hard 1m", "profkit check", 4.0, None),
        ("hard 1m", "nsys-ai diagnose", None, None),
    ]
    assert [(r["budget_s"], r["budget_mib"]) for r in records] == [(4, 1024), (None, None), (8, 2048), (None, None)]
    assert asked[0][1:] == ("-m", "profkit", "check", str(tmp_path / "easy_1m"))
    assert asked[1][1:] == ("diagnose", str(tmp_path / "easy_1m"))


def test_speed_ends_with_one_json_line(tmp_path: Path) -> None:
    """On a file that is there already, so that no generator is needed."""
    (tmp_path / "easy_100k.sqlite").write_bytes(b"no trace")
    record, out = run("--speed", "--data", tmp_path, "--sizes", "100k", "--kinds", "easy", "--runs", "1")
    assert record["bench"] == "findings"
    assert [(r["reader"], r["wall_s"]) for r in record["results"]] == [("profkit check", None)]
    assert "no trace" in record["results"][0]["problem"] or "not a trace" in record["results"][0]["problem"]
    assert "nsys-ai diagnose is not measured" in out


@pytest.mark.parametrize("words", [["--pairs", "not/there"], ["--sizes", "7m"], ["--seeds", "x"]])
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    command = [sys.executable, "-m", "bench.findings", *words]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 2
