"""The one sentence: what bounds a step, its price and its fix; healthy where that is known."""

import profkit
from profkit.model import Finding
from profkit.rules import all_rules
from profkit.testing import Row, build_trace, call, graph, launch, span


def _busy_steps(gap: int = 0, calls: bool = True) -> list[Row | list[Row]]:
    """20 decode steps of ten kernels of 100 us, launched far ahead; ``gap`` ns of the host's own work a step."""
    rows: list[Row | list[Row]] = []
    free = 100_000
    for step in range(20):
        at = step * 100_000
        rows.append(span("decode", at, 90_000, payload=1))
        for i in range(10):
            kernels = launch("gemm", at=at + i * 8_000, start=free, dur=100_000)
            rows.append(kernels if calls else kernels[1:])
            free += 100_000 + (gap if i == 9 else 0)
    return rows


def test_a_gpu_that_always_has_work_is_healthy() -> None:
    result = profkit.check(build_trace(*_busy_steps()))
    assert result.findings == ()
    assert result.headline.startswith(
        "Healthy: nothing found that would give back 2 % of a step; the GPU was busy 100.0 %"
    )
    assert "a decode step takes 1.00 ms (median of 19)" in result.headline


def test_without_calls_nothing_is_called_healthy() -> None:
    result = profkit.check(build_trace(*_busy_steps(calls=False), missing={"calls": "not traced"}))
    assert "Healthy" not in result.headline
    assert "rules could not judge this capture" in result.headline


def test_few_rows_and_much_idle_time_are_not_healthy() -> None:
    assert (
        "Healthy"
        not in profkit.check(build_trace(*(launch("k", at=i, start=10 + i, dur=1) for i in range(9)))).headline
    )
    idle = profkit.check(build_trace(*_busy_steps(gap=600_000)))
    assert "Healthy" not in idle.headline


def test_hidden_kernels_are_not_healthy() -> None:
    rows = [
        [
            call(i * 1_000_000, 5_000, "cudaGraphLaunch", correlation=i + 1),
            graph(i * 1_000_000 + 9_000, 990_000, correlation=i + 1),
        ]
        for i in range(200)
    ]
    headline = profkit.check(build_trace(*rows)).headline
    assert "Healthy" not in headline
    assert headline.count("Kernels inside CUDA graphs were not recorded") == 1


def test_the_worst_finding_is_one_sentence_with_price_and_fix() -> None:
    result = profkit.check(all_rules()["PK201"].fires())
    worst: Finding = result.findings[0]
    assert result.headline == (
        f"Decode is launch-bound: {worst.cause}; up to 277 µs a step (53.3 % of the median of 4 decode steps) can be "
        "won: replay the decode step as one CUDA graph (or torch.compile mode='reduce-overhead'); fuse small kernels."
    )


def test_what_was_measured_leads_where_no_price_is_known() -> None:
    """Seven launches, 200 us apart: too few for a graph, and a GPU that hardly works."""
    rows = [launch("k", at=i * 200_000, start=i * 200_000 + 8_000, dur=4_000) for i in range(7)]
    result = profkit.check(build_trace(*rows))
    first = result.findings[0]
    assert (first.code, first.severity, first.saving_ns) == ("PK201", "warning", -1)
    assert first.facts["price_not_known"]
    assert result.headline == f"{first.message}."
