"""Rules about kernels (PK401 to PK404, PK406): what they say of small traces, by hand, and where they are silent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import profkit
from profkit.analysis.context import Analysis
from profkit.analysis.fixes.fused_dequantisation import only_dequantises
from profkit.judge import judged
from profkit.model import Finding, Trace
from profkit.rules import all_rules
from profkit.testing import Row, build_trace, counter, graph, kernel, launch, span
from profkit.text import short_kernel

H100 = {"name": "NVIDIA H100 80GB HBM3", "sm_count": 132, "clock_hz": 1_980_000_000}
CLOCK = "GPC Clock Frequency [MHz]"


def found(code: str, trace: Trace) -> list[Finding]:
    rule, analysis = all_rules()[code], Analysis(trace)
    assert rule.unmet(analysis) == ""
    return [item.finding for item in judged(rule, analysis)]


def unmet(code: str, trace: Trace) -> str:
    return all_rules()[code].unmet(Analysis(trace))


# PK401


@pytest.mark.parametrize(
    ("name", "dur", "grid", "beside"),
    [
        ("gemm", 100_000, 88, False),  # two thirds of 132
        ("gemm", 9_000, 16, False),
        ("gemm", 100_000, 16, True),
        ("ncclDevKernel_AllReduce", 100_000, 16, False),
    ],
)
def test_small_grids_that_are_no_fault(name: str, dur: int, grid: int, beside: bool) -> None:
    rows = [kernel(i * 200_000, dur, name, grid=grid) for i in range(10)]
    rows += [kernel(i * 200_000, dur, "other", grid=500, stream=8) for i in range(10)] if beside else []
    assert found("PK401", build_trace(*rows, gpu=H100)) == []


def test_the_empty_part_of_small_grids() -> None:
    rows = [kernel(i * 200_000, 100_000, grid=33) for i in range(10)]
    rows += [kernel(i * 200_000 + 100_000, 90_000, "wide", grid=500) for i in range(10)]
    (finding,) = found("PK401", build_trace(*rows, gpu=H100))
    assert finding.cost_ns == 10 * 75_000
    assert finding.saving_ns == -1
    assert finding.severity == "warning"  # 750,000 of 1,990,000
    assert finding.facts["kernel_ns"] == 1_000_000
    assert finding.facts["busy_ns"] == 1_900_000
    assert "33 blocks (median) on the 132 SMs" in finding.message


def test_an_instance_of_a_gpu_is_not_judged() -> None:
    rows = [kernel(0, 100_000, grid=1)]
    assert "how many SMs" in unmet("PK401", build_trace(*rows, gpu=H100 | {"mig": "1g.10gb"}))
    assert "how many SMs" in unmet("PK401", build_trace(*rows))
    assert "grids" in unmet("PK401", build_trace(kernel(0, 100_000), gpu=H100))
    assert "one piece" in unmet("PK401", build_trace(kernel(0, 10, grid=1), graph(20, 100_000), gpu=H100))


# PK402


def _steps(count: int, length: Any, name: str = "gemm", batch: int | None = 4) -> Trace:
    """Steps of one kernel of ``length(i)`` and three norms of 20,000."""
    rows: list[Row] = []
    for i in range(count):
        t = i * 400_000
        rows.append(span("decode", t, 390_000, payload=batch))
        rows += launch(name, at=t, start=t + 20_000, dur=length(i))
        for k in range(3):
            rows += launch("norm", at=t + 8_000 + k * 8_000, start=t + 310_000 + k * 21_000, dur=20_000)
    return build_trace(*rows)


def test_a_kernel_that_drifts() -> None:
    (finding,) = found("PK402", _steps(61, lambda i: 100_000 + 1_000 * i))
    assert finding.key == "PK402:0:drifts:"
    assert finding.saving_ns == -1
    # The first step has no period: 60 are compared, those of a third are 20.
    assert finding.facts["steps"] == 60
    assert finding.facts["first_third_p50_ns"] == 110_500
    assert finding.facts["last_third_p50_ns"] == 150_500
    assert finding.cost_ns == sum(100_000 + 1_000 * i - 110_500 for i in range(11, 61))


def test_a_kernel_that_spreads() -> None:
    (finding,) = found("PK402", _steps(41, lambda i: 100_000 if i % 4 else 250_000))
    assert finding.key == "PK402:0:spreads:"
    assert finding.cost_ns == 10 * 150_000
    assert finding.facts["of_ns"] == 40 * 400_000
    assert finding.severity == "info"  # 1,500,000 are 9 % of the window


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("gemm", lambda i: 100_000 + 1_000 * (i % 20)),  # within 25 %
        ("gemm", lambda i: 100_000 if i != 30 else 900_000),  # one of sixty
        ("gemm", lambda i: 160_000 - 1_000 * i),  # gets faster
        ("flash_fwd_splitkv_kernel", lambda i: 100_000 + 1_000 * i),  # its context grows
        ("ncclDevKernel_AllReduce", lambda i: 100_000 if i % 4 else 250_000),  # waits for others
    ],
)
def test_run_times_that_are_no_fault(name: str, length: Any) -> None:
    assert found("PK402", _steps(61, length, name)) == []


def test_steps_that_may_differ_in_batch_are_compared_without_what_they_have_in_common() -> None:
    rows: list[Row] = []
    for i in range(41):
        t, slow = i * 400_000, 1 if i % 4 else 2
        rows.append(span("decode", t, 390_000))
        for k in range(4):
            rows += launch("gemm", at=t + k * 8_000, start=t + 40_000 + k * 80_000, dur=30_000 * slow)
    assert found("PK402", build_trace(*rows)) == []
    known = [row if row.table != "spans" else _of_batch(row, 8) for row in rows]
    (finding,) = found("PK402", build_trace(*known))
    assert "nearly all kernels" in finding.cause


def _of_batch(row: Row, batch: int) -> Row:
    return span(row.name, row.values["start_ns"], row.values["dur_ns"], payload=batch)


def test_few_steps_are_not_judged() -> None:
    assert "20 steps" in unmet("PK402", _steps(20, lambda i: 100_000))
    assert unmet("PK402", _steps(21, lambda i: 100_000)) == ""


# PK403


def _clocked(values: Iterable[float], *more: Row, name: str = CLOCK, **gpu: Any) -> Trace:
    samples = [counter(i * 1_000_000 + 500_000, name, float(value)) for i, value in enumerate(values)]
    return build_trace(*(kernel(i * 1_000_000, 950_000) for i in range(len(samples))), *samples, *more, gpu=H100 | gpu)


def test_a_clock_that_falls() -> None:
    power = [counter(i * 1_000_000, "Power [W]", 650.0 + i) for i in range(100)]
    reason = [counter(70_000_000, "SW Power Cap Throttle", 1.0)]
    (finding,) = found("PK403", _clocked([1_980] * 60 + [1_485] * 40, *power, *reason))
    assert finding.facts["before_hz"] == 1_980_000_000
    assert finding.facts["after_hz"] == 1_485_000_000
    assert finding.facts["since_ns"] == 60_500_000
    # From the first slow sample to the last one, 39 ms, less 39 pauses of 50 us; a quarter of the clock is gone.
    assert finding.facts["slow_busy_ns"] == 39 * 950_000
    assert finding.cost_ns == sum(round(part * 950_000 / 4) for part in (10, 10, 10, 9))
    assert finding.severity == "warning"
    assert "Power [W] was 730 (median)" in finding.message
    assert "SW Power Cap Throttle was set in 100.0 %" in finding.message


@pytest.mark.parametrize(
    "values",
    [
        [1_410] * 30 + [1_980] * 70,  # it rises
        [1_980, 1_905] * 50,  # steps of a boost clock
    ],
)
def test_clocks_that_are_no_fault(values: list[float]) -> None:
    assert found("PK403", _clocked(values)) == []


def test_clocks_that_stay_low_and_units() -> None:
    (finding,) = found("PK403", _clocked([1_200.0] * 50))
    assert finding.key == "PK403:0:low:"
    assert finding.severity == "info"
    assert "60.6 % of its boost clock" in finding.message
    (finding,) = found("PK403", _clocked([1.2e9] * 50))  # Hz under a name that says MHz
    assert finding.facts["fastest_hz"] == 1_200_000_000


def test_what_cannot_tell_of_clocks() -> None:
    assert "counters" in unmet("PK403", build_trace(kernel(0, 10)))
    assert "SM clock" in unmet("PK403", _clocked([50.0] * 50, name="SMs Active [Throughput %]"))
    assert "SM clock" in unmet("PK403", _clocked([2_600.0] * 50, name="Memory Clock [MHz]"))
    assert "fewer than 40" in unmet("PK403", _clocked([1_980.0] * 39))


# PK404 and PK406


def _attention(*between: str) -> Trace:
    rows: list[Row] = []
    for i, name in enumerate(("sgemm_qk", *between, "sgemm_pv", "norm") * 8):
        rows += launch(name, at=i * 10_000, start=20_000 + i * 101_000, dur=100_000)
    return build_trace(*rows)


EXP = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>"
MAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>>>(T3)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>(T3)"
DIV = "void at::native::elementwise_kernel<128, 2, at::native::BinaryFunctor<float, float, DivFunctor>>(int)"


@pytest.mark.parametrize(
    "between",
    [
        ("softmax_warp_forward",),
        (
            "elementwise_kernel",
            "masked_fill_kernel",
            "cunn_SoftMaxForward",
            "fused_dropout_kernel",
            "direct_copy_kernel",
        ),
        ("triton_per_fused__softmax_add_mul_0",),
        (DIV, MAX, DIV, EXP, SUM, DIV),
    ],
)
def test_attention_step_by_step(between: tuple[str, ...]) -> None:
    (finding,) = found("PK404", _attention(*between))
    assert finding.facts["sequences"] == 8
    assert finding.facts["kernels"] == 8 * len(between)
    # No host waits: each kernel is 100,000 and 1,000 to the next one; from the first to the last end.
    assert finding.saving_ns == 8 * len(between) * 101_000
    assert finding.fixes == ("fused-attention",)


@pytest.mark.parametrize(
    "between",
    [
        ("flash_fwd_kernel",),
        ("elementwise_kernel",),
        ("softmax_warp_forward", "topk_kernel"),  # of a router
        ("void cunn_SoftMaxForward<float, LogSoftMaxForwardEpilogue>",),
        ("softmax_warp_backward",),
        ("softmax_warp_forward", *("elementwise_kernel",) * 5),  # too far from the next GEMM
        (EXP, DIV),
    ],
)
def test_what_is_no_attention_step_by_step(between: tuple[str, ...]) -> None:
    assert found("PK404", _attention(*between)) == []


def test_two_gpus_are_one_finding_each() -> None:
    rows = [
        launch(name, at=i * 10_000, start=20_000 + i * 101_000, dur=100_000, device=device, tid=device + 1)
        for device in (0, 1)
        for i, name in enumerate(("gemm", "softmax_warp_forward", "gemm") * 5)
    ]
    assert [finding.facts["sequences"] for finding in found("PK404", build_trace(*rows))] == [5, 5]


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("void dequantize_int8_kernel<__nv_bfloat16>(const signed char*, T1*)", True),
        ("void kDequantizeBlockwise<__half, 512, 64, 8, 2>(float*, unsigned char*, float*, __half*, int, int)", True),
        ("dequantize_weights", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::dequantize_tensor_cuda(at::Tensor)>(int)",
            True,
        ),
        ("void cutlass::Kernel<cutlass::gemm::DequantizeInterleaved>(Params)", False),
        ("void fused_dequant_gemm<1>(Params)", False),
        ("void dequant_gemv_awq<1>(Params)", False),
        ("void dequantize_and_norm<1>(Params)", False),
        ("void quantize_kernel<1>(Params)", False),
        ("void flash_decode_dequant_kv<128>(Params)", False),
    ],
)
def test_names_that_say_dequantise(name: str, does: bool) -> None:
    assert only_dequantises(short_kernel(name), name) is does


def test_fp32_products_are_told_by_their_names() -> None:
    names = {
        "ampere_sgemm_128x64_tn": True,
        "cutlass_80_simt_sgemm_128x128_8x4_tn_align1": True,
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_tn>(...)": False,
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16": False,
        "volta_sgemm_128x64_tn": False,  # no TF32 there
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn": False,
    }
    for name, fires in names.items():
        rows = [launch(name, at=i * 100_000, start=i * 100_000 + 9_000, dur=90_000) for i in range(10)]
        result = profkit.check(build_trace(*rows))
        found = [f for f in (*result.findings, *result.others) if f.code == "PK407"]
        assert bool(found) is fires, name
        if found:
            assert found[0].facts == {"kernels": 10, "kernels_ns": 900_000, "busy_ns": 900_000}
            assert found[0].saving_ns == -1
            assert result.headline == f"{found[0].message}."
