"""Rules whose prices are measured, not replayed: what fires, what must stay quiet, and the numbers."""

from collections.abc import Iterator

import numpy as np
import pytest

from profkit.analysis.context import Analysis
from profkit.judge import judged
from profkit.model import Finding, Trace, Window
from profkit.rules import all_rules
from profkit.testing import Row, build_trace, call, copy, graph, kernel, launch, span, stream_wait

CODES = ("PK103", "PK104", "PK105", "PK205", "PK207", "PK213", "PK308", "PK310", "PK312")
RULES = {code: rule for code, rule in all_rules().items() if code in CODES}
MS = 1_000_000


def found(code: str, trace: Trace) -> list[Finding]:
    """What a rule finds in a trace that it can judge."""
    analysis = Analysis(trace)
    assert RULES[code].unmet(analysis) == ""
    return [item.finding for item in judged(RULES[code], analysis)]


def unmet(code: str, trace: Trace) -> str:
    return RULES[code].unmet(Analysis(trace))


def pieces(memory: str = "pinned") -> Trace:
    """Ten uploads of 4 ms, each before a kernel of 6 ms; the kernels differ, so that there are no steps."""
    rows: list[Row] = []
    for i in range(10):
        rows.append(copy(i * 10 * MS, 4 * MS, "h2d", 90_000_000, memory, "device"))
        rows.append(kernel(i * 10 * MS + 4 * MS, 6 * MS, f"piece{i}"))
    return build_trace(*rows)


def test_serial_copies_are_priced_without_the_first_upload() -> None:
    (finding,) = found("PK103", pieces())
    assert finding.cost_ns == finding.saving_ns == 9 * 4 * MS
    assert finding.facts["start_and_end_copies_ns"] == 4 * MS
    assert finding.share == pytest.approx(36 / 100)
    assert finding.severity == "critical"


def test_no_more_is_hidden_than_there_is_kernel_time() -> None:
    rows = [copy(i * 10 * MS, 9 * MS, "d2h", 90_000_000, "device", "pinned") for i in range(10)]
    rows += [kernel(i * 10 * MS - MS, MS, f"piece{i}") for i in range(10)]
    (finding,) = found("PK103", build_trace(*rows))
    # The last one comes behind all kernels.
    assert finding.cost_ns == 9 * 9 * MS
    assert finding.saving_ns == 10 * MS


def test_pageable_and_small_copies_are_not_meant() -> None:
    assert not found("PK103", pieces("pageable"))
    rows = [copy(i * 20_000, 10_000, "d2h", 4, "device", "pinned") for i in range(100)]
    rows += [kernel(i * 20_000 + 10_000, 10_000, f"piece{i}") for i in range(100)]
    assert not found("PK103", build_trace(*rows))


def test_uploads_before_the_first_kernel_are_start_up() -> None:
    rows = [copy(i * 10 * MS, 9 * MS, "h2d", 90_000_000, "pinned", "device") for i in range(10)]
    assert not found("PK103", build_trace(*rows, kernel(200 * MS, MS), kernel(202 * MS, MS)))
    assert unmet("PK103", build_trace(*rows)) == "no kernels were recorded that a copy could run beside"


def test_with_steps_copies_are_another_rules() -> None:
    assert "PK305" in unmet("PK103", RULES["PK308"].fires())


def in_turn(*more: Row, grid: int = 16) -> Trace:
    rows: list[Row] = []
    for i in range(40):
        rows.append(call(i * 1_000, 900, correlation=i + 1))
        start = 100_000 + i * 100_000
        rows.append(kernel(start, 99_000, f"k{i}", correlation=i + 1, stream=7 + i % 2, grid=grid))
    return build_trace(*rows, *more, gpu={"sm_count": 132})


def test_streams_in_turn_have_no_price() -> None:
    (finding,) = found("PK104", in_turn())
    assert finding.severity == "info"
    assert finding.saving_ns == -1
    # All but the first waited for the kernel of the other stream, 99 of each 100 us.
    assert finding.facts["kernels_in_wait"] == 39
    assert finding.facts["in_wait_ns"] == 39 * 99_000


def test_streams_that_overlap_once_in_a_while_are_fine() -> None:
    assert not found("PK104", in_turn(kernel(150_000, 30_000, stream=8, grid=4)))


def test_streams_that_a_full_gpu_orders_are_fine() -> None:
    assert not found("PK104", in_turn(grid=67))
    assert "multiprocessors" in unmet("PK104", build_trace(launch("k", at=0, start=10, dur=5)))


def test_streams_that_events_or_host_functions_order_are_fine() -> None:
    waits = [stream_wait(i * 1_000 - 50, 1, record=i, stream=7 + i % 2) for i in range(1, 40)]
    calls = [call(i * 1_000 - 60, 20, "cudaStreamWaitEvent") for i in range(1, 40)]
    assert not found("PK104", in_turn(*waits, *calls))
    assert not found("PK104", in_turn(*calls))
    assert not found("PK104", in_turn(call(50, 20, "cudaLaunchHostFunc")))


def test_launches_that_come_one_by_one_do_not_wait() -> None:
    rows = [
        launch(f"k{i}", at=i * 100_000, start=i * 100_000 + 10_000, dur=80_000, stream=7 + i % 2) for i in range(40)
    ]
    assert not found("PK104", build_trace(*rows, kernel(9 * MS, 10, grid=1), gpu={"sm_count": 132}))


def test_start_up_names_calls_and_ranges() -> None:
    rows = [call(0, 300 * MS, "cuInit"), call(400 * MS, 500 * MS, "cudaMalloc"), span("load_model", 0, 950 * MS)]
    rows.append(copy(950 * MS, 40 * MS, "h2d", 400_000_000, "pinned", "device"))
    rows += [row for i in range(5) for row in launch("k", at=(1_000 + i) * MS, start=(1_000 + i) * MS + 10_000, dur=MS)]
    (finding,) = found("PK105", build_trace(*rows))
    assert finding.facts["startup_ns"] == 1_000 * MS + 10_000
    assert finding.facts["in_cudaMalloc_ns"] == 500 * MS
    assert finding.facts["copies_ns"] == 40 * MS
    assert "cudaMalloc 500 ms, cuInit 300 ms" in finding.message
    assert "load_model 950 ms" in finding.message
    assert finding.severity == "info"


def test_a_gpu_that_starts_late_is_named() -> None:
    rows: list[Row] = []
    for device in range(4):
        for i in range(20):
            t = (i + (10 if device == 2 else 0)) * 50 * MS
            rows += launch("k", at=t, start=t + 10_000, dur=40 * MS, pid=100 + device, device=device)
    (finding,) = found("PK105", build_trace(*rows))
    assert finding.key == "PK105:2:device:"
    assert finding.facts["late_ns"] == 500 * MS


def test_start_up_is_not_judged_in_a_part_of_a_capture() -> None:
    trace = RULES["PK105"].fires()
    assert RULES["PK105"].unmet(Analysis(trace, Window(0, 2_000 * MS)))


def test_gaps_between_tiny_kernels_are_the_price() -> None:
    (finding,) = found("PK205", RULES["PK205"].fires())
    # Five counted steps of 24 kernels, 1 us apart.
    assert finding.saving_ns == 5 * 23 * 1_000
    assert finding.saving_ns_per_step == 23_000
    assert finding.facts["tiny_kernels_per_step"] == 24


def test_tiny_kernels_of_a_launch_bound_step_have_no_price() -> None:
    rows: list[Row] = []
    for step in range(6):
        t = step * 400_000
        rows.append(span("decode", t, 399_000, payload=1))
        for i in range(30):
            rows += launch("elementwise_kernel", at=t + i * 10_000, start=t + i * 10_000 + 8_000, dur=3_000)
    (finding,) = found("PK205", build_trace(*rows))
    assert finding.saving_ns == -1
    assert finding.severity == "info"


def test_tiny_kernels_that_stand_alone_are_not_meant() -> None:
    rows, t = [], MS
    for step in range(6):
        rows.append(span("decode", step * 100_000, 99_000, payload=1))
        for i in range(40):
            name, dur = ("gemm", 4_000) if i % 2 else ("elementwise_kernel", 2_000)
            rows += launch(name, at=step * 100_000 + i * 2_000, start=t, dur=dur, call_dur=500)
            t += dur + 1_000
    assert not found("PK205", build_trace(*rows))


def replays(batches: list[int], bucket_of: dict[int, int], *more: Row) -> Trace:
    rows: list[Row] = []
    for i, batch in enumerate(batches):
        t = i * MS
        rows.append(span("decode", t, 990_000, payload=batch))
        rows.append(call(t + 5_000, 5_000, "cudaGraphLaunch", correlation=i + 1))
        rows.append(graph(t + 20_000, 900_000, correlation=i + 1, number=bucket_of[batch]))
    return build_trace(*rows, *more)


def test_padding_is_counted_against_the_largest_batch_of_a_graph() -> None:
    (finding,) = found("PK207", replays([5, 6, 8] * 4 + [1, 2] * 2, {5: 8, 6: 8, 8: 8, 1: 2, 2: 2}))
    # Buckets of 8 and 2: 3 + 2 + 0 of 24, four times; 1 + 0 of 4, twice.
    assert finding.facts["padded_share"] == pytest.approx((4 * 5 + 2) / (4 * 24 + 2 * 4))
    assert finding.facts["buckets"] == 2
    assert finding.saving_ns == -1


def test_graphs_that_fit_or_change_are_quiet() -> None:
    assert not found("PK207", replays([5, 6, 8] * 4, {5: 1, 6: 2, 8: 3}))
    update = call(2_000, 1_000, "cudaGraphExecKernelNodeSetParams_v10010")
    assert "updated" in unmet("PK207", replays([5, 6, 8] * 4, {5: 8, 6: 8, 8: 8}, update))


def test_compilation_is_priced_where_the_gpu_was_idle() -> None:
    rows: list[Row] = [span("ProfilerStep#0", 0, MS), span("aten::add", 0, 10, kind="op")]
    for i in range(6):
        t = (10 + i) * MS
        rows.append(span("decode", t, 990_000, payload=1))
        rows += launch("gemm", at=t + 5_000, start=t + 20_000, dur=500_000)
    # 0.45 ms beside the kernel of its step, 2 ms behind it, in which the next steps' kernels run 1 ms.
    rows.append(span("entire_frame_compile (dynamo_timed)", 13 * MS + 70_000, 2_450_000))
    rows.append(span("backend_compile (dynamo_timed)", 13 * MS + 80_000, 2_000_000))
    rows.append(span("backend_compile (dynamo_timed)", 13 * MS + 80_000, 9 * MS, tid=999))
    (finding,) = found("PK213", build_trace(*rows))
    assert finding.cost_ns == 2_450_000
    assert finding.saving_ns == 2_450_000 - 3 * 500_000 + 50_000
    assert finding.facts["compilations"] == 1
    assert finding.facts["steps_with_it"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "Torch-Compiled Region: 0/0",
        "## Call CompiledFxGraph fal4xpiah2v6b ##",
        "TorchDynamo Cache Lookup",
        "torch/_dynamo/eval_frame.py(791): compile_wrapper",
        "transformers/utils/import_utils.py(793): is_torchdynamo_compiling",
        "precompiled",
    ],
)
def test_what_runs_compiled_code_does_not_compile(name: str) -> None:
    rows: list[Row] = [span("aten::add", 0, 10, kind="op")]
    for i in range(6):
        rows.append(span("decode", i * 9 * MS, 8 * MS, payload=1))
        rows.append(span(name, i * 9 * MS + 1_000, 6 * MS))
        rows += launch("gemm", at=i * 9 * MS + 7 * MS, start=i * 9 * MS + 7 * MS + 9_000, dur=500_000)
    assert not found("PK213", build_trace(*rows))


def decodes(sizes: list[tuple[int, int]]) -> Trace:
    """Decode steps of (sequences, bytes read back)."""
    rows: list[Row] = []
    for i, (batch, size) in enumerate(sizes):
        t = i * MS
        rows.append(span("decode", t, 990_000, payload=batch))
        rows += launch("gemm", at=t + 5_000, start=t + 20_000, dur=600_000)
        rows.append(call(t + 15_000, 700_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(t + 600_000, 80_000, "d2h", size, "device", "pinned", correlation=i + 1))
    return build_trace(*rows)


def test_logits_grow_with_the_batch() -> None:
    (finding,) = found("PK308", decodes([(n, n * 152_064 * 2) for n in (1, 2, 5, 9, 9, 3)]))
    assert finding.facts["bytes_per_sequence"] == 152_064 * 2
    # 20 us of each copy run beside the kernel.
    assert finding.saving_ns == 6 * 60_000
    assert finding.saving_ns_per_step == 60_000


def test_read_backs_that_are_no_logits() -> None:
    assert not found("PK308", decodes([(n, 4 * n) for n in (1, 2, 5, 9, 9, 3)]))
    assert not found("PK308", decodes([(1, 2_000_000)] * 6))
    assert not found("PK308", decodes([(34, 4_320_000)] * 6))
    assert not found("PK308", decodes([(8, 8 * 300_000)] * 6))
    assert not found("PK308", decodes([(n, 65_536 * k) for n, k in ((1, 3), (1, 5), (1, 2), (1, 7), (1, 4), (1, 6))]))
    assert not found("PK308", decodes([(8, 8 * 100_000)] * 2 + [(8, 64)] * 6))


def uploads(rates: list[float], name: str = "NVIDIA A100-SXM4-80GB", api: str = "cudaMemcpyAsync") -> Trace:
    """Uploads of 10 MB at these rates, bytes a ns, each before a kernel."""
    rows: list[Row] = []
    for i, rate in enumerate(rates):
        t, dur = i * 10 * MS, round(10_000_000 / rate)
        rows.append(call(t, 5_000, api, correlation=i + 1))
        rows.append(copy(t + 10_000, dur, "h2d", 10_000_000, "pinned", "device", correlation=i + 1))
        rows.append(kernel(t + 10_000 + dur, MS, f"piece{i}"))
    return build_trace(*rows, gpu={"name": name})


def test_a_slow_link_is_priced_against_the_published_rate() -> None:
    (finding,) = found("PK310", uploads([10.0] * 4))
    assert finding.saving_ns == 4 * (1_000_000 - 10_000_000 * 10**9 // 24_800_000_000)
    assert finding.facts["best_bytes_per_s"] == 10_000_000_000


def test_a_link_that_is_fast_now_and_then_is_not_slow() -> None:
    assert not found("PK310", uploads([10.0] * 4 + [22.0]))
    assert not found("PK310", uploads([13.0] * 4))


def test_links_that_are_not_known_are_not_judged() -> None:
    for name in ("", "NVIDIA GH200 480GB", "NVIDIA A10G", "NVIDIA GeForce RTX 4060", "Tesla V100-SXM2-16GB"):
        assert unmet("PK310", uploads([1.0] * 4, name)) == "the link of this GPU is not known by its name"
    assert "no pinned copies" in unmet("PK310", uploads([1.0] * 4, api="cudaMemcpy2DAsync_v3020"))


def test_hidden_copies_over_a_slow_link_cost_nothing() -> None:
    rows = [copy(i * 10 * MS, 9 * MS, "h2d", 10_000_000, "pinned", "device", stream=8) for i in range(5)]
    trace = build_trace(*rows, kernel(-MS, 60 * MS), gpu={"name": "NVIDIA A100-SXM4-80GB"})
    assert not found("PK310", trace)


def test_migrations_beside_kernels_save_nothing() -> None:
    rows: list[Row] = [kernel(0, 100 * MS), kernel(120 * MS, 10 * MS)]
    rows += [copy(10 * MS * i, 9 * MS, "um_h2d", 2_000_000, "managed", "managed", cause=2) for i in range(10)]
    rows.append(copy(101 * MS, 10 * MS, "um_d2h", 2_000_000, "managed", "managed", cause=4))
    (finding,) = found("PK312", build_trace(*rows))
    assert finding.cost_ns == 100 * MS
    assert finding.saving_ns == 10 * MS
    assert finding.facts["eviction_migrations"] == 1
    assert finding.facts["um_h2d_bytes"] == 20_000_000


def odd_traces() -> Iterator[Trace]:
    long, name = 1 << 60, "x" * 40_000
    gpu = {"name": "NVIDIA H100 80GB HBM3", "sm_count": 132}
    kinds = ("h2d", "d2h", "um_h2d", "d2d", "unknown")
    yield build_trace()
    yield build_trace(kernel(0, -1, name), gpu=gpu)
    yield build_trace(kernel(0, 0, ""), copy(0, 0, "h2d", -1), copy(0, 0, "um_d2h", 0), call(0, 0, ""), gpu=gpu)
    rows: list[Row] = []
    for i in range(40):
        size = (long, 0, -1, 10_000_000, 1)[i % 5]
        dur = (long, -1, 0, 1, 100)[i % 5]
        rows += [call(i, dur, name, correlation=i), kernel(i + 3, dur, f"{name}{i % 3}", correlation=i, grid=i % 4 - 1)]
        rows.append(copy(i + 5, dur, kinds[i % 5], size, "pinned", "pinned", stream=i, correlation=i))
        rows.append(graph(i + 6, dur, correlation=i, number=i % 3))
        rows.append(span(("decode", "compile", name, "<b>a:b</b>")[i % 4], i * 10, dur, payload=(0, 1, long)[i % 3]))
    yield build_trace(*rows, gpu=gpu)
    rows = []
    for i in range(3_000):
        t = i * 1_000
        rows += launch("elementwise_kernel", at=t, start=t + 500, dur=400, call_dur=100, stream=i, device=i % 3)
        rows.append(span("decode", t, 990, payload=i))
    yield build_trace(*rows, gpu=gpu)


@pytest.mark.parametrize("code", CODES)
def test_odd_traces_are_judged_without_a_warning(code: str) -> None:
    with np.errstate(all="raise"):
        for trace in odd_traces():
            analysis = Analysis(trace)
            if not RULES[code].unmet(analysis):
                for item in judged(RULES[code], analysis):
                    assert item.finding.key.count(":") == 3
                    assert len(item.finding.message) < 2_000
                    assert item.finding.saving_ns <= item.finding.cost_ns
