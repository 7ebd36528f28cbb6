"""Results as text for a terminal and as strict JSON: keys flat, absent is null, big integers as digits in a string."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from typing import Any

from profkit import text
from profkit.model import CheckResult, Finding, NotRun
from profkit.rules import all_rules
from profkit.schema import OPTIONAL_TABLES

_UNEVEN = 0.75
"""A device below this part of the mean busy share is named."""
SAFE_INTEGER = 1 << 53
"""JSON readers that hold numbers as doubles lose integers from here on."""


def document(command: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope of every JSON output: the schema, the version, and the content beside them."""
    return {"schema": f"profkit.{command}/1", "profkit_version": version("profkit"), **content}


def to_json(value: Any) -> str:
    """Strict JSON: no NaN, no Infinity, no integer that a double would round, no lone surrogate."""
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=True)


def plain(value: Any) -> Any:
    """Dataclasses, tuples and big integers to what JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return plain(value.item())


def check_document(result: CheckResult) -> dict[str, Any]:
    """``check --json``."""
    return document(
        "check",
        {
            "headline": result.headline,
            "trace": result.trace,
            "summary": result.summary,
            "findings": [finding_document(finding) for finding in result.findings],
            "others": [finding_document(finding) for finding in result.others],
            "not_run": [asdict(item) for item in result.not_run],
            "clean": list(result.clean),
            "replayed": result.replayed or None,
        },
    )


def finding_document(finding: Finding) -> dict[str, Any]:
    """A finding with unknown prices as null."""
    out = asdict(finding)
    for key in ("cost_ns", "saving_ns", "cost_ns_per_step", "saving_ns_per_step"):
        out[key] = None if out[key] < 0 else out[key]
    return out


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Aligned lines: the first ``left`` columns to the left, numbers to the right."""
    table = [list(head), *([text.clip(cell, 60) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def check_text(result: CheckResult, width: int = 0, everything: bool = False) -> str:
    """``check`` for a person: the headline first, then what it rests on. ``width`` wraps sentences, 0 does not.

    ``everything``: also what does not matter, what was clean, and what each finding assumes.
    """
    summary = result.summary
    sentences = [result.headline, "", *_finding_lines(result, everything)]
    tables = [
        *_device_lines(summary),
        *_step_lines(summary),
        *_stage_lines(result),
        *_range_lines(summary),
        *_copy_lines(summary),
        *_call_lines(summary),
        *_communication_lines(summary, everything),
        *_collective_lines(summary),
        *_idle_lines(summary),
    ]
    source = f"{result.trace['source']} {result.trace['source_version'] or ''}".strip()
    missing, optional = dict(result.trace["missing"]), [t for t in OPTIONAL_TABLES if t in result.trace["missing"]]
    usual = {table: reason for table, reason in missing.items() if table not in optional}
    remarks = [f"no {', '.join(tables)}: {reason}" for reason, tables in _by_reason(usual).items()]
    remarks += [f"not recorded: {', '.join(optional)} (check --json says why)"] if optional else []
    remarks += [f"warning: {warning}" for warning in result.trace["warnings"]]
    remarks += [f"note: {note}" for note in result.trace["notes"]]
    remarks.append(f"from {source}, {text.ns(result.trace['span_ns'])} of capture")
    return "\n".join(text.printable(line) for line in (*_wrap(sentences, width), *tables, *_wrap(remarks, width)))


def _wrap(lines: Sequence[str], width: int) -> list[str]:
    """Sentences at the width of the terminal; continued lines are indented as the first."""
    if width <= 0:
        return list(lines)
    out: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        out += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False) or [""]
    return out


def _finding_lines(result: CheckResult, everything: bool) -> list[str]:
    lines = []
    said: set[str] = set()
    for finding in (*result.findings, *(result.others if everything else ())):
        lines.append(f"{finding.code} {finding.title} [{finding.severity}]{_price(finding)}")
        if finding.message not in result.headline:
            lines.append(f"  {text.clip(finding.message, 1_000)}")
        lines.append(f"  to do: {finding.advice}")
        if everything and finding.fixes:
            lines.append(f"  priced as: profkit whatif {' '.join(f'--fix {fix}' for fix in finding.fixes)}")
        assumed = [part for part in str(finding.facts.get("assumed", "")).split("; ") if part and part not in said]
        if finding.saving_ns > 0 and assumed:
            lines.append(f"  assumed: {text.clip('; '.join(assumed), 400)}")
            said.update(assumed)
        lines += [f"  with it: {line}" for line in folded_lines(finding)]
    if result.others and not everything:
        what = text.count(len(result.others), "further finding")
        lines.append(f"{what} that would give back next to nothing, or that only say what was seen: --all")
    if everything and result.clean:
        lines.append(f"nothing found by {', '.join(result.clean)}")
    elif result.clean:
        lines.append(f"nothing found by {text.count(len(result.clean), 'rule')}")
    by_fix = [code for code in result.clean if all_rules()[code].by_fix]
    if result.replayed and by_fix:
        codes = ", ".join(by_fix) if everything else text.count(len(by_fix), "of them", "of them")
        lines.append(f"{codes} looked only at what was replayed: {result.replayed}")
    if everything:
        not_run = _by_reason({f"{item.code} {item.title}": why_not_run(item) for item in result.not_run})
        lines += [f"not evaluated: {', '.join(rules)}: {reason}" for reason, rules in not_run.items()]
    elif result.not_run:
        short = _by_reason({item.code: item.reason for item in result.not_run})
        lines += [f"not evaluated: {', '.join(rules)}: {reason}" for reason, rules in short.items()]
        lines.append("what to record so that they can be: --all")
    return [*lines, ""]


def why_not_run(item: NotRun) -> str:
    """Why a rule could not judge, and what to record so that it can."""
    return f"{item.reason}; {item.record}" if item.record else item.reason


def folded_lines(finding: Finding) -> list[str]:
    """What was folded into a finding, a line each kind: ``PK102 ... (alone 120 µs a step): gone with the fix``."""
    lines: dict[str, int] = {}
    for item in finding.folded:
        alone = (
            text.ns(item.saving_ns_per_step) + " a step" if item.saving_ns_per_step >= 0 else text.ns(item.saving_ns)
        )
        price = f" (alone {alone})" if item.saving_ns >= 0 and item.code != finding.code else ""
        line = f"{item.code} {item.title}{price}: {item.why}"
        lines[line] = lines.get(line, 0) + 1
    return [line + (f" (×{count})" if count > 1 else "") for line, count in lines.items()]


def _price(finding: Finding) -> str:
    """What a fix saves: a step's part with the step's share, the whole without one; nothing where it is 0."""
    if finding.saving_ns <= 0:
        return ""
    share = f" ({text.percent(finding.share)} of {finding.share_of})" if finding.share is not None else ""
    if finding.saving_ns_per_step >= 0:
        return f", saves up to {text.ns(finding.saving_ns_per_step)} a step{share}, {text.ns(finding.saving_ns)} in all"
    return f", saves up to {text.ns(finding.saving_ns)}{share}"


def _by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """What shares a reason, so that it is said once."""
    out: dict[str, list[str]] = {}
    for what, reason in reasons.items():
        out.setdefault(reason, []).append(what)
    return out


def _device_lines(summary: Mapping[str, Any]) -> list[str]:
    if not summary["devices"]:
        return ["GPU busy and idle: n/a (no GPU rows)", ""]
    window = summary["window"]
    keys = ("busy_ns", "kernel_ns", "copy_ns", "graph_ns", "idle_ns", "kernel_sum_over_streams_ns")
    rows = [
        [device["name"], text.percent(device["busy_share"]), *(text.ns(device[key]) for key in keys)]
        for device in summary["devices"]
    ]
    head = ["GPU", "busy share", "busy", "kernels", "copies", "graphs", "idle", "kernel sum over streams"]
    edges = f"{window['start_ns']:,} to {window['end_ns']:,} ns"
    lines = [*columns(head, rows), f"of {text.ns(summary['window_ns'])}: {window['of']}, {edges}"]
    return [*lines, *_imbalance_lines(summary), ""]


def _imbalance_lines(summary: Mapping[str, Any]) -> list[str]:
    """With several devices their mean, and which of them did much less than that."""
    mean, devices = summary["busy_share_mean"], summary["devices"]
    if len(devices) < 2 or mean is None:
        return []
    idle = [device for device in devices if device["busy_share"] < _UNEVEN * mean]
    names = ", ".join(f"{device['name']} was busy {text.percent(device['busy_share'])}" for device in idle)
    lines = [f"mean busy share of {len(devices)} GPUs: {text.percent(mean)}"]
    return [*lines, f"imbalance: {names} of the window"] if idle else lines


_TOKENS_NEEDED = {"ttft": "with a token", "tpot": "of two tokens or more"}


def _step_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    if summary["steps"]:
        rows = [
            [
                kind,
                f"{step['count']:,}",
                str(step["warm_up"]),
                *(text.ns(step[f"{what}_p{p}_ns"]) for what in ("period", "host") for p in (50, 90, 99)),
            ]
            for kind, step in summary["steps"].items()
        ]
        head = ["steps", "count", "warm-up", "period p50", "p90", "p99", "host p50", "p90", "p99"]
        lines += [*columns(head, rows), *summary["step_remarks"]]
    for name in ("ttft", "tpot"):
        if spread := summary[f"{name}_ns"]:
            values = ", ".join(f"p{p} {text.ns(spread[f'p{p}'])}" for p in (50, 90, 99))
            lines.append(f"{name.upper()} {values} (n={spread['n']})")
        elif summary["requests"]:
            lines.append(f"{name.upper()} n/a: no complete request {_TOKENS_NEEDED[name]}")
    lines += summary["request_remarks"]
    return [*lines, ""] if lines else []


def _stage_lines(result: CheckResult) -> list[str]:
    stages = result.summary["stages"]
    if not stages:
        return []
    rows = [
        [s["stage"], f"{s['count']:,}", str(s["unclosed"]), *(text.ns(s[f"host_p{p}_ns"]) for p in (50, 90, 99)),
         *(text.ns(s[f"gpu_p{p}_ns"]) for p in (50, 90, 99)), text.ns(s["gpu_busy_ns"]), text.ns(s["gpu_self_ns"])]
        for s in stages
    ]  # fmt: skip
    head = ["stages", "count", "unclosed", "host p50", "p90", "p99", "GPU p50", "p90", "p99", "GPU in all", "GPU self"]
    return [*columns(head, rows), ""]


def _range_lines(summary: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            f"{r['domain']}/{r['name']}" if r["domain"] else r["name"],
            f"{r['count']:,}",
            str(r["unclosed"]),
            text.ns(r["total_ns"]),
        ]
        for r in summary["ranges"][:10]
    ]
    lines = columns(["ranges, most time first", "count", "unclosed", "sum"], rows) if rows else []
    elsewhere = [r for r in summary["ranges"][:10] if not r["kernels"] and r["kernels_of_other_threads"]]
    lines += [
        f"{r['name']}: 0 kernels launched by its own thread; "
        f"{text.count(r['kernels_of_other_threads'], 'kernel')} launched during it by "
        f"{'thread' if len(r['other_threads']) == 1 else 'threads'} {', '.join(map(str, r['other_threads'][:8]))}"
        for r in elsewhere[:3]
    ]
    lines += [""] if rows else []
    unclosed = summary["counts"]["unclosed_spans"]
    return [*lines, text.count(unclosed, "unclosed range"), ""] if unclosed else lines


def _copy_lines(summary: Mapping[str, Any]) -> list[str]:
    rows = [
        [f"{c['kind']} {c['src']} -> {c['dst']}" if c["kind"] != "memset" else f"memset {c['dst']}", f"{c['count']:,}",
         text.size(c["bytes"]), text.ns(c["sum_ns"]), text.rate(c["bytes"], c["sum_ns"])]
        for c in summary["copies"]
    ]  # fmt: skip
    peers = [
        f"from {_gpu(c['src_number'])} to {_gpu(c['dst_number'])}: {text.count(c['count'], 'copy', 'copies')}, "
        f"{text.size(c['bytes'])} in {text.ns(c['sum_ns'])}, {text.rate(c['bytes'], c['sum_ns'])}"
        for c in summary["peer_copies"]
    ]
    return [*columns(["copies", "count", "bytes", "sum", "rate"], rows), *peers, ""] if rows else []


def _gpu(number: int | None) -> str:
    return f"GPU {number}" if number is not None else "an unknown GPU"


def _call_lines(summary: Mapping[str, Any]) -> list[str]:
    rows = [[c["name"], c["kind"], f"{c['count']:,}", text.ns(c["total_ns"])] for c in summary["calls"][:10]]
    lines = columns(["CUDA calls, most time first", "kind", "count", "sum"], rows, left=2) if rows else []
    launches = summary["launches"]
    if launches["graph_launches"]:
        each = launches["graph_host_ns_per_kernel"]
        lines.append(
            f"{text.count(launches['graph_launches'], 'graph launch', 'graph launches')}, "
            f"{text.count(launches['graph_kernels'], 'kernel')} by them, "
            f"{text.ns(launches['graph_host_ns'])} on the host"
            + (f" ({text.ns(round(each))} a kernel)" if each is not None else "")
        )
    if wait := launches["queue_wait_ns"]:
        lines.append(f"queue wait (call's end to kernel start): p50 {text.ns(wait['p50'])}, p99 {text.ns(wait['p99'])}")
    return [*lines, ""] if lines else []


def _communication_lines(summary: Mapping[str, Any], everything: bool) -> list[str]:
    """How long kernels of collectives ran, beside what, and their calls on the host apart from that."""
    found = summary["communication"]
    if found is None:
        return []
    if not found["kernels"]:
        return ["no communication kernels: overlap n/a", ""] if everything else []
    parts = {"NCCL": found["nccl_ns"], "custom all-reduce": found["custom_ns"]}
    sums = " and ".join(f"{what} {text.ns(value)}" for what, value in parts.items() if value) or text.ns(0)
    beside = f"other kernels beside {text.percent(found['overlap_share'])} of their {text.ns(found['busy_ns'])}"
    lines = [f"{text.count(found['kernels'], 'communication kernel')}: {sums}, {beside}"]
    if found["host_calls"]:
        calls = text.count(found["host_calls"], "range")
        lines.append(f"their calls on the host: {calls}, {text.ns(found['host_ns'])}, no part of that")
    return [*lines, ""]


def _collective_lines(summary: Mapping[str, Any]) -> list[str]:
    """Who came last to the collectives of several ranks, and how long the others waited."""
    found = summary["collectives"]
    if found is None:
        return []
    lines = [f"collectives: {reason}" for reason in found["not_matched"]]
    if found["matched"]:
        late = [f"{r['rank']} came last {r['came_last']:,} of {r['of']:,} times" for r in found["ranks"][:3]]
        times = [
            f"{what} {text.ns(found[key])}"
            for what, key in (("wait for the last one", "wait_p50_ns"), ("transfer", "transfer_p50_ns"))
            if found[key] is not None
        ]
        waits = [
            f"GPU {w['number']} waited {text.ns(w['wait_ns'])} in them, {text.percent(w['share_of_busy'])} of its busy"
            " time"
            for w in found["waits"]
            if w["wait_ns"] and w["share_of_busy"] is not None
        ]
        said = "; ".join((*late, *waits, *([f"{', '.join(times)} (medians)"] if times else [])))
        lines.append(f"{text.count(found['matched'], 'collective')} of several ranks: {said or 'all came together'}")
    return [*lines, ""]


def _idle_lines(summary: Mapping[str, Any]) -> list[str]:
    idle = summary["idle_by_cause"]
    if not idle or not any(idle.values()):
        return []
    total = sum(idle.values())
    ranked = sorted(((value, cause) for cause, value in idle.items() if value), reverse=True)
    rows = [[cause, text.ns(value), text.percent(value / total)] for value, cause in ranked]
    return [*columns(["GPU idle by what the host did", "sum", "of idle"], rows), ""]
