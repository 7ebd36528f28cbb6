"""Does the first finding name the fault? ``python -m bench.findings --seeds 20000-20199 --healthy 20200-20299``.

Simulated traces whose truth is known; with ``--pairs DIR`` and ``--healthy-pairs DIR`` those that were made before,
X.sqlite beside X.json. Of a trace with planted faults, the largest of which saves 2 to 40 % of a step: has the first
finding the code of that fault (ties within 10 % count), and is its saving within 10 % of the truth or 1 % of a step? Of
a healthy trace: how many findings of warning or more? Prints what was missed, tables and, last, one JSON line.

``--speed --tools DIR --data DIR --peers DIR`` measures instead ``profkit check`` beside ``nsys-ai diagnose``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import profkit
from bench._measure import measure, warm
from bench.open import SIZES, Contender, forget, line_of, make_file, nsys_contenders, record_of
from bench.truth import OF_STEP, WITHIN, pairs
from profkit.model import CheckResult, Finding

LEAST_SHARE, MOST_SHARE = 0.02, 0.40
"""Of a step: what the largest true saving must be, so that a trace is judged."""
TIE = 0.90
"""Of the largest true saving: a fault that saves as much may come first, too."""
NAMED_TARGET, SAVING_TARGET = 0.95, 0.90
WARNINGS_TARGET = 0.05
"""Findings of warning or more on a healthy trace: 5 on 100."""
ALL_RULES = "profkit open + all rules"
"""What has the budget of ``profkit check`` in bench.open."""
PEER = "nsys-ai diagnose"
Case = tuple[str, Path, dict[str, Any]]
"""The name of a trace, where it is, and its truth."""


@dataclass(frozen=True)
class Amount:
    """A planted fault or a finding: its code, its name and its saving as a part of the true step, None if not known."""

    code: str
    name: str
    share: float | None
    of_window: bool = False
    """The saving of a step is not known: the share is that of the window."""

    def __str__(self) -> str:
        share = "not priced" if self.share is None else f"{self.share:.1%}"
        return f"{self.code} {self.name} {share}{' of the window' if self.of_window else ''}"


@dataclass(frozen=True)
class Score:
    """What came of one trace with faults: judged where ``left_out`` is empty."""

    name: str
    scenario: str
    true: tuple[Amount, ...]
    said: tuple[Amount, ...]
    left_out: str = ""
    named: bool = False
    saving_right: bool = False
    right_in_all: bool = False
    """The saving in all is right: where that of a step is not, profkit's steps are others than those of the truth."""
    problem: str = ""


@dataclass(frozen=True)
class Health:
    """What was said of one healthy trace: codes of findings of warning or more."""

    name: str
    scenario: str
    codes: tuple[str, ...]
    left_out: str = ""
    problem: str = ""


def simulated(seeds: range, folder: Path, *words: str) -> Iterator[Case]:
    """Traces of random scenarios, one at a time: each is overwritten by the next."""
    trace, truth = folder / "trace.sqlite", folder / "truth.json"
    for seed in seeds:
        command = [sys.executable, "-m", "profkit", "simulate", "--seed", str(seed), "--force", *words]
        subprocess.run([*command, "-o", trace, "--truth", truth], check=True, stderr=subprocess.DEVNULL)
        yield str(seed), trace, json.loads(truth.read_text())


def stored(folder: Path) -> Iterator[Case]:
    for trace, truth in pairs(folder):
        yield trace.stem, trace, json.loads(truth.read_text())


def check(path: Path) -> tuple[CheckResult | None, str]:
    """What profkit says of a trace, or why it says nothing: that counts as a miss, and the other traces are judged."""
    try:
        return profkit.check(path), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def true_amount(fault: Mapping[str, Any], truth: Mapping[str, Any]) -> Amount:
    return _amount(fault["code"], fault["fault"], fault["saving_ns"], fault["saving_ns_per_step"], truth)


def said_amount(finding: Finding, truth: Mapping[str, Any]) -> Amount:
    if finding.saving_ns < 0:
        return Amount(finding.code, finding.title, None)
    per_step = finding.saving_ns_per_step if finding.saving_ns_per_step >= 0 else None
    return _amount(finding.code, finding.title, finding.saving_ns, per_step, truth)


def _amount(code: str, name: str, saving_ns: int, per_step_ns: int | None, truth: Mapping[str, Any]) -> Amount:
    if per_step_ns is not None and truth["step_ns"]:
        return Amount(code, name, per_step_ns / truth["step_ns"])
    return Amount(code, name, saving_ns / max(truth["window_ns"], 1), of_window=True)


def true_share(fault: Mapping[str, Any], truth: Mapping[str, Any]) -> float:
    return true_amount(fault, truth).share or 0.0


def why_left_out(truth: Mapping[str, Any]) -> str:
    """Why no first finding is expected of a trace, "" where one is."""
    if not truth["faults"]:
        return "no fault"
    largest = max(true_share(fault, truth) for fault in truth["faults"])
    if largest < LEAST_SHARE:
        return f"saves under {LEAST_SHARE:.0%}"
    return f"saves over {MOST_SHARE:.0%}" if largest > MOST_SHARE else ""


def judge(name: str, truth: Mapping[str, Any], findings: Sequence[Finding], problem: str = "") -> Score:
    """Compare what profkit says of a trace, the first finding above all, with the truth."""
    faults = sorted(truth["faults"], key=lambda fault: -true_share(fault, truth))
    first = findings[0] if findings else None
    wanted = [] if first is None else [fault for fault in _tied(faults, truth) if fault["code"] == first.code]
    return Score(
        name=name,
        scenario=str(truth.get("scenario", "")),
        true=tuple(true_amount(fault, truth) for fault in faults),
        said=tuple(said_amount(finding, truth) for finding in findings[:3]),
        left_out=why_left_out(truth),
        named=bool(wanted),
        saving_right=first is not None and any(saving_is_right(first, fault, truth) for fault in wanted),
        right_in_all=first is not None and any(saving_is_right(first, f, truth, by_step=False) for f in wanted),
        problem=problem,
    )


def _tied(faults: Sequence[Mapping[str, Any]], truth: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of faults by their share those that save about as much as the first."""
    return [fault for fault in faults if true_share(fault, truth) >= TIE * true_share(faults[0], truth)]


def saving_is_right(finding: Finding, fault: Mapping[str, Any], truth: Mapping[str, Any], by_step: bool = True) -> bool:
    """Within 10 % of the truth or 1 % of a step; where not both are known per step, in all and 1 % of the window."""
    if finding.saving_ns < 0:
        return False
    known = finding.saving_ns_per_step >= 0 and fault["saving_ns_per_step"] is not None and truth["step_ns"]
    key, whole = ("saving_ns_per_step", truth["step_ns"]) if by_step and known else ("saving_ns", truth["window_ns"])
    return bool(abs(getattr(finding, key) - fault[key]) <= max(WITHIN * abs(fault[key]), OF_STEP * whole))


def judge_healthy(name: str, truth: Mapping[str, Any], findings: Sequence[Finding], problem: str = "") -> Health:
    codes = tuple(finding.code for finding in findings if finding.severity != "info")
    return Health(name, str(truth.get("scenario", "")), codes, "not healthy" if truth["faults"] else "", problem)


def judge_all(faulty: Iterator[Case], healthy: Iterator[Case]) -> tuple[list[Score], list[Health]]:
    """One record a trace; what is wrong is printed as it is found."""
    scores: list[Score] = []
    healths: list[Health] = []
    for name, path, truth in faulty:
        if why_left_out(truth):
            scores.append(judge(name, truth, ()))
            continue
        result, problem = check(path)
        scores.append(judge(name, truth, result.findings if result else (), problem))
        if not scores[-1].saving_right:
            print(line_of_miss(scores[-1]), flush=True)
    for name, path, truth in healthy:
        result, problem = check(path) if not truth["faults"] else (None, "")
        every = (*result.findings, *result.others) if result else ()
        healths.append(judge_healthy(name, truth, every, problem))
        if healths[-1].codes or problem:
            print(f"healthy {name} {healths[-1].scenario}: {problem or ', '.join(healths[-1].codes)}", flush=True)
    return scores, healths


def line_of_miss(score: Score) -> str:
    """What was expected of a trace, and the first three findings with their savings as parts of the true step."""
    what = "saving wrong" if score.named else "wrong first"
    if score.right_in_all and not score.saving_right:
        what = "saving of a step wrong, right in all"
    said = score.problem or ", ".join(str(amount) for amount in score.said) or "nothing"
    true = ", ".join(str(amount) for amount in score.true)
    return f"{what}: {score.name} {score.scenario}\n    true: {true}\n    said: {said}"


def summary(scores: Sequence[Score], healths: Sequence[Health]) -> dict[str, Any]:
    """The answers over all traces. Nothing that was not judged meets a target."""
    judged = [score for score in scores if not score.left_out]
    healthy = [health for health in healths if not health.left_out]
    named, right = _share([s.named for s in judged]), _share([s.saving_right for s in judged])
    warnings = sum(len(health.codes) for health in healthy)
    failed = [score.name for score in judged if score.problem]
    healthy_failed = [health.name for health in healthy if health.problem]
    return {
        "traces": len(scores),
        "judged": len(judged),
        "left_out": dict(Counter(score.left_out for score in scores if score.left_out)),
        "first_right_share": named,
        "saving_right_share": right,
        "saving_right_share_of_first_right": _share([s.saving_right for s in judged if s.named]),
        "saving_right_in_all_share": _share([s.right_in_all for s in judged]),
        "healthy": len(healthy),
        "healthy_left_out": len(healths) - len(healthy),
        "healthy_warnings": warnings,
        "healthy_codes": dict(Counter(code for health in healthy for code in health.codes)),
        "failed": failed + healthy_failed,
        "targets": {
            "first_right_share": NAMED_TARGET,
            "saving_right_share": SAVING_TARGET,
            "warnings_a_healthy_trace": WARNINGS_TARGET,
        },
        "met": {
            "first_right_share": named is not None and named >= NAMED_TARGET,
            "saving_right_share": right is not None and right >= SAVING_TARGET,
            "warnings_a_healthy_trace": bool(healthy)
            and not healthy_failed
            and warnings <= WARNINGS_TARGET * len(healthy),
        },
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def print_tables(scores: Sequence[Score], healths: Sequence[Health]) -> None:
    judged = [score for score in scores if not score.left_out]
    _print_groups("largest fault", judged, lambda score: f"{score.true[0].code} {score.true[0].name}")
    _print_groups("scenario", judged, lambda score: score.scenario)
    records: list[Score | Health] = [*scores, *healths]
    _print_names("left out", [(record.left_out, record.name) for record in records])
    _print_names("failed", [(record.problem, record.name) for record in records])
    _print_names("on healthy traces", [(code, health.name) for health in healths for code in health.codes])
    found = summary(scores, healths)
    print(f"\n{'what':48}{'found':>8}{'target':>8}  met")
    met = {key: "yes" if value else "no" for key, value in found["met"].items()}
    for key, what in (
        ("first_right_share", f"first finding right, of {len(judged)} traces"),
        ("saving_right_share", "and its saving"),
    ):
        share = "none" if found[key] is None else f"{found[key]:.1%}"
        print(f"{what:48}{share:>8}{found['targets'][key]:>8.0%}  {met[key]}")
    count, most = found["healthy"], WARNINGS_TARGET * found["healthy"]
    what = f"warnings on {count} healthy traces"
    print(f"{what:48}{found['healthy_warnings']:>8}{most:>8g}  {met['warnings_a_healthy_trace']}")


def _print_groups(what: str, judged: Sequence[Score], group: Callable[[Score], str]) -> None:
    """Traces by what is common to them, how many were right, and the codes that came first instead."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in judged:
        groups[group(score)].append(score)
    print(f"\n{what:28}traces  first right  saving right  first instead")
    for key, rows in sorted(groups.items()):
        instead = Counter(row.said[0].code if row.said else "nothing" for row in rows if not row.named)
        words = ", ".join(f"{code} {count}" for code, count in instead.most_common())
        named, right = sum(row.named for row in rows), sum(row.saving_right for row in rows)
        print(f"{key:28}{len(rows):>6}{named:>13}{right:>14}  {words}".rstrip())


def _print_names(what: str, rows: Sequence[tuple[str, str]]) -> None:
    """Which traces each reason is of; rows without a reason are none."""
    if any(reason for reason, _ in rows):
        print(f"\n{what}")
    for reason in sorted({reason for reason, _ in rows} - {""}):
        names = [name for said, name in rows if said == reason]
        print(f"  {reason}: {len(names)} ({', '.join(names)})")


def contenders(peers: Path | None) -> list[Contender]:
    """The two commands that a person would run for the same question."""
    ours = Contender("profkit check", (sys.executable, "-m", "profkit", "check"))
    return [ours, *(other for other in nsys_contenders(peers) if other.name == PEER)]


def measure_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One record a trace and command, with how many times longer it takes than profkit."""
    for kind, size in [(kind, size) for size in options.sizes for kind in options.kinds]:
        path = make_file(options.tools, options.data, kind, size)
        warm(path)
        ours = None
        for contender in contenders(options.peers):
            command = (*contender.command, str(path.resolve()))
            found = measure(command, options.runs, options.timeout, contender.env, lambda: forget(path))  # noqa: B023
            is_peer = contender.name == PEER
            record = record_of(kind, size, path, PEER if is_peer else ALL_RULES, found) | {"reader": contender.name}
            if not is_peer:
                ours = found.median
            times = found.median / ours if is_peer and found.median and ours else None
            yield record | {"times_as_long": times and round(times, 2)}


def speed(options: argparse.Namespace) -> dict[str, Any]:
    before = os.getloadavg()[0]
    records: list[dict[str, Any]] = []
    if len(contenders(options.peers)) == 1:
        print(f"{PEER} is not measured: no --peers, or it is not there")
    print(f"{'trace':10}{'MiB':>7}  {'command':26}{'wall s':>8}{'CPU s':>8}{'peak MiB':>9}  budget", flush=True)
    for record in measure_all(options):
        records.append(record)
        times = f"  {record['times_as_long']:g} times as long" if record["times_as_long"] else ""
        print(line_of(record) + times, flush=True)
    print(f"load before {before:.1f}, after {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return {"cores": os.cpu_count(), "load_before": before, "load_after": os.getloadavg()[0], "results": records}


def accuracy(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        faulty = stored(options.pairs) if options.pairs else simulated(options.seeds, place)
        healthy = (
            stored(options.healthy_pairs)
            if options.healthy_pairs
            else simulated(options.healthy, place, "--fault", "none")
        )
        scores, healths = judge_all(faulty, healthy)
    print_tables(scores, healths)
    return summary(scores, healths)


def seeds_of(text: str) -> range:
    """``3-5`` is 3, 4, 5; ``3`` is itself."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, default="20000-20199", help="First and last seed, with faults.")
    parser.add_argument("--healthy", type=seeds_of, default="20200-20299", help="First and last seed, without faults.")
    parser.add_argument("--pairs", type=Path, help="Traces with faults and their truths, instead of --seeds.")
    parser.add_argument("--healthy-pairs", type=Path, help="Traces without faults, instead of --healthy.")
    parser.add_argument("--speed", action="store_true", help="Measure time and memory instead.")
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"), help="Folder of the generators.")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "profkit-bench", help="For the files."
    )
    parser.add_argument("--peers", type=Path, help="Folder with environments of other tools.")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["1m", "10m"], help="Of 100k, 1m, 10m.")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["easy", "hard"], help="Of easy, hard.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=900.0, help="Seconds a run may take.")
    options = parser.parse_args()
    if unknown := [size for size in options.sizes if size not in SIZES]:
        parser.error(f"no such size: {', '.join(unknown)}")
    if missing := [path for path in (options.pairs, options.healthy_pairs) if path and not path.is_dir()]:
        parser.error(f"no such folder: {missing[0]}")
    found = speed(options) if options.speed else accuracy(options)
    about = {"bench": "findings", "python": platform.python_version(), "profkit": version("profkit")}
    print(json.dumps(about | found))


if __name__ == "__main__":
    main()
