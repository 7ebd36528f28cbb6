"""Odd but possible traces, each found by somebody who tried to break profkit: the right value is the test."""

import json
import os
from pathlib import Path

import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.steps import MIXED
from profkit.cli import main
from profkit.errors import InputError, ProfkitError
from profkit.ingest import open_trace
from profkit.report import check_target
from profkit.testing import Row, build_trace, call, copy, kernel, launch, span


def _found(result: profkit.CheckResult, code: str) -> list[profkit.Finding]:
    return [finding for finding in (*result.findings, *result.others) if finding.code == code]


def _rank(pid: int, device: int) -> list[Row]:
    """20 launch-bound decode steps of 0.5 ms: 49 kernels of 4 us, a launch every 10 us."""
    rows = []
    for step in range(20):
        t = step * 500_000
        rows.append(span("decode", t, 500_000, pid=pid, tid=pid))
        for i in range(49):
            at = t + 1_000 + i * 10_000
            rows += launch("gemm", at=at, start=at + 8_000, dur=4_000, call_dur=6_000, pid=pid, tid=pid, device=device)
    return rows


def test_more_ranks_do_not_dilute_a_finding() -> None:
    alone = _found(profkit.check(build_trace(*_rank(100, 0))), "PK201")[0]
    (together,) = _found(profkit.check(build_trace(*(_rank(100 + r, r) for r in range(4)))), "PK201")
    assert together.saving_ns_per_step == alone.saving_ns_per_step
    assert together.facts["launches_per_step"] == 49
    assert together.share == alone.share
    # Once in the list, with the others folded.
    assert together.facts["places"] == 4
    assert "likewise on GPU 1, GPU 2, GPU 3" in together.message
    assert [f.saving_ns_per_step for f in together.folded if f.code == "PK201"] == [alone.saving_ns_per_step] * 3


def test_a_price_per_step_never_exceeds_the_step() -> None:
    rows = []
    for i in range(10):
        t = i * 1_000_000
        rows += [span("decode", t, 900_000), *launch("k", at=t + 1_000, start=t + 6_000, dur=884_000)]
    # Ten seconds later something that belongs to no step.
    rows += launch("k", at=10_010_000_000, start=10_010_006_000, dur=10_000)
    result = profkit.check(build_trace(*rows))
    for finding in (*result.findings, *result.others):
        assert finding.share is None or 0 <= finding.share <= 1
        assert finding.cost_ns < 0 or finding.saving_ns <= finding.cost_ns


def test_one_very_long_step_is_priced_against_the_mean() -> None:
    rows, t = [], 0
    for i in range(10):
        rows += [span("decode", t, 900_000), *launch("k", at=t + 1_000, start=t + 6_000, dur=500_000)]
        t += 1_000_000 if i != 4 else 1_000_000_000
    finding = profkit.check(build_trace(*rows)).findings[0]
    assert finding.code == "PK212"
    assert finding.share is not None
    assert finding.share <= 1
    assert "the mean of" in finding.share_of
    assert "PK101" in {folded.code for folded in finding.folded}


def test_waits_are_not_priced_where_gpu_rows_have_no_owner() -> None:
    rows = []
    for i in range(20):
        t = i * 1_000_000
        rows += [
            span("decode", t, 990_000),
            call(t + 50_000, 900_000, "cudaStreamSynchronize"),
            kernel(t + 10_000, 930_000),
        ]
    trace = build_trace(*rows)
    nobody = trace.tables["kernels"].column("process").to_numpy() * 0 - 1
    at = trace.tables["kernels"].column_names.index("process")
    field = trace.tables["kernels"].schema.field("process")
    kernels = trace.tables["kernels"].set_column(at, field, [nobody.astype("int32")])
    result = profkit.check(
        profkit.Trace(trace.meta, {**trace.tables, "kernels": kernels}, trace.missing, trace.windows)
    )
    reasons = {item.code: item.reason for item in result.not_run}
    assert "which process" in reasons["PK303"]
    assert not {"PK201", "PK303"} & set(result.clean)


def test_a_call_that_launches_nothing_is_the_hosts_own_work() -> None:
    rows = []
    for i in range(20):
        t = i * 5_000_000
        rows += [span("decode", t, 5_000_000), call(t + 1_000, 4_899_000, "cudaStreamCreateWithPriority")]
        rows += launch("k", at=t + 4_901_000, start=t + 4_906_000, dur=24_000, call_dur=4_000)
    analysis = Analysis(build_trace(*rows))
    parts = analysis.idle.by_cause()
    # 19 gaps from 4,930,000 to 9,906,000: 4,000 in the launch call, 1,000 behind it, the rest is the host's.
    assert (parts["launch_call"], parts["launch_latency"]) == (19 * 4_000, 19 * 1_000)
    assert parts["python"] == 19 * (4_976_000 - 5_000)
    assert not _found(profkit.check(analysis.trace), "PK201")


def test_rules_without_joined_rows_are_not_clean() -> None:
    rows = [call(i * 10_000, 5_000, "cudaLaunchKernel", correlation=900 + i) for i in range(5)]
    rows += [kernel(i * 10_000 + 6_000, 1_000) for i in range(5)]
    rows += [copy(70_000, 1_000, "h2d", 1_000_000, "pageable", "device")]
    result = profkit.check(build_trace(*rows))
    assert {"PK201", "PK301"} <= {item.code for item in result.not_run}
    assert not {"PK201", "PK301"} & set(result.clean)
    assert "could not judge" in profkit.check(build_trace(kernel(0, 10), kernel(10, 10))).headline


def test_a_copy_costs_at_least_what_a_fix_gives_back() -> None:
    rows = []
    for i in range(20):
        t = i * 1_100_000
        rows.append(call(t, 5_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(t + 10_000, 1_000_000, "h2d", 1_000_000, "pageable", "device", correlation=i + 1))
    finding = _found(profkit.check(build_trace(*rows)), "PK301")[0]
    # The copies wait for nothing but their calls: without both the window is shorter by the last of them.
    assert finding.cost_ns == 21_900_000 - 19 * 1_095_000
    assert 0 < finding.saving_ns < finding.cost_ns


def test_marks_belong_to_the_request_of_their_own_process() -> None:
    rows = []
    for pid, first in ((1, 1_000), (2, 5_000)):
        rows.append(span("request", 0, 10_000, kind="start_end", payload=7, pid=pid, tid=pid))
        rows.append(span("request#7 first_token", first, 0, kind="mark", pid=pid, tid=pid))
    assert Analysis(build_trace(*rows)).requests.ttft.tolist() == [1_000, 5_000]


def test_marks_with_endless_digits_are_no_marks() -> None:
    rows = [span("request", 0, 100, kind="start_end", payload=7)]
    rows += [span(f"request#7 output_tokens={'9' * n}", 50, 0, kind="mark") for n in (30, 5_000)]
    assert Analysis(build_trace(*rows)).requests.output_tokens.tolist() == [-1]


def test_negative_payloads_are_not_known_tokens() -> None:
    rows = [span("request#1", 0, 100), span("prefill#-5", 10, 10), span("sample#-7", 30, 5), span("sample#3", 40, 5)]
    requests = Analysis(build_trace(*rows)).requests
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == ([-1], [4])


def test_mixed_steps_of_two_threads_that_interleave() -> None:
    rows = []
    for tid in (1, 2):
        for i in range(6):
            t = i * 1_000 + tid * 10
            rows += [span("schedule", t, 50, tid=tid), span("prefill", t + 60, 100, tid=tid)]
            rows.append(span("decode", t + 200, 100, tid=tid))
    steps = Analysis(build_trace(*rows)).steps
    assert steps.kind.tolist() == [MIXED] * 12
    assert steps.host_start.tolist() == sorted(steps.host_start.tolist())


def test_rows_of_one_instant_give_the_same_numbers_in_any_order() -> None:
    rows = []
    for i in range(10):
        t = i * 100_000
        rows += launch("a", at=t, start=t + 20_000, dur=10_000, stream=7, tid=1)
        rows += launch("b", at=t + 10_000, start=t + 20_000, dur=10_000, stream=8, tid=2)
    rows += [kernel(0, 1_000, device=d) for d in (3, 1, 2)]
    forward, backward = (profkit.check(build_trace(*order)) for order in (rows, rows[::-1]))
    assert forward.summary == backward.summary
    assert forward.headline == backward.headline


def test_times_before_zero_are_moved_to_begin_at_zero() -> None:
    rows = []
    for i in range(10):
        t = i * 100_000 - 5_000_000
        rows += [span("decode", t, 90_000), *launch("k", at=t + 1_000, start=t + 10_000, dur=50_000)]
    trace = build_trace(*rows)
    assert trace.meta.origin_ns == -5_000_000
    summary = profkit.check(trace).summary
    assert summary["steps"]["decode"]["host_p50_ns"] == 90_000
    assert summary["steps"]["decode"]["period_p50_ns"] == 100_000
    assert any("begin at -5,000,000 ns" in note for note in trace.meta.notes)


def test_ranges_and_calls_without_a_thread_or_a_name() -> None:
    trace = build_trace(span("decode", 0, 100), call(10, 5), kernel(20, 5))
    for table, column in (("spans", "track"), ("calls", "name"), ("calls", "track")):
        old = trace.tables[table]
        at, field = old.column_names.index(column), old.schema.field(column)
        changed = old.set_column(at, field, [old.column(column).to_numpy() * 0 - 1])
        result = profkit.check(profkit.Trace(trace.meta, {**trace.tables, table: changed}, {}, trace.windows))
        assert result.summary["counts"]["kernels"] == 1


def test_only_zero_length_kernels(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 0,
        "args": {"device": 0, "stream": 7},
    }
    path.write_text(json.dumps({"traceEvents": [event]}))
    assert main(["report", str(path), "-o", str(tmp_path / "t.html")]) == 0
    assert profkit.check(path).summary["devices"][0]["busy_share"] is None


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="no regular file"):
        open_trace(fifo)
    with pytest.raises(ProfkitError, match="no regular file"):
        check_target(tmp_path / "t.json", fifo, force=True)


def test_names_that_no_file_system_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a" * 300 + "/x.json"]) == 1
    assert main(["check", "\x1b[31mred.json"]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert len(said.splitlines()) == 2


def test_a_report_goes_through_a_link_to_its_file(tmp_path: Path) -> None:
    from profkit.report import write_page

    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    link.symlink_to(real)
    write_page("new", link)
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_rows_without_a_length_export_with_their_idle_pieces(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 100}
    span_event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 0, "tid": 1, "ts": 200, "dur": 100}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event, span_event]}))
    assert main(["export", str(path), "--to", "store", "-o", str(tmp_path / "store")]) == 0
    assert profkit.check(tmp_path / "store").summary == profkit.check(path).summary


def test_a_wait_that_outlasts_the_steps_gives_back_no_more_than_they_took() -> None:
    rows = []
    for i in range(12):
        t = i * 1_000_000
        rows += [span("decode", t, 900_000), *launch("k", at=t + 1_000, start=t + 6_000, dur=100_000)]
        rows.append(call(t + 200_000, 10**13 if i % 4 == 0 else 10_000, "cudaStreamSynchronize"))
    for finding in profkit.check(build_trace(*rows)).findings:
        assert finding.share is None or 0 <= finding.share <= 1


def test_a_range_without_a_length_is_innermost_nowhere() -> None:
    rows = [span("schedule", 20, 0), span("decode", 20, 75), call(10, 5, correlation=1), kernel(15, 5, correlation=1)]
    rows += [call(90, 10, correlation=2), kernel(100, 10, correlation=2)]
    idle = Analysis(build_trace(*rows)).idle.by_cause()
    assert (idle["python"], idle["launch_call"], idle["stage_schedule"]) == (70, 10, 0)
