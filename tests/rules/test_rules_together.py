"""What rules say must not depend on rows that have nothing to do with it: other engines, ranks, start-up, windows."""

from typing import Any

import numpy as np
import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.replay import price
from profkit.analysis.window import parse_window
from profkit.model import CheckResult, Finding
from profkit.testing import Row, build_trace, call, copy, kernel, launch, span

Rows = list[Row | list[Row]]


def _every(result: CheckResult) -> dict[str, Finding]:
    return {finding.code: finding for finding in (*result.findings, *result.others)}


def _engine(steps: int, *, fault: str = "", pid: int = 100, device: int = 0, host: int = 0) -> Rows:
    """Decode steps of 400 us of GPU work behind a call of 0.5 ms, if there is one, and ``host`` ns of host work."""
    rows: Rows = []
    t, where = 0, {"pid": pid, "tid": pid}
    for _ in range(steps):
        begin = t
        if fault:
            rows.append(call(t + 10_000, 500_000, fault, **where))
            t += 510_000
        t += host
        for i in range(4):
            rows.append(launch(f"k{i}", at=t, start=t + 9_000 + i * 101_000, dur=100_000, device=device, **where))
            t += 8_000
        t = max(t, begin + 420_000)
        rows.append(span("decode", begin, t - begin, payload=1, **where))
    return rows


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("cudaMalloc", "PK210"),
        ("cuModuleLoadData", "PK206"),
        ("cudaHostAlloc", "PK307"),
        ("cudaGraphInstantiate", "PK203"),
    ],
)
@pytest.mark.parametrize("steps", [40, 200], ids=["ends-earlier", "ends-later"])
def test_a_healthy_engine_beside_it_changes_no_price(fault: str, code: str, steps: int) -> None:
    alone = _every(profkit.check(build_trace(*_engine(60, fault=fault))))[code]
    beside = _engine(steps, pid=200, device=1)
    both = _every(profkit.check(build_trace(*_engine(60, fault=fault), *beside)))[code]
    assert alone.severity == "critical"
    assert (both.saving_ns, both.saving_ns_per_step, both.share) == (
        alone.saving_ns,
        alone.saving_ns_per_step,
        alone.share,
    )


def test_equal_ranks_are_judged_as_one() -> None:
    def codes(ranks: int) -> list[str]:
        rows = [_engine(30, pid=100 + r, device=r, host=300_000) for r in range(ranks)]
        return [
            finding.code for finding in profkit.check(build_trace(*(row for part in rows for row in part))).findings
        ]

    assert codes(1) == codes(2) == codes(8)


def test_instantiating_graphs_is_no_loading_of_kernels() -> None:
    found = _every(profkit.check(build_trace(*_engine(40, fault="cudaGraphInstantiate"))))
    assert "PK203" in found
    assert "PK206" not in found


def test_a_pause_in_every_step_is_no_stall_now_and_then() -> None:
    found = profkit.check(build_trace(*_engine(40, host=800_000)))
    assert found.findings[0].code == "PK101"
    assert "PK212" not in _every(found)


def test_loading_before_the_first_step_is_no_fault_of_each_step() -> None:
    """2 s of pageable uploads, then steps that keep the GPU busy."""
    rows: Rows = []
    for i in range(20):
        rows.append(call(i * 100_000_000, 99_000_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(i * 100_000_000 + 10_000, 98_000_000, "h2d", 10**9, "pageable", "device", correlation=i + 1))
    t, free = 2_000_000_000, 2_000_100_000
    for step in range(40):
        rows.append(span("decode", t + step * 50_000, 45_000, payload=1))
        for i in range(4):
            rows.append(launch("k", at=t + step * 50_000 + i * 9_000, start=free, dur=100_000))
            free += 100_000
    result = profkit.check(build_trace(*rows))
    assert [finding.code for finding in result.findings] == ["PK507"]
    assert _every(result)["PK301"].severity == "info"
    assert _every(result)["PK301"].saving_ns_per_step == 0


def test_copies_without_rows_are_not_judged() -> None:
    rows = _engine(10)
    rows += [call(i * 400_000, 5_000, "cudaMemcpyAsync", correlation=10**9 + i) for i in range(10)]
    result = profkit.check(build_trace(*rows))
    not_run = {item.code: item.reason for item in result.not_run}
    for code in ("PK301", "PK302", "PK305", "PK306", "PK309"):
        assert "no rows in this capture" in not_run[code]
        assert code not in result.clean


def test_a_tokenize_range_without_a_length() -> None:
    result = profkit.check(build_trace(*_engine(10, host=300_000), span("tokenize", 5, 0)))
    assert "PK208" in result.clean


def test_a_sample_without_steps_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    names = np.random.default_rng(0).integers(0, 50, 4_000).tolist()
    rows = [launch(f"k{name}", at=i * 10_000, start=i * 10_000 + 8_000, dur=4_000) for i, name in enumerate(names)]
    whole = _every(profkit.check(build_trace(*rows)))["PK201"]
    monkeypatch.setattr(price, "MOST_OPS", 1_000)
    part = _every(profkit.check(build_trace(*rows)))["PK201"]
    assert part.facts["replayed"] == "1,000 device operations from the middle of the capture"
    assert part.saving_ns == pytest.approx(whole.saving_ns, rel=0.01)
    assert part.share == pytest.approx(whole.share, rel=0.01)


def test_each_step_has_the_same_price_in_a_window_of_its_own() -> None:
    """The host launches ten steps ahead: what is selected was submitted long before."""
    rows: Rows = []
    free = 2_000_000
    for step in range(30):
        at = step * 60_000
        rows.append(span("decode", at, 55_000, payload=1))
        for name in ("gemm", "dequantize_block", "gemm"):
            rows.append(launch(name, at=at, start=free, dur=100_000))
            at += 8_000
            free += 101_000
    trace = build_trace(*rows)
    prices: list[Any] = []
    for k in (5, 12, 20):
        result = profkit.check(trace, parse_window(trace, f"step:{k}"))
        prices.append(_every(result)["PK406"].saving_ns)
    assert prices == [101_000] * 3


def test_waits_of_one_engine_are_no_fault_of_another() -> None:
    rows: Rows = []
    for step in range(20):
        t = step * 1_000_000
        rows += [span("decode", t, 990_000, payload=1), launch("k", at=t, start=t + 9_000, dur=500_000)]
        rows.append(call(t + 10_000, 510_000, "cudaStreamSynchronize"))
    alone = _every(profkit.check(build_trace(*rows)))["PK303"]
    both = _every(profkit.check(build_trace(*rows, *_engine(38, pid=300, device=1))))["PK303"]
    assert both.facts["steps_with_wait"] == alone.facts["steps_with_wait"] == 20
    assert both.facts["wait_ns"] == alone.facts["wait_ns"]


def test_nothing_selected_is_nothing_said() -> None:
    from profkit.api import check_analysis

    analysis = Analysis(build_trace(kernel(0, 10), kernel(20, 10)))
    assert "none is left" in check_analysis(analysis, lambda code: False).headline
    assert "none could judge this capture" in check_analysis(analysis, lambda code: code == "PK603").headline
