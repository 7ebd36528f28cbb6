"""Prices that must not promise too much: kernels of several streams, the profiler's own pauses, start-up, ranks."""

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.fixes import all_fixes
from profkit.analysis.replay import price
from profkit.testing import build_trace, call, copy, kernel, launch, overhead, span


def saving(analysis: Analysis, name: str) -> int | None:
    replayed = price.start(analysis)
    found = all_fixes()[name].find(analysis, replayed.model, "")
    if found is None:
        return None
    got = price.difference(analysis, replayed, found.fixed)
    assert got is not None
    return got.window_ns


def test_kernels_that_would_run_at_once_only_in_the_replay_are_not_counted_on() -> None:
    rows = []
    for i in range(4):
        t = i * 250_000
        rows.append(span("decode", t, 245_000, payload=1))
        for k, stream in enumerate((7, 8)):
            at = t + k * 120_000
            rows += launch("gemm", at=at, start=at + 8_000, dur=100_000, stream=stream)
            rows.append(call(at + 6_000, 104_000, "cudaStreamSynchronize"))
    analysis = Analysis(build_trace(*rows))
    window = 3 * 250_000 + 228_000 - 8_000
    # Eight kernels of 100,000 are all that is sure: whether two of them fit on the device at once nothing says.
    got = saving(analysis, "no-step-sync")
    assert got is not None
    assert 0 < got <= window - 8 * 100_000


def test_the_profiler_writing_its_buffers_out_is_no_stall() -> None:
    rows = []
    for i in range(40):
        t = i * 20_000 + (500_000 if i >= 20 else 0)
        rows += [span("decode", t, 18_000, payload=1), *launch("gemm", at=t, start=t + 6_000, dur=5_000)]
    paused = overhead(19 * 20_000 + 10_000, 505_000, "profiler")
    assert saving(Analysis(build_trace(*rows)), "no-stalls") == 500_000
    assert saving(Analysis(build_trace(*rows, paused)), "no-stalls") is None


def test_without_steps_nothing_tells_steady_state_from_start_up() -> None:
    free = call(0, 5_000_000, "cudaFree")
    rows = [free, *launch("a", at=5_000_000, start=5_010_000, dur=1_000)]
    assert saving(Analysis(build_trace(*rows)), "no-implicit-sync") is None


def test_uploads_of_ranks_that_wait_for_each_other_are_priced_together() -> None:
    rows, number = [], 0
    for i in range(6):
        for rank in (0, 1):
            t, where = i * 2_000_000, {"pid": 100 + rank}
            number += 2
            rows.append(span("decode", t, 1_900_000, payload=1, **where))
            rows.append(call(t, 1_000_000, "cudaMemcpyAsync", correlation=number, **where))
            rows.append(
                copy(
                    t + 10_000,
                    990_000,
                    "h2d",
                    4_000_000,
                    "pageable",
                    "device",
                    correlation=number,
                    device=rank,
                    **where,
                )
            )
            rows.append(call(t + 1_010_000, 5_000, "cudaLaunchKernel", correlation=number + 1, **where))
            rows.append(
                kernel(t + 1_020_000, 500_000, "ncclDevKernel_AllReduce", correlation=number + 1, device=rank, **where)
            )
    found = [f for f in profkit.check(build_trace(*rows)).findings if f.code == "PK301"]
    assert len(found) == 1
    assert [folded.key for folded in found[0].folded if folded.code == "PK301"] == ["PK301:1:h2d:"]
    assert found[0].folded[0].saving_ns_per_step > 500_000
    # 4 MB take 161,290 ns from pinned memory. One rank alone would still wait for the other one.
    for finding in found:
        assert finding.saving_ns_per_step > 500_000
