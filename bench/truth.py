"""Is it true? ``python -m bench.truth --seeds 10000-10199``: traces whose truth is known, and what profkit says.

For each seed a random scenario with random faults is simulated (``--pairs DIR`` takes X.sqlite beside X.json from any
simulator instead). Three questions: has each idle nanosecond the true cause; does an unchanged replay reproduce the
recorded window; how far are the replayed prices from those that the simulator got by running again. A price is right
within 10 % of the truth or 1 % of a step. Prints tables and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profkit.analysis.context import Analysis
from profkit.analysis.devices import device_numbers
from profkit.analysis.fixes import all_fixes
from profkit.analysis.idle_pieces import EVERY
from profkit.analysis.replay import price
from profkit.api import open as open_trace

WITHIN = 0.10
OF_STEP = 0.01
CAUSE_TARGET, WINDOW_TARGET, PRICE_TARGET = 0.95, 0.95, 0.90
FIX_OF_FAULT = {"step_sync": "no-step-sync", "readback_sync": "read-later", "unfused_kernels": "kernel:dequant=0"}
"""Where a rule has several faults, or a fix needs an argument. Every other fault is found through its rule's code."""


@dataclass
class Score:
    """What came of one trace."""

    name: str
    scenario: str
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    error_share: float = 0.0
    why_not: str = ""
    prices: list[dict[str, Any]] = field(default_factory=list)


def simulated(seeds: range, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Traces of random scenarios and faults, one at a time: each is overwritten by the next."""
    trace, truth = folder / "trace.sqlite", folder / "truth.json"
    for seed in seeds:
        command = [sys.executable, "-m", "profkit", "simulate", "--seed", str(seed), "--force"]
        subprocess.run([*command, "-o", trace, "--truth", truth], check=True, stderr=subprocess.DEVNULL)
        yield trace, truth


def pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    for trace in sorted(folder.glob("*.sqlite")):
        if (truth := trace.with_suffix(".json")).exists():
            yield trace, truth


def judge(name: str, path: Path, truth: dict[str, Any]) -> Score:
    """Compare what profkit says of a trace with the truth."""
    analysis = Analysis(open_trace(path))
    score = Score(name, str(truth.get("scenario", "")))
    score.confusion = confusion(analysis, truth["idle"])
    replayed = price.start(analysis)
    score.error_share, score.why_not = replayed.trust.share, replayed.trust.why_not
    by_code = {fix.code: fix.name for fix in all_fixes().values()}
    for fault in truth["faults"]:
        wanted = FIX_OF_FAULT.get(fault["fault"], by_code.get(fault["code"], ""))
        score.prices.append(_price(analysis, replayed, wanted, fault, truth["step_ns"]))
    return score


def _price(
    analysis: Analysis, replayed: price.Replayed, wanted: str, fault: dict[str, Any], step_ns: int
) -> dict[str, Any]:
    """The truth of one fault, what the replay says, and whether that is right."""
    row = {
        key: fault[key] for key in ("fault", "code", "cost_ns", "saving_ns", "cost_ns_per_step", "saving_ns_per_step")
    }
    name, _, argument = wanted.partition(":")
    fix = all_fixes().get(name)
    found = fix.find(analysis, replayed.model, argument) if fix is not None else None
    if found is None:
        return row | {"found": False, "right": False, "why": "no fix" if fix is None else "nothing found"}
    for key, change in (("cost", found.free), ("saving", found.fixed)):
        got = price.difference(analysis, replayed, change)
        row |= {f"got_{key}_ns": got.window_ns, f"got_{key}_ns_per_step": got.step_ns}
        row[f"{key}_right"] = _close(got.window_ns, fault[f"{key}_ns"], replayed.trust.window_ns)
        row[f"{key}_step_right"] = (
            got.step_ns is not None
            and fault[f"{key}_ns_per_step"] is not None
            and _close(got.step_ns, fault[f"{key}_ns_per_step"], step_ns)
        )
    return row | {"found": True, "right": row["cost_right"] and row["saving_right"], "why": replayed.trust.why_not}


def _close(got: int, true: int, whole: int) -> bool:
    """Within 10 % of the truth, or 1 % of a step (of all steps, for what all of them take)."""
    return abs(got - true) <= max(WITHIN * abs(true), OF_STEP * whole)


def confusion(analysis: Analysis, truth: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """(true cause, cause that profkit gives) -> ns."""
    out: Counter[tuple[str, str]] = Counter()
    pieces, number = analysis.idle.pieces, device_numbers(analysis.trace)
    causes = sorted({row["cause"] for row in truth} | set(EVERY) | {"busy"})
    for device in sorted({row["device"] for row in truth} | set(number[pieces.device].tolist())):
        mine = number[pieces.device] == device
        ours = (pieces.start[mine], pieces.end[mine], np.asarray([causes.index(EVERY[c]) for c in pieces.cause[mine]]))
        rows = [row for row in truth if row["device"] == device]
        theirs = (
            np.asarray([row["start_ns"] for row in rows], np.int64),
            np.asarray([row["end_ns"] for row in rows], np.int64),
            np.asarray([causes.index(row["cause"]) for row in rows]),
        )
        edges = np.unique(np.concatenate((*ours[:2], *theirs[:2])))
        true, got = (_at(part, edges, causes.index("busy")) for part in (theirs, ours))
        lengths = np.diff(edges)
        both = (true != causes.index("busy")) | (got != causes.index("busy"))
        for t, g, length in zip(true[both].tolist(), got[both].tolist(), lengths[both].tolist(), strict=True):
            out[causes[t], causes[g]] += length
    return out


def _at(part: tuple[Any, Any, Any], edges: Any, none: int) -> Any:
    """Cause of each stretch between two edges."""
    start, end, cause = part
    if not len(start):
        return np.full(max(len(edges) - 1, 0), none)
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], edges[:-1], side="right") - 1
    row = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (edges[:-1] < end[row]), cause[row], none)


def summary(scores: list[Score]) -> dict[str, Any]:
    """The three answers over all traces."""
    total: Counter[tuple[str, str]] = Counter()
    for score in scores:
        total.update(score.confusion)
    idle = sum(total.values())
    right = sum(value for (true, got), value in total.items() if true == got)
    prices = [row for score in scores for row in score.prices]
    good = sum(row["right"] for row in prices)
    held = sum(score.error_share <= 0.02 for score in scores)
    return {
        "traces": len(scores),
        "idle_ns": idle,
        "idle_right_share": right / idle if idle else None,
        "traces_with_95_percent_right": sum(_right_share(s) >= CAUSE_TARGET for s in scores) / max(len(scores), 1),
        "replay_within_2_percent_share": held / max(len(scores), 1),
        "faults": len(prices),
        "prices_right_share": good / len(prices) if prices else None,
        "cost_right_share": _share([row.get("cost_right", False) for row in prices]),
        "saving_right_share": _share([row.get("saving_right", False) for row in prices]),
        "per_step_right_share": _share(
            [row.get("cost_step_right", False) and row.get("saving_step_right", False) for row in prices]
        ),
    }


def _share(flags: list[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _right_share(score: Score) -> float:
    idle = sum(score.confusion.values())
    return sum(v for (t, g), v in score.confusion.items() if t == g) / idle if idle else 1.0


def print_tables(scores: list[Score]) -> None:
    total: Counter[tuple[str, str]] = Counter()
    for score in scores:
        total.update(score.confusion)
    print("\ntrue cause -> given cause, ms of idle time")
    for (true, got), value in sorted(total.items(), key=lambda item: (item[0][0] != item[0][1], -item[1])):
        if value >= 0.0005 * sum(total.values()):
            print(f"  {true:16} {got if got != true else '=':16} {value / 1e6:12.3f}")
    print("\nfault               traces  found  cost right  saving right")
    by_fault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for score in scores:
        for row in score.prices:
            by_fault[row["fault"]].append(row)
    for fault, rows in sorted(by_fault.items()):
        cells = [sum(row.get(key, False) for row in rows) for key in ("found", "cost_right", "saving_right")]
        print(f"{fault:20}{len(rows):6} {cells[0]:6} {cells[1]:11} {cells[2]:13}")
    print("\nscenario             traces  idle right  replay error (worst)")
    by_scenario: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_scenario[score.scenario].append(score)
    for scenario, group in sorted(by_scenario.items()):
        share = sum(_right_share(s) for s in group) / len(group)
        print(f"{scenario:20} {len(group):6} {share:11.1%} {max(s.error_share for s in group):12.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="10000-10199", help="First and last seed.")
    parser.add_argument("--pairs", type=Path, help="Traces and truths of another simulator.")
    parser.add_argument("--verbose", action="store_true", help="A line for each price that is wrong.")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    scores = []
    with tempfile.TemporaryDirectory() as folder:
        source = pairs(options.pairs) if options.pairs else simulated(seeds, Path(folder))
        for place, (trace, truth) in enumerate(source):
            name = trace.stem if options.pairs else str(seeds[place])
            scores.append(judge(name, trace, json.loads(truth.read_text())))
            if options.verbose:
                _say(scores[-1])
    print_tables(scores)
    print(json.dumps({"bench": "truth", **summary(scores)}))


def _say(score: Score) -> None:
    if _right_share(score) < CAUSE_TARGET or score.why_not:
        worst = [f"{t}->{g} {v / 1e6:.2f} ms" for (t, g), v in score.confusion.most_common() if t != g][:3]
        print(f"{score.name} {score.scenario}: idle right {_right_share(score):.1%} {worst} {score.why_not}")
    for row in score.prices:
        if not row["right"]:
            figures = " ".join(
                f"{key} {_us(row, f'{key}_ns')}, a step {_us(row, f'{key}_ns_per_step')}" for key in ("cost", "saving")
            )
            print(f"{score.name} {score.scenario} {row['fault']}: {figures} {row['why']}")


def _us(row: dict[str, Any], key: str) -> str:
    """What was got of a price, and the truth."""
    return f"{(row.get(f'got_{key}') or 0) / 1e3:.1f} us (true {(row[key] or 0) / 1e3:.1f})"


if __name__ == "__main__":
    main()
