"""PK6xx collectives and PK7xx serving and memory, by hand."""

from __future__ import annotations

from profkit.analysis.context import Analysis
from profkit.judge import judged
from profkit.model import Finding, Trace, Window
from profkit.rules import all_rules
from profkit.testing import Row, alloc, build_trace, call, collective, counter, graph, kernel, launch, span

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


def engine(*steps: tuple[str, int, int], requests: dict[int, tuple[int, int, int]], marks: bool = True) -> Trace:
    """Steps (kind, ms, payload) one after the other; requests by number: (arrival, first token, end) in ms."""
    rows: list[Row] = []
    t = 0
    for kind, length, payload in steps:
        rows.append(span(kind, t * MS, length * MS - 10_000, payload=payload))
        rows += launch("gemm", at=t * MS, start=t * MS + 10_000, dur=length * MS - 100_000)
        t += length
    for number, (arrival, first, end) in requests.items():
        rows.append(span(f"request#{number}", arrival * MS, (end - arrival) * MS, kind="start_end"))
        rows += [span(f"request#{number} first_token", first * MS, 0, kind="mark")] if marks else []
    return build_trace(*rows)


DECODES = [("decode", 1, 1)] * 10


def test_a_prefill_blocks_who_has_a_first_token() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 20, 4_096), *DECODES]
    (finding,) = found("PK701", engine(*steps, requests={1: (0, 2, 42), 2: (11, 32, 42)}))
    # From the end of the last decode step's work to the end of the prefill's, which are 90 us before those of steps.
    assert finding.facts["stood_still_ns"] == 20 * MS
    assert finding.facts["pauses"] == 1
    assert "as long as 20 decode steps of 1.00 ms" in finding.message
    assert "1 running sequence;" in finding.message
    assert finding.severity == "info"


def test_a_prefill_behind_the_end_of_others_blocks_nobody() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 20, 4_096), *DECODES]
    assert not found("PK701", engine(*steps, requests={1: (0, 2, 12), 2: (11, 32, 42)}))


def test_by_batches_new_sequences_are_not_taken_for_waiting_ones() -> None:
    def trace(after: int) -> Trace:
        rows: list[Row] = []
        names = ["execute_context_0(0)_generation_2(2)"] * 10 + ["execute_context_2(900)_generation_0(0)"]
        names += [f"execute_context_0(0)_generation_{after}({after})"] * 10
        for i, name in enumerate(names):
            t = (i + 20 * (i > 10)) * MS
            length = 20 * MS if i == 10 else MS
            rows.append(span(name, t, length))
            rows += launch("gemm", at=t, start=t + 10_000, dur=length - 100_000)
        return build_trace(*rows)

    assert not found("PK701", trace(2))
    (finding,) = found("PK701", trace(3))
    assert "up to 1 running sequence" in finding.message


def test_without_batches_or_requests_nobody_knows_who_stood_still() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 20, 4_096), *DECODES]
    assert "neither requests nor batches" in unmet("PK701", engine(*steps, requests={}))
    assert "both prefill and decode" in unmet("PK701", engine(*DECODES, requests={}))


def test_a_long_mixed_step_is_a_spike() -> None:
    rows: list[Row] = []
    for i in range(20):
        t = (i + 19 * (i > 10)) * MS
        name = "execute_context_1(900)_generation_2(2)" if i == 10 else "execute_context_0(0)_generation_2(2)"
        length = 20 * MS if i == 10 else MS
        rows += [span(name, t, length), *launch("gemm", at=t, start=t + 10_000, dur=length - 100_000)]
    (finding,) = found("PK701", build_trace(*rows))
    assert (finding.facts["mixed_steps"], finding.facts["mixed_longer_ns"]) == (1, 19 * MS)


def test_requests_that_queue_although_there_is_room() -> None:
    (finding,) = found("PK702", RULES["PK702"].fires())
    assert (finding.facts["requests"], finding.facts["batch_p50"], finding.facts["batch_max"]) == (1, 1, 2)
    # It comes at 12.1 ms, during a step; nine whole ones of 0.99 ms follow before its prefill.
    assert finding.facts["decode_steps"] == 9
    assert finding.facts["decode_ns"] == 9 * 990_000
    assert finding.facts["wait_max_ns"] == 8 * MS + 990_000


def test_a_full_batch_is_a_reason_to_queue() -> None:
    full = [("decode", 1, 4)] * 10
    steps = [("prefill", 2, 64), *full, ("prefill", 2, 64), *full]
    assert not found("PK702", engine(*steps, requests={1: (0, 2, 24), 2: (1, 14, 24)}))


def test_a_prefill_without_a_request_that_waits_is_made_again() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 8, 74), *DECODES]
    (finding,) = found("PK703", engine(*steps, requests={1: (0, 2, 30)}))
    assert (finding.facts["prefills"], finding.facts["of_prefills"], finding.facts["tokens"]) == (1, 2, 74)
    assert finding.cost_ns == finding.saving_ns == 8 * MS
    assert finding.share == 8 * MS / (30 * MS - 100_000)
    assert finding.severity == "critical"


def test_a_prefill_is_not_made_again_where_one_waits_or_none_runs() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 8, 74), *DECODES]
    assert not found("PK703", engine(*steps, requests={1: (0, 2, 30), 2: (5, 20, 30)}))
    assert not found("PK703", engine(*steps, requests={1: (0, 2, 11), 2: (12, 20, 30)}))


def test_prefills_are_not_judged_where_arrivals_are_not_known() -> None:
    steps = [("prefill", 2, 64), *DECODES, ("prefill", 8, 74), *DECODES]
    assert "mark" in unmet("PK703", engine(*steps, requests={1: (0, 2, 30)}, marks=False))
    assert "before the first request" in unmet("PK703", engine(*steps, requests={2: (5, 20, 30)}))
    trace = engine(*steps, requests={1: (0, 2, 30)})
    late = [span("request#9 first_token", 20 * MS, 0, kind="mark"), span("request#1", 0, 30 * MS, kind="start_end")]
    assert "before the capture" in unmet("PK703", build_trace(*late, span("prefill", 0, MS), *launch_of(trace)))


def launch_of(trace: Trace) -> list[Row]:
    """Work and a first token for one prefill."""
    assert trace.rows("kernels")
    return [*launch("gemm", at=0, start=10_000, dur=MS), span("request#1 first_token", 2 * MS, 0, kind="mark")]


def test_ttft_parts_add_up() -> None:
    (finding,) = found("PK704", RULES["PK704"].fires())
    facts = finding.facts
    parts = [facts[f"{part}_ns"] for part in ("queue", "tokenize", "h2d", "prefill", "sample", "other")]
    # The second shortest of four: 42.1 ms.
    assert facts["ttft_ns"] == sum(parts) == 42_100_000
    assert parts == [1_100_000, 40_000_000, 0, 940_000, 60_000, 0]
    assert finding.severity == "warning"
    assert finding.message.startswith("TTFT of the median of 4 requests, request 1: 42.1 ms = ")
    assert "tokenize is more than half of it for 4 of 4 requests" in finding.message


def test_ttft_that_is_mostly_a_queue_behind_others_is_a_note() -> None:
    steps = [("prefill", 10, 64)] * 4
    (finding,) = found("PK704", engine(*steps, requests={i: (0, 10 * (i + 1), 41) for i in range(4)}))
    assert (finding.facts["ttft_ns"], finding.facts["queue_ns"], finding.facts["prefill_ns"]) == (
        20 * MS,
        10 * MS,
        9_990_000,
    )
    assert finding.facts["other_ns"] == 10_000
    assert finding.severity == "info"


def test_a_sample_that_waits_for_the_prefill_is_prefill() -> None:
    rows = [span("request#1", 0, 60 * MS, kind="start_end"), span("request#1 first_token", 50 * MS, 0, kind="mark")]
    rows += [span("prefill", 10 * MS, 39 * MS, payload=64), span("sample", 12 * MS, 36 * MS)]
    rows += launch("gemm", at=11 * MS, start=12 * MS, dur=34 * MS)
    rows += launch("argmax", at=12 * MS + 10, start=46 * MS, dur=1 * MS)
    (finding,) = found("PK704", build_trace(*rows))
    # The prefill's work ends at 46 ms, sampling at 48, the range at 49.
    assert [finding.facts[f"{part}_ns"] for part in ("queue", "prefill", "sample", "other")] == [
        10 * MS, 37 * MS, 2 * MS, 1 * MS,
    ]  # fmt: skip


def memory(*calls: tuple[str, int, int]) -> list[Finding]:
    """18 GB of 19 GB in use; calls (name, start, length in ms)."""
    rows = [kernel(0, 60 * MS), counter(0, "Total Allocated", 18e9), counter(0, "Total Reserved", 19e9)]
    rows += [call(start * MS, length * MS, name) for name, start, length in calls]
    return found("PK705", build_trace(*rows))


def test_allocation_retries_are_frees_beside_a_malloc() -> None:
    (finding,) = memory(("cudaMalloc", 1, 2), ("cudaFree", 4, 3), ("cudaFree", 8, 3), ("cudaMalloc", 12, 1))
    assert (finding.facts["allocation_retries"], finding.facts["retry_ns"]) == (1, 8 * MS)
    (finding,) = memory(("cudaFree", 4, 3), ("cudaMalloc", 8, 1), ("cudaFree", 100, 1))
    assert (finding.facts["allocation_retries"], finding.facts["retry_ns"]) == (1, 4 * MS)
    assert finding.facts["reserved_unused_bytes"] == 10**9
    assert "5.3 %" in finding.message
    assert not memory(("cudaMalloc", 1, 2), ("cudaFree", 40, 3))
    assert not memory(("cudaMalloc", 1, 2), ("cudaMalloc", 4, 2))


def test_much_unused_memory_is_said_without_retries() -> None:
    rows = [kernel(0, 60 * MS)]
    for i, used in enumerate((4e9, 6e9, 5e9)):
        rows += [counter(i * MS, "Total Allocated", used), counter(i * MS, "Total Reserved", 10e9)]
    (finding,) = found("PK705", build_trace(*rows))
    assert finding.facts["reserved_unused_bytes"] == 4 * 10**9
    assert "40.0 %" in finding.message
    assert finding.evidence == ()


def test_memory_that_grows_by_step() -> None:
    (finding,) = found("PK706", RULES["PK706"].fires())
    assert (finding.facts["growth_bytes"], finding.facts["growth_per_step_bytes"]) == (88_000_000, 8_000_000)
    assert (finding.facts["steps"], finding.facts["rising_steps"]) == (12, 11)
    assert "leak" not in (finding.message + finding.cause + finding.advice).lower()


def test_memory_that_falls_once_does_not_grow() -> None:
    rows: list[Row] = []
    for i in range(12):
        rows += [span("decode", i * MS, 990_000, payload=1), *launch("gemm", at=i * MS, start=i * MS + 10, dur=900_000)]
        rows.append(alloc(i * MS + 1_000, 8_000_000, address=i))
    falls = alloc(6 * MS - 5_000, 40_000_000, freed=True)
    assert found("PK706", build_trace(*rows))
    assert not found("PK706", build_trace(*rows, falls))
    assert "no process with allocations" in unmet("PK706", build_trace(*rows[:5], rows[-1]))
