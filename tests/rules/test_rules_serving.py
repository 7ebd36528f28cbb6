"""PK6xx collectives and PK7xx serving and memory, by hand."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.judge import judged
from profkit.model import Finding, Trace, Window
from profkit.rules import all_rules
from profkit.testing import Row, build_trace, call, collective, graph, kernel, span

RULES = all_rules()
MS = 1_000_000


def found(code: str, trace: Trace, window: Window | None = None) -> list[Finding]:
    analysis = Analysis(trace, window)
    assert RULES[code].unmet(analysis) == ""
    return [item.finding for item in judged(RULES[code], analysis)]


def unmet(code: str, trace: Trace) -> str:
    return RULES[code].unmet(Analysis(trace))


def test_exposed_communication_is_what_no_other_kernel_covers() -> None:
    rows = [kernel(0, 600), *collective(500, 400), kernel(950, 50), kernel(1_000, 9_000)]
    (finding,) = found("PK601", build_trace(*rows))
    assert finding.facts["exposed_ns"] == 300
    assert finding.facts["overlap_share"] == 0.25
    assert finding.facts["exposed_wait_ns"] == -1
    assert (finding.severity, finding.saving_ns) == ("info", -1)
    assert "3.0 % of 10.0 µs" in finding.message


def test_the_wait_for_a_late_rank_is_no_transfer() -> None:
    rows = []
    for i in range(10):
        t = i * MS
        for rank in (0, 1):
            start = t + (500_000 if rank else 300_000)
            rows += [kernel(t, 300_000 + 200_000 * rank, pid=rank, device=rank)]
            rows += collective(start, t + 900_000 - start, pid=rank, device=rank)
    first, late = found("PK601", build_trace(*rows))
    assert (first.facts["exposed_wait_ns"], first.facts["exposed_transfer_ns"]) == (10 * 200_000, 10 * 400_000)
    assert (late.facts["exposed_wait_ns"], late.facts["exposed_transfer_ns"]) == (0, 10 * 400_000)
    # 4 ms of a window of 9.9 ms.
    assert {first.severity, late.severity} == {"warning"}
    assert late.cost_ns == 4 * MS


def test_communication_that_has_nothing_to_hide_behind_is_not_judged() -> None:
    assert "no collective kernels" in unmet("PK601", build_trace(kernel(0, 100)))
    assert "no kernels but those of collectives" in unmet("PK601", build_trace(*collective(0, 100)))
    assert "one piece" in unmet("PK601", build_trace(*collective(0, 100), graph(200, 100)))


def test_uneven_work_names_the_odd_one() -> None:
    (finding,) = found("PK603", RULES["PK603"].fires())
    assert finding.message.startswith("GPU 3 has less work of its own")
    assert (finding.facts["most_ns"], finding.facts["least_ns"]) == (90_010_000, 20_010_000)
    assert finding.facts["mean_ns"] == 65_010_000
    assert (finding.severity, finding.saving_ns) == ("info", -1)


def test_uneven_work_by_step() -> None:
    rows: list[Row] = []
    for step in range(6):
        t = step * MS
        for rank, length in enumerate((300_000, 300_000, 600_000, 600_000)):
            rows += launched(t, length, rank)
    (finding,) = found("PK603", build_trace(*rows, ranks={100 + rank: rank for rank in range(4)}))
    assert (finding.facts["most_ns"], finding.facts["mean_ns"]) == (600_000, 450_000)
    assert "the median decode step" in finding.message


def launched(t: int, length: int, rank: int) -> list[Row]:
    """A decode step of a rank."""
    pid, number = 100 + rank, t + rank
    return [
        span("decode", t, 990_000, pid=pid, tid=pid),
        call(t + 10, 5_000, correlation=number, pid=pid, tid=pid),
        kernel(t + 10_000, length, correlation=number, pid=pid, device=rank),
    ]


def test_gpus_with_different_programs_are_not_compared() -> None:
    rows = [kernel(0, 90_000, "gemm"), kernel(0, 20_000, "other", device=1), kernel(99_000, 1_000)]
    assert "different kernels" in unmet("PK603", build_trace(*rows))
    assert "only one GPU" in unmet("PK603", build_trace(*rows[:1]))


def test_small_all_reduces_are_judged_by_size_ranks_and_kernel() -> None:
    ring, tree = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL"

    def trace(name: str, size: int, world: int) -> Trace:
        rows = [row for i in range(10) for row in collective(i * 1_000, 500, name, size=size)]
        others = [kernel(0, 10, pid=100 + rank) for rank in range(world)]
        return build_trace(*rows, *others, ranks={100 + rank: rank for rank in range(world)})

    def shares(name: str, size: int, world: int) -> int:
        return len(found("PK604", trace(name, size, world)))

    assert shares(ring, 16_384, 8) == 1
    assert shares(ring, 300_000, 8) == 0
    assert shares(ring, 300_000, 4) == 1
    assert shares(ring, 16_384, 16) == 0
    assert shares(tree, 16_384, 8) == 0
    assert "known size" in unmet("PK604", trace(ring, -1, 0))
    assert "how many ranks" in unmet("PK604", trace(ring, 16_384, 0))
