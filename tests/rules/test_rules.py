"""Each rule's own examples: it fires on the one and is quiet on the other; prices and evidence are whole."""

import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.judge import judged, run_rules
from profkit.model import SEVERITIES, Finding, Trace, Window
from profkit.rules import all_rules
from profkit.rules._price import severity
from profkit.samples import launch_bound_decode
from profkit.testing import build_trace, call, copy, graph, kernel, launch, span
from profkit.text import ratio

RULES = all_rules()


def found(trace: Trace) -> tuple[Finding, ...]:
    return run_rules(Analysis(trace)).every


@pytest.mark.parametrize("code", RULES)
def test_rule_fires_on_its_example(code: str) -> None:
    trace = RULES[code].fires()
    assert not RULES[code].unmet(Analysis(trace))
    found = [item.finding for item in judged(RULES[code], Analysis(trace))]
    assert found
    for finding in found:
        assert finding.key.startswith(f"{code}:")
        assert finding.key.count(":") == 3
        assert finding.severity in SEVERITIES
        assert finding.saving_ns <= finding.cost_ns
        assert finding.message
        assert finding.cause
        assert finding.advice
        for item in finding.evidence:
            assert item.count > 0
            assert max(item.ids) < trace.rows(item.table)
            assert item.window is None or item.window.dur_ns > 0


@pytest.mark.parametrize("code", RULES)
def test_rule_is_quiet_on_its_counterexample(code: str) -> None:
    verdict = run_rules(Analysis(RULES[code].quiet()))
    assert code not in {f.code for f in verdict.every}
    assert code in verdict.clean, [item for item in verdict.not_run if item.code == code]


def test_every_rule_ends_in_exactly_one_list() -> None:
    for rule in RULES.values():
        verdict = run_rules(Analysis(rule.fires()))
        folded = {item.code for f in verdict.every for item in f.folded}
        found = {f.code for f in verdict.every} | folded
        lists = [found, {item.code for item in verdict.not_run}, set(verdict.clean)]
        assert sorted(code for codes in lists for code in codes) == sorted(RULES)


def test_severity_borders() -> None:
    assert [severity(share) for share in (None, 0.0199, 0.02, 0.0999, 0.1)] == [
        "info",
        "info",
        "warning",
        "warning",
        "critical",
    ]


def test_idle_gaps_add_up_by_cause() -> None:
    finding = judged(RULES["PK101"], Analysis(RULES["PK101"].fires()))[0].finding
    # Nine gaps from 1,010,000 after a step's start to 10,000 after the next one's: 500,000 each.
    assert finding.facts["gaps"] == 9
    assert finding.facts["idle_ns"] == 9 * 500_000
    assert finding.facts["longest_ns"] == 500_000
    assert finding.facts["stage_sample_ns"] == 9 * 480_000
    # 10,000 of Python between sampling and the launch call, 5,000 in the call, 5,000 until the kernel starts.
    assert finding.facts["python_ns"] == 9 * 10_000
    assert finding.facts["launch_call_ns"] == 9 * 5_000
    assert finding.facts["launch_latency_ns"] == 9 * 5_000
    assert finding.cost_ns == finding.saving_ns == 9 * 490_000


def test_launch_bound_price_is_the_window_less_that_of_one_launch_a_step() -> None:
    finding = next(f for f in found(RULES["PK201"].fires()) if f.code == "PK201")
    # Of 2,574,000 ns remain 250 kernels of 4,000: in a graph 850 apart (85 % of 1,000), 1,000 from graph to graph. The
    # host is far ahead with a launch a step of 2,550.
    assert finding.cost_ns == 2_574_000 - (250 * 4_000 + 5 * 49 * 850 + 4 * 1_000)
    assert finding.saving_ns == finding.cost_ns
    assert finding.saving_ns_per_step == 520_000 - (50 * 4_000 + 49 * 850 + 1_000)
    assert finding.facts["waited_ns"] == 5 * 49 * 6_000 + 4 * 26_000
    assert finding.facts["launches_per_step"] == 50
    assert finding.facts["kernel_p50_ns"] == 4_000
    assert finding.facts["launch_interval_p50_ns"] == 10_000


def test_pageable_price_uses_the_pinned_rate() -> None:
    finding = next(f for f in found(RULES["PK301"].fires()) if f.code == "PK301")
    ideal = 1_573_000 * 10**9 // 24_800_000_000
    # The host's own work stays: 850,000 ns before each of two copies. A copy begins 5,000 ns into its call; 4,000 of
    # that is taken to lie between a call and its work, so that 1,000 remain for the call of a pinned copy.
    window = 2 * 1_000_000 + 139_392
    assert finding.cost_ns == window - 2 * 850_000
    assert finding.saving_ns == window - (2 * (850_000 + 1_000) + ideal)
    assert finding.facts["blocking_calls"] == 3
    assert finding.facts["pinned_rate_source"]


def test_sync_price_is_the_window_less_that_of_a_gpu_that_always_has_work() -> None:
    finding = next(f for f in found(RULES["PK303"].fires()) if f.code == "PK303")
    # Each wait lasts 710,000, the kernel ends 20,000 before it: without waits 5 kernels of 700,000 remain, 1,000 apart.
    assert finding.facts["wait_ns"] == 5 * 710_000
    assert finding.facts["gpu_busy_meanwhile_ns"] == 5 * 690_000
    assert finding.facts["recoverable_ns"] == 5 * 20_000
    assert finding.cost_ns == finding.saving_ns == 4_700_000 - (5 * 700_000 + 4 * 1_000)


def test_waits_outside_of_steps_are_counted_apart() -> None:
    rows = []
    for i in range(64):
        t = i * 1_000_000
        rows += launch("gemm", at=t + 10, start=t + 10_000, dur=900_000)
        rows += [call(t + 920_000 + k * 10_000, 9_000, "cudaStreamSynchronize") for k in range(3)]
        rows += [call(t + 950_000, 9_000, "cudaStreamSynchronize")] if i < 16 else []
        rows.append(span("decode", t, 990_000, payload=1))
    rows += [call(65_000_000 + k * 10_000, 5_000, "cudaStreamSynchronize") for k in range(2)]
    finding = next(f for f in found(build_trace(*rows)) if f.code == "PK303")
    assert finding.facts["syncs"] == 208
    assert finding.facts["waits_outside_steps"] == 2
    assert "3.25 a step" in finding.message
    assert ratio(208, 64) == "3.25"


def test_graph_rows_are_busy_and_their_kernels_not_visible() -> None:
    rows = [graph(i * 10_000_000, 9_000_000) for i in range(10)]
    rows += [kernel(i * 10_000_000 + 9_500_000, 10_000) for i in range(6)]
    result = profkit.check(build_trace(*rows), Window(0, 100_000_000))
    finding = next(f for f in (*result.findings, *result.others) if f.code == "PK501")
    assert finding.facts["graph_ns"] == 90_000_000
    assert finding.facts["visible_kernels"] == 6
    assert "Kernels inside CUDA graphs were not recorded" in result.headline
    assert result.summary["devices"][0]["busy_ns"] == 90_060_000


def test_calls_of_some_processes_without_rows_are_named() -> None:
    rows = [launch("gemm", at=i * 100, start=i * 100 + 60, dur=30, call_dur=20, pid=1, tid=1) for i in range(5)]
    rows += [call(i * 100, 20, correlation=i, pid=pid, tid=pid) for pid in range(2, 9) for i in range(5)]
    result = profkit.check(build_trace(*rows))
    finding = next(f for f in result.findings if f.code == "PK502")
    assert finding.facts["processes"] == 7
    assert finding.facts["processes_with_calls"] == 8
    assert "7 of 8 processes" in finding.message


def test_a_pageable_read_back_in_every_step_is_one_finding() -> None:
    result = profkit.check(launch_bound_decode())
    assert next(f.code for f in result.findings) == "PK201"
    assert "launch-bound" in result.headline
    assert result.headline.startswith("SIMULATED: ")
    finding = next(f for f in result.findings if f.code == "PK303")
    assert finding.facts["pageable_read_backs"] == 20
    assert "pageable read-back" in finding.message
    assert not [f for f in result.findings if f.code == "PK301"]


def test_unknown_memory_kinds_are_not_judged() -> None:
    rows = [call(0, 10_000, "hipMemcpyAsync", correlation=1), copy(1_000, 5_000, "h2d", 1_000_000, correlation=1)]
    result = profkit.check(build_trace(*rows))
    assert "PK301" in {item.code for item in result.not_run}
    assert "PK301" not in {f.code for f in result.findings}


def test_without_gpu_rows_nothing_is_clean() -> None:
    result = profkit.check(build_trace(span("decode", 0, 1_000), missing={"kernels": "not traced"}))
    assert result.clean == ()
    assert {item.code for item in result.not_run} == set(RULES)
    assert result.headline.startswith("No GPU kernels in this capture (not traced)")
