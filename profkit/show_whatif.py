"""The result of ``whatif`` as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from profkit import text
from profkit.show import columns, document
from profkit.whatif import Priced, WhatIf


def whatif_document(result: WhatIf) -> dict[str, Any]:
    """``whatif --json``: absent is null."""
    return document(
        "whatif",
        {
            "trace": result.trace,
            "replay": {
                "holds": not result.why_not,
                "why_not": result.why_not or None,
                "error_ns": result.trust.error_ns,
                "error_share": result.trust.share,
                "replayed_window_ns": result.trust.window_ns,
                "sampled": result.sampled or None,
            },
            "fixes": [_fix_document(fix) for fix in result.fixes],
            "step": {"kind": result.step_kind, "median_ns": result.step_ns} if result.step_ns else None,
            "not_found": dict(result.not_found),
            "recorded": result.recorded,
            "predicted": result.predicted,
        },
    )


def _fix_document(fix: Priced) -> dict[str, Any]:
    out = asdict(fix)
    if not out.pop("known"):
        out["cost_ns"] = out["saving_ns"] = None
    return out


def whatif_text(result: WhatIf) -> str:
    """For a person: the model's trust, each fix by itself, then recorded against predicted."""
    simulated = "SIMULATED: " if result.trace["simulated"] else ""
    if result.why_not:
        lines = [f"{simulated}Nothing is predicted: {result.why_not}"]
    else:
        of = f" of {result.sampled}" if result.sampled else ""
        explained = text.percent(1 - result.trust.share)
        window = text.ns(result.trust.window_ns)
        lines = [f"{simulated}The replay explains {explained} of the recorded window{of} ({window})"]
    lines += ["", *_fix_lines(result)]
    lines += (
        [f"{name}: {reason}" for name, reason in result.not_found.items()] if result.predicted or result.why_not else []
    )
    if result.predicted is not None:
        lines += ["", *_compared(result.recorded, result.predicted)]
    assumed = list(dict.fromkeys(sentence for fix in result.fixes for sentence in fix.assumed))
    if assumed:
        lines += ["", "assumed:", *(f"  {sentence}" for sentence in assumed)]
    return "\n".join(text.printable(line) for line in lines)


def _fix_lines(result: WhatIf) -> list[str]:
    if not result.fixes:
        return ["no fix concerns anything in this trace"]
    rows = [
        [
            fix.fix,
            fix.code,
            f"{fix.count:,}",
            _signed(fix.cost_ns, fix.known),
            _signed(fix.saving_ns, fix.known),
            _signed(fix.saving_ns_per_step, fix.known),
            _of_step(fix, result.step_ns),
        ]
        for fix in result.fixes
    ]
    head = ["each fix by itself", "rule", "concerns", "costs", "saves up to", "a step", "of it"]
    step = [f"a step: {text.ns(result.step_ns)}, the median of {result.step_kind} steps"] if result.step_ns else []
    return [*columns(head, rows, left=2), *step]


def _of_step(fix: Priced, step_ns: int) -> str:
    if fix.saving_ns_per_step is None or not step_ns:
        return "n/a"
    return (
        f"-{text.percent(-fix.saving_ns_per_step / step_ns)}"
        if fix.saving_ns_per_step < 0
        else text.percent(fix.saving_ns_per_step / step_ns)
    )


def _signed(value: int | None, known: bool) -> str:
    if not known or value is None:
        return "not known" if not known else "n/a"
    return f"-{text.ns(-value)}" if value < 0 else text.ns(value)


def _compared(recorded: Mapping[str, Any], predicted: Mapping[str, Any]) -> list[str]:
    rows = [["window", *_pair(recorded["window_ns"], predicted["window_ns"])]]
    for kind, step in recorded["steps"].items():
        after = predicted["steps"].get(kind, {}).get("period_p50_ns")
        rows.append([f"{kind} step, median", *_pair(step["period_p50_ns"], after)])
    for key, word in (("ttft_ns", "TTFT, median"), ("tpot_ns", "TPOT, median")):
        if recorded[key]:
            rows.append([word, *_pair(recorded[key]["p50"], (predicted[key] or {}).get("p50"))])
    before, after = _idle(recorded), _idle(predicted)
    rows.append(["GPU idle, all devices", *_pair(sum(before.values()), sum(after.values()))])
    for cause in sorted({*before, *after}, key=lambda c: -max(before.get(c, 0), after.get(c, 0))):
        pair = before.get(cause, 0), after.get(cause, 0)
        rows += [[f"  {cause}", *_pair(*pair)]] if any(pair) else []
    return columns(["all fixes together", "recorded", "predicted", "change"], rows)


def _idle(numbers: Mapping[str, Any]) -> dict[str, int]:
    return dict(numbers["idle_by_cause"] or {})


def _pair(before: int | None, after: int | None) -> list[str]:
    if before is None or after is None:
        return [text.ns(before) if before is not None else "n/a", text.ns(after) if after is not None else "n/a", ""]
    change = f"{100 * (after - before) / before:+.1f} %" if before else ""
    return [text.ns(before), text.ns(after), change]
